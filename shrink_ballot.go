package goccl

import "slices"

// receive takes a message of another rank.
func (a *agreement) receive(from int, m *agreedMessage) {
	a.handle(from, m)
	a.run()
}

func (a *agreement) handle(from int, m *agreedMessage) {
	p := &a.peers[from]
	switch {
	case m.kind == agreedDecided:
		if a.learn(m.instance, m.value); a.committed && m.value.commit {
			p.done = true
		}
		return
	case p.gone: // it has been told
		return
	case m.kind == agreedLeft:
		p.left, p.apart, p.present, p.reminded = true, m.severed, false, false
		return
	case m.kind == agreedVote:
		a.voted(from, m)
	}
	if a.committed || m.instance < a.instance {
		a.remind(from)
	}
	if a.committed || m.instance != a.instance {
		return
	}
	switch m.kind {
	case agreedPrepare, agreedAccept:
		a.asked(from, m)
	case agreedPromise:
		a.promisedBy(from, m)
	case agreedAccepted:
		p.answered = p.answered || m.ballot == a.ballot && a.choice.ranks != nil
	case agreedOpened:
		p.opened = true
	case agreedFailed:
		p.failed = true
		switch {
		case m.severed:
			p.lost = append(p.lost, m.rank)
		case m.rank >= 0:
			p.blames = m.rank
		}
	}
}

// voted takes a vote. One of a rank that had left means that it is back, and has missed what was told meanwhile.
func (a *agreement) voted(from int, m *agreedMessage) {
	p := &a.peers[from]
	if p.left {
		p.left, p.apart, a.ballot = false, false, ballot{}
		a.catchUp(from)
	}
	p.present, p.leader = true, m.rank
	if m.instance == a.instance && p.promised.less(m.ballot) {
		p.promised = m.ballot
	}
}

// asked takes a prepare or an accept as an acceptor. It answers nobody but the rank it votes for, and one that asks for too
// little gets to know what has been promised.
func (a *agreement) asked(from int, m *agreedMessage) {
	switch {
	case !a.active || a.vote != from || m.ballot.rank != from:
	case m.ballot.less(a.promised):
		a.send(from, a.ballotPaper())
	case m.kind == agreedPrepare:
		a.promised = m.ballot
		a.send(from, agreedMessage{kind: agreedPromise, ballot: m.ballot, accepted: a.accepted, value: a.value, tried: a.tried, offers: a.offer.ranks != nil})
	default:
		a.promised, a.accepted, a.value = m.ballot, m.ballot, m.value
		a.send(from, agreedMessage{kind: agreedAccepted, ballot: m.ballot})
	}
}

// propose moves our own ballot on as far as it can go.
func (a *agreement) propose() {
	for _, r := range a.survivors() {
		p := &a.peers[r]
		if !p.present || p.leader != a.rank {
			a.ballot = ballot{}
			return
		}
		if a.ballot.less(p.promised) { // it has promised more to somebody who is gone
			a.ballot = ballot{}
		}
		a.round = max(a.round, p.promised.round)
	}
	if (a.ballot == ballot{}) {
		if a.instance == 0 || a.doomed() || a.complete() {
			a.prepare()
		}
		return
	}
	if slices.ContainsFunc(a.survivors(), func(r int) bool { return !a.peers[r].answered }) {
		return
	}
	if a.choice.ranks != nil {
		a.learn(a.instance, a.choice)
		a.step()
		return
	}
	a.choice = a.choose()
	if !a.enough(len(a.choice.ranks)) {
		a.result = agreedNoMajority
		return
	}
	a.ask(agreedMessage{kind: agreedAccept, value: a.choice})
}

// prepare begins a ballot.
func (a *agreement) prepare() {
	a.round++
	a.ballot, a.choice, a.best, a.known, a.highest = ballot{a.round, a.rank}, proposal{}, ballot{}, proposal{}, 0
	a.severed = nil
	for _, r := range a.base {
		p := &a.peers[r]
		for _, lost := range p.lost {
			a.severed = append(a.severed, [2]int{r, lost})
		}
		if p.blames >= 0 && a.fruitless >= maxFruitless {
			a.severed = append(a.severed, [2]int{r, p.blames})
		}
	}
	a.ask(agreedMessage{kind: agreedPrepare})
}

func (a *agreement) ask(m agreedMessage) {
	m.ballot = a.ballot
	for _, r := range a.base {
		a.peers[r].answered = false
	}
	a.tell(a.base, m)
}

func (a *agreement) promisedBy(from int, m *agreedMessage) {
	if m.ballot != a.ballot || a.choice.ranks != nil {
		return
	}
	p := &a.peers[from]
	p.answered, p.promised, p.offers = true, m.ballot, m.offers
	if a.best.less(m.accepted) {
		a.best, a.known = m.accepted, m.value
	}
	a.highest = max(a.highest, m.tried)
}

// choose returns what to propose once every living rank has promised: what may have been decided already, else the offer if
// it may stand, else that the attempt stands, else a new set.
func (a *agreement) choose() proposal {
	switch {
	case a.known.ranks != nil:
		return a.known
	case a.instance == 0 && !slices.ContainsFunc(a.survivors(), func(r int) bool { return !a.peers[r].offers }):
		return a.offer
	case a.complete():
		return proposal{commit: true, epoch: a.attempt.epoch, ranks: a.attempt.ranks}
	}
	return proposal{epoch: a.highest + 1, ranks: a.connected()}
}

// connected returns the living ranks without those that another, lower one of them has lost. A rank that was said to be lost
// before we asked and has answered since does live: the two cannot hear each other.
func (a *agreement) connected() []int {
	var ranks []int
	for _, r := range a.survivors() {
		apart := func(pair [2]int) bool {
			other := pair[0]
			if other == r {
				other = pair[1]
			} else if pair[1] != r {
				return false
			}
			return other == r || slices.Contains(ranks, other)
		}
		if !slices.ContainsFunc(a.severed, apart) {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// learn takes a decision, whoever it comes from, and sends it on.
func (a *agreement) learn(instance uint32, v proposal) {
	if a.committed || instance < a.instance {
		return
	}
	before := a.base
	a.tried = max(a.tried, v.epoch)
	if v.commit {
		if instance != a.instance { // another attempt than the last one of ours
			a.peers[a.rank].opened = false
		}
		a.instance, a.base, a.attempt, a.committed = instance, v.ranks, v, true
		a.peers[a.rank].done = true
	} else {
		a.fruitless++
		if !slices.Equal(before, v.ranks) {
			a.fruitless = 0
		}
		a.instance, a.base, a.attempt = instance+1, v.ranks, v
		for r := range a.peers {
			p := &a.peers[r]
			*p = agreedPeer{gone: p.gone, left: p.left, apart: p.apart, present: p.present, leader: p.leader, blames: -1}
		}
	}
	a.promised, a.accepted, a.value = ballot{}, ballot{}, proposal{}
	a.ballot, a.round, a.choice = ballot{}, 0, proposal{}
	if !a.active {
		return
	}
	a.tellDecision(before)
	for _, r := range a.base {
		if a.peers[r].gone {
			a.accuse(r)
		}
	}
}
