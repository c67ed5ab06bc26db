package goccl

import (
	"fmt"
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
	sureAt time.Time     // when to look once more before the verdict; zero: nobody is silent
}

// A pulse is what liveness knows of one rank.
type pulse struct {
	every time.Duration // its interval, in its words; 0: it has sent no heartbeat, and cannot be missed
	heard time.Time     // when it gave the last sign of life, or when all deadlines last started over
	over  bool          // it has left, its stream has ended, or it has been declared silent
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

// beaten takes the interval of a rank's heartbeat.
func (l *liveness) beaten(from int, every uint64) {
	l.peers[from].every = time.Duration(min(every, uint64(maxHeartbeat)))
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
// a further one is in doubt it waits: the verdict is then the same whichever bound passed first. And it looks twice, a
// sixteenth of an interval apart: when the process has just gone on, what the others sent in the meantime is yet to be read.
func (l *liveness) judge(now time.Time) (verdict *silence, next time.Time) {
	var silent []int
	others, doubt, patience := 0, false, true
	for r := range l.peers {
		if !l.watches(r) {
			continue
		}
		others++
		p, bound := &l.peers[r], l.bound(r)
		until := p.heard.Add(bound)
		switch d := now.Sub(p.heard); {
		case d >= bound:
			silent = append(silent, r)
			patience = patience && d < bound+bound/2
			until = until.Add(bound / 2)
		case d >= bound/2:
			doubt = true
		}
		if next.IsZero() || until.Before(next) {
			next = until
		}
	}
	switch {
	case silent == nil:
		l.sureAt = time.Time{}
		return nil, next
	case doubt && patience:
		return nil, next
	case l.sureAt.IsZero():
		l.sureAt = now.Add(l.every / 16)
	}
	if patience && now.Before(l.sureAt) {
		return nil, l.sureAt
	}
	l.sureAt = time.Time{}
	return l.decide(now, silent, others), next
}

// hearsNobody reports whether each of several others is overdue: this rank may be cut off, which the verdict will tell.
func (l *liveness) hearsNobody(now time.Time) bool {
	others := 0
	for r := range l.peers {
		if !l.watches(r) {
			continue
		}
		if others++; now.Sub(l.peers[r].heard) < l.bound(r)/2 {
			return false
		}
	}
	return l.every > 0 && others > 1
}

// decide blames the lowest silent rank, or this one if nobody of several others is heard: it is the one that is cut off.
func (l *liveness) decide(now time.Time, silent []int, others int) *silence {
	p := &l.peers[silent[0]]
	mute := now.Sub(p.heard).Round(100 * time.Millisecond)
	absence := fmt.Sprintf("no sign of life for %v (heartbeat every %v)", mute, p.every)
	if others > 1 && len(silent) == others {
		return &silence{silent, absence, l.rank, fmt.Sprintf("cut off: no word from any other rank for %v", mute)}
	}
	return &silence{silent, absence, silent[0], absence}
}
