package goccl

import (
	"math/rand/v2"
	"testing"
	"time"
)

// A sim plays random faults on a ward, among ranks that are stopped for less than the bound all the time and make calls now
// and then.
type sim struct {
	*ward
	rng    *rand.Rand
	n      int
	faulty []bool      // stopped for longer than the bound, or behind a black hole
	wakes  []time.Time // when a rank that is stopped for a moment goes on
	rests  []time.Time // when a rank may be stopped again
	inCall []bool
}

func newSim(t *testing.T, rng *rand.Rand) *sim {
	n := 2 + rng.IntN(6)
	return &sim{ward: beatingWard(t, n, rng), rng: rng, n: n, faulty: make([]bool, n), wakes: make([]time.Time, n), rests: make([]time.Time, n),
		inCall: make([]bool, n)}
}

// fault makes a rank faulty from now on.
func (s *sim) fault(r int) {
	s.faulty[r] = true
	var others []int
	for o := range s.n {
		if o != r {
			others = append(others, o)
		}
	}
	self := []int{r}
	switch s.rng.IntN(4) {
	case 0:
		s.wakes[r] = time.Time{}
		s.stop(r)
	case 1:
		s.block(self, others)
	case 2:
		s.block(others, self)
	case 3:
		s.block(self, others)
		s.block(others, self)
	}
}

// run lets time pass, with noise: short stops, and calls that begin and end, on ranks that are not faulty.
func (s *sim) run(d time.Duration) {
	for end := s.now.Add(d); s.now.Before(end); {
		r := s.rng.IntN(s.n)
		switch {
		case s.stopped[r] || s.ranks[r].cause != nil:
		case s.rng.IntN(4) == 0:
			s.toggleCall(r)
		case !s.faulty[r] && s.now.After(s.rests[r]):
			s.stop(r)
			s.wakes[r] = s.now.Add(upTo(s.rng, 2*beat))
			s.rests[r] = s.wakes[r].Add(2 * beat)
		}
		s.passWaking(upTo(s.rng, beat))
	}
	s.passWaking(2 * beat)
}

func (s *sim) toggleCall(r int) {
	h := s.ranks[r]
	if h.mine.running {
		h.end(s.now)
	} else {
		h.begin(s.now, allReduceTag(h.mine.seq+1, 8))
	}
	s.deliver()
}

// passWaking is pass that lets stopped ranks go on in their time.
func (s *sim) passWaking(d time.Duration) {
	for end := s.now.Add(d); s.now.Before(end); {
		next, who := end, -1
		for r, at := range s.wakes {
			if !at.IsZero() && !at.After(next) {
				next, who = at, r
			}
		}
		s.pass(next.Sub(s.now))
		if who >= 0 {
			s.wakes[who] = time.Time{}
			s.resume(who, s.rng.IntN(2) == 0)
		}
	}
}

// However busy the others are, a single fault is blamed on the same rank by all, and by it too.
func TestLivenessSingleFault(t *testing.T) {
	seeded(t, 1000, func(t *testing.T, rng *rand.Rand) {
		s := newSim(t, rng)
		s.run(upTo(rng, time.Minute))
		for r := range s.n {
			if s.blamed(r) >= 0 {
				t.Fatalf("without a fault rank %d: %v", r, s.ranks[r].cause)
			}
		}
		victim := rng.IntN(s.n)
		s.fault(victim)
		s.run(7 * beat)
		s.passWaking(4 * beat)
		if s.stopped[victim] {
			s.resume(victim, rng.IntN(2) == 0)
		}
		s.passWaking(4 * beat)
		for r := range s.n {
			want := victim
			if s.n == 2 && s.blocked[[2]int{1 - r, r}] { // of two, who hears nothing cannot know that it is itself the one
				want = 1 - r
			} else if s.n == 2 && s.blocked[[2]int{r, 1 - r}] {
				want = r
			}
			if got := s.blamed(r); got != want {
				t.Errorf("rank %d of %d: %v, want rank %d blamed", r, s.n, s.ranks[r].cause, want)
			}
		}
	})
}

// Whatever fails, and however often, no rank that has always been there is blamed.
func TestLivenessManyFaults(t *testing.T) {
	seeded(t, 1000, func(t *testing.T, rng *rand.Rand) {
		s := newSim(t, rng)
		for range 1 + rng.IntN(s.n) {
			s.fault(rng.IntN(s.n))
			s.run(upTo(rng, 5*beat))
		}
		s.passWaking(5 * beat)
		for r := range s.n {
			if s.stopped[r] {
				s.resume(r, rng.IntN(2) == 0)
			}
		}
		s.passWaking(5 * beat)
		for r := range s.n {
			b, healthy := s.blamed(r), 0 // others than the one that is blamed
			for o := range s.n {
				if o != b && !s.faulty[o] {
					healthy++
				}
			}
			switch {
			case b < 0 && healthy == 0 && len(s.blocked) == 0: // all were stopped, one after the other: nobody was there to see it
			case b >= 0 && (s.faulty[b] || healthy == 0): // the last one that is left cannot know that it is not cut off
			default:
				t.Errorf("rank %d of %d: %v; faulty %v", r, s.n, s.ranks[r].cause, s.faulty)
			}
		}
	})
}
