package faults

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/goccl/goccl"
)

var idleFor = flag.Duration("idle", 4*time.Second, "how long ranks are idle, and half as long one waits for the others")

func init() { roles["idle"] = idle }

// idleShare is the most CPU time that a waiting rank may use, of one core.
const idleShare = 0.005

// idle tells how much CPU time the rank uses while it does what the test orders: "idle" for so many milliseconds, or "barrier".
func idle(s *self) {
	ctx := context.Background()
	g := s.join(ctx)
	err := goccl.AllReduce(ctx, g, make([]float32, 1<<16), goccl.Sum)
	s.say("running", func(r *report) { r.Failure = describe(err) })
	for o := range s.orders {
		before := takeTally()
		switch o.Do {
		case "idle":
			time.Sleep(time.Duration(o.N) * time.Millisecond)
		case "barrier":
			err = g.Barrier(ctx)
		case "close":
			s.done(g.Close(), "")
			return
		}
		s.say("was "+o.Do, func(r *report) {
			r.Failure, r.Now = describe(err), takeTally()
			r.Now.CPU -= before.CPU
		})
	}
}

// Ranks that wait use next to no CPU time: idle ones, and one that waits for the others in a barrier.
func TestIdle(t *testing.T) {
	t.Parallel() // CPU time is the process's own
	const n = 4
	j := start(t, n, plan{Role: "idle"})
	j.expectAll(upTo(n), "running")
	j.measureIdle(upTo(n), "idle", *idleFor)
	j.ranks[0].tell("barrier", 0)
	j.measureIdle([]int{1, 2, 3}, "idle", *idleFor/2)
	for _, r := range []int{1, 2, 3} {
		j.ranks[r].tell("barrier", 0)
	}
	j.expectAll([]int{1, 2, 3}, "was barrier")
	j.checkIdle([]int{0}, "was barrier", *idleFor/2)
	for r := range n {
		j.ranks[r].tell("close", 0)
	}
	j.expectDone(upTo(n))
}

func (j *job) measureIdle(ranks []int, do string, d time.Duration) {
	j.t.Helper()
	for _, r := range ranks {
		j.ranks[r].tell(do, int(d.Milliseconds()))
	}
	j.checkIdle(ranks, "was "+do, d)
}

func (j *job) checkIdle(ranks []int, event string, d time.Duration) {
	j.t.Helper()
	for _, r := range j.expectAll(ranks, event) {
		share := float64(r.Now.CPU) / float64(d)
		j.t.Logf("rank %d %s for %v: %v of CPU time, %.3f %% of a core", r.Rank, event, d, r.Now.CPU, 100*share)
		if r.Failure != nil || share > idleShare {
			j.t.Errorf("rank %d: %s", r.Rank, r)
		}
	}
}
