package goccl

import (
	"fmt"
	"slices"
	"time"
)

const (
	deadAfter    = 3 // intervals without a sign of life after which a rank is held for dead
	minHeartbeat = 10 * time.Millisecond
	maxHeartbeat = 24 * time.Hour // also for what a peer says of itself
)

// liveness is the state machine that tells which ranks give no sign of life: at every interval each rank sends a heartbeat to
// every other, so that one that is stopped, or cut off without a reset, is known although nobody is in a call with it. Like
// health, it does no I/O and reads no clock.
//
// A rank that is late itself (it was stopped, starved or suspended) hears everybody late and must blame nobody for that: all
// deadlines start over. And a rank that hears nobody is itself the one that is cut off, if there are others at all.
type liveness struct {
	rank   int
	every  time.Duration // this rank's interval; 0: off
	peers  []pulse       // by rank; the own entry is unused
	beatAt time.Time     // when the next heartbeat is due
	lookAt time.Time     // when the last tick wanted the next one
}

// A pulse is what liveness knows of one rank.
type pulse struct {
	every   time.Duration // its interval, in its words; 0: it has sent no heartbeat, and cannot be missed
	heard   time.Time     // when it gave the last sign of life
	beat    time.Time     // when its last heartbeat came
	unheard []int         // whom it had not heard for a while by then
	over    bool          // it has left, its stream has ended, or it has been declared silent
}

// A silence is the verdict of liveness.
type silence struct {
	ranks   []int  // who is silent, ascending
	absence string // what is said of any of them
	culprit int    // who is to blame: one of them, or this rank if it is the one that cannot hear
	reason  string // why
}

func newLiveness(rank, size int, every time.Duration) liveness {
	l := liveness{rank: rank, every: every, peers: make([]pulse, size)}
	if size == 1 {
		l.every = 0
	}
	return l
}

// heard takes a sign of life.
func (l *liveness) heard(now time.Time, from int) { l.peers[from].heard = now }

// beaten takes a heartbeat.
func (l *liveness) beaten(now time.Time, from int, every uint64, unheard []int) {
	p := &l.peers[from]
	p.every, p.beat, p.unheard = time.Duration(min(every, uint64(maxHeartbeat))), now, unheard
}

// end says that a rank need not be listened for any more.
func (l *liveness) end(rank int) { l.peers[rank].over = true }

// watches reports whether a rank would be missed.
func (l *liveness) watches(r int) bool {
	p := &l.peers[r]
	return r != l.rank && !p.over && p.every > 0
}

// bound is how long a rank may be silent. Ranks may have different intervals; none dies of it.
func (l *liveness) bound(r int) time.Duration { return deadAfter * max(l.every, l.peers[r].every) }

// tick lets time pass. It returns whether heartbeats are due, the verdict if there is one, and when it wants to be called
// again; zero: never.
func (l *liveness) tick(now time.Time) (beat bool, verdict *silence, next time.Time) {
	if l.every == 0 {
		return false, nil, next
	}
	if !l.lookAt.IsZero() && now.Sub(l.lookAt) > l.every/2 {
		l.startOver(now)
	}
	if beat = !now.Before(l.beatAt); beat {
		l.beatAt = now.Add(l.every)
	}
	verdict, next = l.judge(now)
	if next.IsZero() || l.beatAt.Before(next) {
		next = l.beatAt
	}
	l.lookAt = next
	return beat, verdict, next
}

func (l *liveness) startOver(now time.Time) {
	for r := range l.peers {
		l.peers[r].heard = now
	}
}

// judge decides who is silent. Ranks that fall silent together pass their bounds within an interval of each other, so while
// a further one is in doubt it waits: the verdict is then the same whichever bound passed first.
func (l *liveness) judge(now time.Time) (verdict *silence, next time.Time) {
	var silent, well []int
	doubt, patience := false, true
	wait := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	for r := range l.peers {
		if !l.watches(r) {
			continue
		}
		p, bound := &l.peers[r], l.bound(r)
		switch d := now.Sub(p.heard); {
		case d >= bound:
			silent = append(silent, r)
			patience = patience && d < bound+bound/2
			wait(p.heard.Add(bound + bound/2))
		case d >= bound/2:
			doubt = true
			wait(p.heard.Add(bound))
		default:
			well = append(well, r)
			wait(p.heard.Add(bound))
		}
	}
	if silent == nil || doubt && patience {
		return nil, next
	}
	return l.decide(now, silent, well, patience), next
}

// decide blames the lowest silent rank, with two exceptions. When nobody of several is heard, it is this rank that is cut
// off. And when another rank hears the silent one, only the way between the two is broken: the higher of the two is to
// blame, so that both say the same.
func (l *liveness) decide(now time.Time, silent, well []int, patience bool) *silence {
	first := silent[0]
	p := &l.peers[first]
	mute := now.Sub(p.heard).Round(100 * time.Millisecond)
	absence := fmt.Sprintf("no sign of life for %v (heartbeat every %v)", mute, p.every)
	v := &silence{silent, absence, first, absence}
	if len(well) == 0 {
		if len(silent) > 1 {
			v.culprit, v.reason = l.rank, fmt.Sprintf("cut off: no word from any other rank for %v", mute)
		}
		return v
	}
	if first > l.rank {
		return v
	}
	missedByAll := true
	for _, r := range well {
		switch q := &l.peers[r]; {
		case misses(q.unheard, first):
		case !q.beat.Before(p.heard.Add(l.bound(first))): // it has heard that rank when we should have
			v.culprit, v.reason = l.rank, fmt.Sprintf("cut off from rank %d: no word for %v, though rank %d hears it", first, mute, r)
			return v
		default:
			missedByAll = false
		}
	}
	if !missedByAll && patience { // soon the others will have said whether they hear it
		return nil
	}
	return v
}

// misses reports whether a rank is in a heartbeat's list. A full list says nothing of those beyond it.
func misses(unheard []int, rank int) bool {
	return slices.Contains(unheard, rank) || len(unheard) >= noticeMaxMissing
}

// unheard lists whom this rank has not heard for a while, for the next heartbeat.
func (l *liveness) unheard(now time.Time) []int {
	var ranks []int
	for r := range l.peers {
		p := &l.peers[r]
		if r != l.rank && p.every > 0 && (p.over || now.Sub(p.heard) >= deadAfter*p.every/2) {
			ranks = append(ranks, r)
		}
	}
	return ranks
}
