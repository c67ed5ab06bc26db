package goccl

import "slices"

// The agreement of the ranks of a broken group on who goes on. It is Paxos, once for each instance, with an attempt to open
// the agreed group between two instances:
//
//   - Instance 0 decides, among all ranks of the group, a set of ranks and an epoch number.
//   - The ranks of that set try to open their next group. Each tells the others whether it could.
//   - The next instance decides, among the ranks of that set only, either that the attempt stands (commit) or on another set,
//     and so on. A commit is the last decision.
//
// A rank goes on only with a committed set. Decisions are unique, and each takes a majority of the set before it, so two
// sets of ranks never both go on, whatever messages are lost. Who proposes decides nothing about safety: every rank votes
// for the lowest one that it holds for living, and a rank proposes once all it holds for living vote for it, which also
// waits for every living rank to come. That cannot go back and forth, because a rank never again becomes living to another.
//
// Ranks that cannot hear each other soon know it of each other: who holds a rank for gone tells it so.

// maxFruitless is how many attempts may fail with nobody gone before those that could not connect are told apart by force.
const maxFruitless = 3

// An agreedPeer is what this rank knows of another, or of itself.
type agreedPeer struct {
	gone     bool   // it is no longer there
	left     bool   // it said that it takes no part, for now
	apart    bool   // it said so for good: it holds us for gone, or has given up
	present  bool   // it has voted
	leader   int    // its vote
	promised ballot // highest it told in this instance
	answered bool   // it has promised, then accepted, our ballot
	opened   bool   // it has opened the last attempt
	failed   bool   // it has not, or has lost a rank of it
	lost     []int  // ranks that it has lost
	blames   int    // whom it could not connect with; -1: nobody
	done     bool   // it knows of the commit
	offers   bool   // it said so with its promise
	reminded bool   // of the last decision, in this instance
}

// agreement is the state machine. It does no I/O and reads no clock; the group's mutex is around it.
type agreement struct {
	rank     int
	minority bool // a majority is not needed
	active   bool // a call of Shrink is running here
	peers    []agreedPeer

	instance  uint32
	base      []int    // ranks that decide this instance, ascending
	attempt   proposal // what the instance before has decided; none in instance 0
	fruitless int      // how many decisions in a row have changed no rank
	committed bool     // attempt stands

	// offer is the larger group that Admit has all but made here: it stands once every rank of the group has it, which a rank
	// may have learned that is gone now. So if all who promise have it, it is what instance 0 decides.
	offer proposal

	tried    uint64
	promised ballot // as an acceptor, in this instance
	accepted ballot
	value    proposal
	vote     int // whom this rank has told the others to be lowest; -1: nobody yet

	ballot  ballot   // our own; zero: not proposing
	round   uint32   // of our last one in this instance
	choice  proposal // what we ask to be accepted; none while promises come in
	best    ballot   // highest accepted that came with a promise
	known   proposal // its value
	highest uint64   // highest epoch number that came with a promise
	severed [][2]int // pairs of ranks that had lost each other before we asked for promises

	result  agreedResult
	out     []agreedOutgoing
	echoes  []agreedMessage // to this rank itself
	scratch []int
}

type agreedOutgoing struct {
	to int
	agreedMessage
}

type agreedResult uint8

const (
	agreedPending    agreedResult = iota
	agreedCommit                  // the attempt stands and every living rank of it knows
	agreedExcluded                // the attempt is of ranks without this one
	agreedNoMajority              // too few are left
)

func newAgreement(rank, size int, epoch uint64, minority bool) *agreement {
	a := &agreement{rank: rank, minority: minority, peers: make([]agreedPeer, size), base: make([]int, size), tried: epoch, vote: -1}
	for r := range a.base {
		a.base[r] = r
		a.peers[r].blames = -1
	}
	return a
}

// enter says that Shrink has been called, for the first time or again.
func (a *agreement) enter(gone func(rank int) bool) {
	a.active, a.result, a.vote = true, agreedPending, -1
	for r := range a.peers {
		if p := &a.peers[r]; r != a.rank {
			p.gone = gone(r)
			if p.gone {
				a.send(r, agreedMessage{kind: agreedLeft, severed: true})
			}
		}
	}
	a.peers[a.rank].left = false
	switch {
	case a.committed:
		a.tellDecision(a.base)
	case a.instance > 0: // what an earlier call had opened is closed
		a.tellDecision(a.base)
		a.tell(a.base, agreedMessage{kind: agreedFailed, rank: -1})
	}
	a.run()
}

// leave says that Shrink returns without a group: the others are not to wait for this rank.
func (a *agreement) leave() {
	for _, r := range a.base {
		if a.active && r != a.rank && !a.peers[r].gone { // also those that have left: they may be on their way back
			a.send(r, agreedMessage{kind: agreedLeft, severed: a.result == agreedNoMajority})
		}
	}
	a.active, a.ballot, a.echoes = false, ballot{}, nil
	self := &a.peers[a.rank]
	self.present, self.left, self.opened = false, true, false
}

// lose says that a rank is no longer there.
func (a *agreement) lose(rank int) {
	if !a.active || a.peers[rank].gone || rank == a.rank {
		return
	}
	a.peers[rank].gone = true
	a.send(rank, agreedMessage{kind: agreedLeft, severed: true})
	a.accuse(rank)
	a.run()
}

// accuse tells the others that the attempt fails because a rank of it is gone.
func (a *agreement) accuse(rank int) {
	if _, member := slices.BinarySearch(a.base, rank); member && a.instance > 0 && !a.committed {
		a.tell(a.base, agreedMessage{kind: agreedFailed, rank: rank, severed: true})
	}
}

// opened says how the attempt that is decided in an instance went here. blame is who is at fault for a failure, -1 when
// nobody can be named.
func (a *agreement) opened(instance uint32, ok bool, blame int) {
	if !a.active || a.committed || instance+1 != a.instance {
		return
	}
	switch {
	case ok:
		a.tell(a.base, agreedMessage{kind: agreedOpened})
	case a.doomed():
		a.tell(a.base, agreedMessage{kind: agreedFailed, rank: -1}) // which is why
	case blame < 0:
		a.tell(a.base, agreedMessage{kind: agreedFailed, rank: a.rank})
	default:
		a.tell(a.base, agreedMessage{kind: agreedFailed, rank: blame})
	}
	a.run()
}

// doomed reports whether the attempt can no longer be completed. It may have been, elsewhere.
func (a *agreement) doomed() bool {
	return slices.ContainsFunc(a.base, func(r int) bool { return a.peers[r].failed || !a.living(r) })
}

// complete reports whether every rank of the attempt has opened it and is there.
func (a *agreement) complete() bool {
	return a.instance > 0 && !a.doomed() && !slices.ContainsFunc(a.base, func(r int) bool { return !a.peers[r].opened })
}

func (a *agreement) living(r int) bool { return !a.peers[r].gone && !a.peers[r].left }

// survivors returns the living ranks of the base; valid until the next call.
func (a *agreement) survivors() []int {
	a.scratch = a.scratch[:0]
	for _, r := range a.base {
		if a.living(r) {
			a.scratch = append(a.scratch, r)
		}
	}
	return a.scratch
}

// enough reports whether so many ranks of the base may decide.
func (a *agreement) enough(n int) bool { return a.minority && n > 0 || 2*n > len(a.base) }

// run carries out what follows from an event.
func (a *agreement) run() {
	for {
		a.step()
		if len(a.echoes) == 0 {
			return
		}
		m := a.echoes[0]
		a.echoes = a.echoes[1:]
		a.handle(a.rank, &m)
	}
}

func (a *agreement) step() {
	if !a.active || a.result != agreedPending {
		return
	}
	_, member := slices.BinarySearch(a.base, a.rank)
	switch {
	case !member, a.committed && !a.holds():
		a.result = agreedExcluded
	case a.committed:
		if a.instance == 0 || !slices.ContainsFunc(a.base, func(r int) bool { return a.living(r) && !a.peers[r].done }) {
			a.result = agreedCommit
		}
	case !a.enough(a.possible()):
		a.result = agreedNoMajority
	default:
		a.elect()
		if a.enough(len(a.survivors())) { // else those that have left are needed
			a.propose()
		}
	}
}

// holds reports whether what is committed is open here.
func (a *agreement) holds() bool {
	if a.instance == 0 {
		return a.offer.ranks != nil
	}
	return a.peers[a.rank].opened
}

// conclude says that the offer stands.
func (a *agreement) conclude() {
	a.attempt, a.committed = a.offer, true
	a.tellDecision(a.base)
}

// possible counts the ranks of the base that take part or may come back.
func (a *agreement) possible() (n int) {
	for _, r := range a.base {
		if p := &a.peers[r]; !p.gone && !p.apart {
			n++
		}
	}
	return n
}

// elect votes for the lowest living rank.
func (a *agreement) elect() {
	if leader := a.survivors()[0]; leader != a.vote {
		a.vote = leader
		for _, r := range a.base {
			if !a.peers[r].gone { // also those that have left: they may wait for us to come back
				a.send(r, a.ballotPaper())
			}
		}
	}
}

// waitsFor returns the ranks without whom this one cannot go on, for the error when time is up.
func (a *agreement) waitsFor() []int {
	pick := func(waits func(p *agreedPeer) bool) (ranks []int) {
		for _, r := range a.base {
			if r != a.rank && a.living(r) && waits(&a.peers[r]) {
				ranks = append(ranks, r)
			}
		}
		return ranks
	}
	absent := pick(func(p *agreedPeer) bool { return !p.present })
	switch {
	case absent != nil:
		return absent
	case !a.enough(len(a.survivors())):
		for _, r := range a.base {
			if p := &a.peers[r]; p.left && !p.gone && !p.apart {
				absent = append(absent, r)
			}
		}
		return absent
	case a.ballot != ballot{}:
		return pick(func(p *agreedPeer) bool { return !p.answered })
	case a.instance > 0 && !a.complete():
		return pick(func(p *agreedPeer) bool { return !p.opened })
	case a.vote >= 0 && a.vote != a.rank:
		return []int{a.vote}
	}
	return nil
}
