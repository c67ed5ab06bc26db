package goccl

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"
)

const beat = 2 * time.Second

// beatingWard is a ward with heartbeats, in which every machine has been running for a while, each in its own phase.
func beatingWard(t *testing.T, n int, rng *rand.Rand) *ward {
	w := newWard(t, n)
	for r, h := range w.ranks {
		h.life = newLiveness(r, n, beat)
		h.life.beatAt = w.now.Add(upTo(rng, beat))
	}
	w.pass(beat + upTo(rng, beat))
	return w
}

func upTo(rng *rand.Rand, d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }

func (w *ward) stop(r int) { w.stopped[r] = true }

// resume lets a stopped rank go on. Either its readers or its watcher are the first to run.
func (w *ward) resume(r int, readersFirst bool) {
	w.stopped[r] = false
	if !readersFirst {
		w.tick(r)
	}
	for _, l := range w.inbox[r] {
		w.ranks[r].noticed(w.now, l.from, &l.n)
	}
	w.inbox[r] = nil
	w.tick(r)
	w.deliver()
}

// block loses what the ranks of one list send to those of the other from now on.
func (w *ward) block(from, to []int) {
	for _, a := range from {
		for _, b := range to {
			w.blocked[[2]int{a, b}] = true
		}
	}
}

// blamed is who a rank's first cause names, -1 while there is none.
func (w *ward) blamed(r int) int {
	if w.ranks[r].cause == nil {
		return -1
	}
	var e *PeerError
	if !errors.As(w.ranks[r].cause, &e) || !errors.Is(e, os.ErrDeadlineExceeded) {
		w.t.Fatalf("rank %d: %v, want a PeerError for want of a sign of life", r, w.ranks[r].cause)
	}
	return e.Rank
}

func seeded(t *testing.T, seeds uint64, test func(t *testing.T, rng *rand.Rand)) {
	for seed := range seeds {
		test(t, rand.New(rand.NewPCG(seed, 1)))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// To a rank that is cut off, those who have given it up may look as if they had failed. It blames none of them.
func TestLivenessCutOffRankBlamesNoEnd(t *testing.T) {
	seeded(t, 300, func(t *testing.T, rng *rand.Rand) {
		n := 3 + rng.IntN(4)
		w := beatingWard(t, n, rng)
		all, victim := rng.Perm(n), rng.IntN(n)
		w.begin(1, all...)
		w.block([]int{victim}, all)
		w.block(all, []int{victim})
		w.pass(deadAfter*beat/2 + upTo(rng, beat))
		w.ranks[victim].failed(w.now, &PeerError{Rank: (victim + 1) % n, Err: io.EOF})
		w.pass(2 * deadAfter * beat)
		for r := range n {
			if got := w.blamed(r); got != victim {
				t.Errorf("rank %d of %d blames rank %d, want rank %d", r, n, got, victim)
			}
		}
	})
}

// A rank that is stopped is named by all the others within the bound and, when it goes on, by itself.
func TestLivenessStoppedRank(t *testing.T) {
	seeded(t, 300, func(t *testing.T, rng *rand.Rand) {
		n := 2 + rng.IntN(6)
		w := beatingWard(t, n, rng)
		if rng.IntN(2) == 0 {
			w.begin(1, rng.Perm(n)[:rng.IntN(n)]...) // status and probes are signs of life too
			w.pass(upTo(rng, beat))
		}
		victim := rng.IntN(n)
		w.stop(victim)
		w.pass(2 * beat)
		for r := range n {
			if w.blamed(r) >= 0 {
				t.Errorf("rank %d: %v, before the bound", r, w.ranks[r].cause)
			}
		}
		w.pass(beat + beat/16)
		for r := range n {
			if r == victim {
				continue
			}
			if w.blamed(r) != victim || !strings.Contains(w.ranks[r].cause.Error(), "no sign of life for") {
				t.Errorf("rank %d of %d: %v, want rank %d blamed", r, n, w.ranks[r].cause, victim)
			}
		}
		w.pass(upTo(rng, time.Minute))
		w.resume(victim, rng.IntN(2) == 0)
		w.pass(time.Minute)
		if w.blamed(victim) != victim || !strings.Contains(w.ranks[victim].cause.Error(), "declared dead by rank") {
			t.Errorf("the rank that was stopped: %v", w.ranks[victim].cause)
		}
		for r := range n {
			for p := range n {
				if gone := w.ranks[r].gone(p); gone != (p == victim && r != victim) {
					t.Errorf("for rank %d rank %d is gone: %v", r, p, gone)
				}
			}
		}
	})
}

// A rank that was stopped for less than the bound is blamed by nobody and blames nobody, however often.
func TestLivenessResumedRank(t *testing.T) {
	seeded(t, 300, func(t *testing.T, rng *rand.Rand) {
		n := 2 + rng.IntN(5)
		w := beatingWard(t, n, rng)
		for range 10 {
			some := rng.Perm(n)[:1+rng.IntN(n)]
			for _, r := range some {
				w.stop(r)
			}
			w.pass(upTo(rng, 2*beat))
			for _, r := range some {
				w.resume(r, rng.IntN(2) == 0)
			}
			w.pass(upTo(rng, 3*beat))
		}
		for r := range n {
			if w.blamed(r) >= 0 {
				t.Errorf("rank %d: %v", r, w.ranks[r].cause)
			}
		}
	})
}

// When the network loses what some ranks send to others, every rank names the same culprit on each side of the fault.
func TestLivenessBlackHoles(t *testing.T) {
	type cut struct{ from, to []int }
	for name, c := range map[string]struct {
		n    int
		cuts []cut
		want []int // by rank
		text string
	}{
		"two, both ways":          {2, []cut{{[]int{0}, []int{1}}, {[]int{1}, []int{0}}}, []int{1, 0}, "no sign of life"},
		"two, one way":            {2, []cut{{[]int{1}, []int{0}}}, []int{1, 1}, "no sign of life"},
		"all to one":              {4, []cut{{[]int{0, 1, 3}, []int{2}}}, []int{2, 2, 2, 2}, "cut off: no word from any other rank"},
		"all from one":            {4, []cut{{[]int{2}, []int{0, 1, 3}}}, []int{2, 2, 2, 2}, "no sign of life"},
		"one, both ways":          {4, []cut{{[]int{2}, []int{0, 1, 3}}, {[]int{0, 1, 3}, []int{2}}}, []int{2, 2, 2, 2}, ""},
		"rank 0, both ways":       {4, []cut{{[]int{0}, []int{2, 1, 3}}, {[]int{2, 1, 3}, []int{0}}}, []int{0, 0, 0, 0}, ""},
		"partition 2|2":           {4, []cut{{[]int{0, 2}, []int{1, 3}}, {[]int{1, 3}, []int{0, 2}}}, []int{1, 0, 1, 0}, "no sign of life"},
		"partition 3|2":           {5, []cut{{[]int{0, 2, 3}, []int{1, 4}}, {[]int{1, 4}, []int{0, 2, 3}}}, []int{1, 0, 1, 1, 0}, "no sign of life"},
		"one way of a pair, up":   {4, []cut{{[]int{1}, []int{3}}}, []int{1, 1, 1, 1}, "no sign of life"},
		"one way of a pair, down": {4, []cut{{[]int{3}, []int{1}}}, []int{3, 3, 3, 3}, "no sign of life"},
	} {
		t.Run(name, func(t *testing.T) {
			seeded(t, 50, func(t *testing.T, rng *rand.Rand) {
				w := beatingWard(t, c.n, rng)
				for _, cut := range c.cuts {
					w.block(cut.from, cut.to)
				}
				w.pass(4 * beat)
				for r, want := range c.want {
					if got := w.blamed(r); got != want || !strings.Contains(fmt.Sprint(w.ranks[r].cause), c.text) {
						t.Errorf("rank %d: %v, want rank %d blamed: %s", r, w.ranks[r].cause, want, c.text)
					}
				}
			})
		})
	}
}

// Ranks with different intervals get along, and one that has heartbeats off is not missed.
func TestLivenessDifferentIntervals(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	w := newWard(t, 4)
	for r, every := range []time.Duration{beat, 10 * beat, beat / 100, 0} {
		w.ranks[r].life = newLiveness(r, 4, every)
	}
	w.pass(10 * time.Minute)
	w.stop(3)
	w.pass(10 * time.Minute)
	for r := range 4 {
		if w.blamed(r) >= 0 {
			t.Fatalf("rank %d: %v", r, w.ranks[r].cause)
		}
	}
	w.resume(3, true)
	w.pass(upTo(rng, beat))
	w.stop(1)
	w.pass(2 * 10 * beat)
	if w.blamed(0) >= 0 {
		t.Fatalf("rank 0: %v, before the bound of the slower rank", w.ranks[0].cause)
	}
	w.pass(10 * beat)
	for _, r := range []int{0, 2, 3} {
		if w.blamed(r) != 1 {
			t.Errorf("rank %d: %v, want rank 1 blamed", r, w.ranks[r].cause)
		}
	}
}

// A rank with a longer interval is the more patient.
func TestLivenessPatientRank(t *testing.T) {
	w := newWard(t, 2)
	for r, every := range []time.Duration{10 * beat, beat} {
		w.ranks[r].life = newLiveness(r, 2, every)
	}
	w.pass(10 * beat)
	w.stop(1)
	w.pass(2 * 10 * beat)
	if w.blamed(0) >= 0 {
		t.Errorf("after two of its intervals: %v", w.ranks[0].cause)
	}
	w.pass(11 * beat)
	if w.blamed(0) != 1 {
		t.Errorf("after three: %v", w.ranks[0].cause)
	}
}

// After the group has broken for another reason it still becomes known who is gone.
func TestLivenessGoesOnAfterTheBreak(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	w := beatingWard(t, 3, rng)
	w.begin(1, 0, 1, 2)
	w.ranks[0].failed(w.now, &MismatchError{Rank: 1, Want: "mine", Got: "theirs"})
	w.pass(time.Minute)
	w.stop(2)
	w.pass(3*beat + beat/16)
	for r := range 2 {
		h := w.ranks[r]
		if !h.gone(2) || h.gone(1-r) {
			t.Errorf("rank %d: gone %v, %v, want rank 2 only", r, h.gone(2), h.gone(1-r))
		}
		if e := new(MismatchError); !errors.As(h.cause, &e) {
			t.Errorf("rank %d: first cause %v was replaced", r, h.cause)
		}
	}
}

// A rank that has left is not missed.
func TestLivenessOfThoseWhoLeft(t *testing.T) {
	w := beatingWard(t, 3, rand.New(rand.NewPCG(5, 6)))
	w.ranks[1].goodbye(func(int) uint64 { return 0 })
	w.deliver()
	w.ranks[1].closing = true
	w.dead[1] = true
	w.pass(time.Hour)
	for _, r := range []int{0, 2} {
		if w.blamed(r) >= 0 {
			t.Errorf("rank %d: %v", r, w.ranks[r].cause)
		}
	}
}

// When two ranks cannot reach each other and a third reaches both, all blame the same of the two: who is found silent first.
func TestLivenessBrokenPair(t *testing.T) {
	seeded(t, 200, func(t *testing.T, rng *rand.Rand) {
		n := 3 + rng.IntN(3)
		w := beatingWard(t, n, rng)
		pair := rng.Perm(n)[:2]
		w.block(pair[:1], pair[1:])
		w.block(pair[1:], pair[:1])
		w.pass(4 * beat)
		for r := range n {
			if b := w.blamed(r); b != w.blamed(0) || b != pair[0] && b != pair[1] {
				t.Errorf("rank %d: %v, rank 0: %v, pair %v", r, w.ranks[r].cause, w.ranks[0].cause, pair)
			}
		}
	})
}
