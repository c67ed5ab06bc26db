package goccl

// What a rank says to the others in the agreement.

func (a *agreement) ballotPaper() agreedMessage {
	return agreedMessage{kind: agreedVote, rank: a.vote, ballot: a.promised}
}

// decision is the last one that this rank knows of.
func (a *agreement) decision() agreedMessage {
	if a.committed {
		return agreedMessage{kind: agreedDecided, instance: a.instance, value: a.attempt}
	}
	return agreedMessage{kind: agreedDecided, instance: a.instance - 1, value: a.attempt}
}

// send fills in the instance, but for a decision.
func (a *agreement) send(to int, m agreedMessage) {
	if m.kind != agreedDecided {
		m.instance = a.instance
	}
	if to == a.rank {
		a.echoes = append(a.echoes, m)
	} else {
		a.out = append(a.out, agreedOutgoing{to, m})
	}
}

// tell sends to those of the ranks that are living.
func (a *agreement) tell(ranks []int, m agreedMessage) {
	for _, r := range ranks {
		if a.living(r) {
			a.send(r, m)
		}
	}
}

// tellDecision sends the last decision to other ranks, also to those held for gone: it helps if they are not.
func (a *agreement) tellDecision(ranks []int) {
	for _, r := range ranks {
		if r != a.rank {
			a.send(r, a.decision())
		}
	}
}

// flush takes the messages that are to be sent.
func (a *agreement) flush() []agreedOutgoing {
	out := a.out
	a.out = nil
	return out
}

// remind tells a rank that is behind of the last decision, once.
func (a *agreement) remind(r int) {
	if p := &a.peers[r]; r != a.rank && !p.reminded {
		p.reminded = true
		a.send(r, a.decision())
	}
}

// catchUp tells a rank where this one stands.
func (a *agreement) catchUp(r int) {
	if !a.active || r == a.rank {
		return
	}
	if a.instance > 0 {
		a.send(r, a.decision())
	}
	if a.vote >= 0 {
		a.send(r, a.ballotPaper())
	}
	switch self := &a.peers[a.rank]; {
	case a.committed:
	case self.failed:
		a.send(r, agreedMessage{kind: agreedFailed, rank: -1})
		for _, lost := range self.lost {
			a.send(r, agreedMessage{kind: agreedFailed, rank: lost, severed: true})
		}
	case self.opened:
		a.send(r, agreedMessage{kind: agreedOpened})
	}
}
