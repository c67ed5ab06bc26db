package faults

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"

	"github.com/goccl/goccl"
)

func init() { roles["survive"] = survive }

// survive all-reduces without end. After a failure it goes on with who is left. It reports
//
//	running       the first all-reduce of a group is right
//	reached       as many steps are done as the test asked for
//	lasted        the work went on for as long as the test asked for
//	failed        an all-reduce has failed
//	shrunk        there is a next group
//	grown         somebody was admitted
//	not shrunk    there is none; the rank ends
//	done          everything is closed
func survive(s *self) {
	ctx := context.Background()
	w := &work{count: s.plan.Count}
	for g := s.join(ctx); g != nil; {
		g = s.workOn(ctx, g, w)
	}
}

// workOn works with a group until there is another one, which it returns, or the test wants an end, or it cannot go on; then
// it closes the group and returns nil.
func (s *self) workOn(ctx context.Context, g *goccl.ProcessGroup, w *work) *goccl.ProcessGroup {
	members, err := s.members(ctx, g)
	if err != nil {
		members = s.follow(g)
	}
	s.last = members
	w.reset(g.Rank())
	for i := 0; err == nil; i++ {
		var last bool
		if last, err = w.step(ctx, g, s.finish.Load()); err != nil {
			break
		}
		s.stepped(i == 0, func(r *report) { r.Members, r.Wrong = members, w.wrong })
		if last {
			s.done(g.Close(), w.wrong)
			return nil
		}
		if s.plan.Elastic {
			var next *goccl.ProcessGroup
			if next, err = g.Admit(ctx); err == nil && next != g {
				s.say("grown", nil)
				return next
			}
		}
	}
	s.say("failed", func(r *report) { r.Failure, r.Wrong, r.Members = describe(err).in(members), w.wrong, members })
	return s.shrink(ctx, g)
}

// members lists the group's ranks by their numbers in the world that was launched.
func (s *self) members(ctx context.Context, g *goccl.ProcessGroup) ([]int, error) {
	all := make([]int64, g.Size())
	if err := goccl.AllGather(ctx, g, all, []int64{int64(s.rank)}); err != nil {
		return nil, err
	}
	members := make([]int, len(all))
	for i, r := range all {
		members[i] = int(r)
	}
	return members, nil
}

// follow lists the group's ranks as far as they are known from the group before; -1: not known.
func (s *self) follow(g *goccl.ProcessGroup) []int {
	var members []int
	for _, r := range g.ParentRanks() {
		if r >= 0 && r < len(s.last) {
			r = s.last[r]
		}
		members = append(members, r)
	}
	return members
}

// work is a rank's part in all-reduces whose results are known.
type work struct {
	count    int
	src, dst []float32
	wrong    string
}

// reset prepares the buffers for a group. The first element tells whether some rank wants to end.
func (w *work) reset(rank int) {
	w.src, w.dst = slices.Grow(w.src[:0], w.count)[:w.count], slices.Grow(w.dst[:0], w.count)[:w.count]
	for i := range w.src {
		w.src[i], w.dst[i] = float32(rank+1+i%7), nan
	}
}

var nan = float32(math.NaN())

// step does one all-reduce and checks every element. It returns true once a rank has asked for the end.
func (w *work) step(ctx context.Context, g *goccl.ProcessGroup, finish bool) (last bool, err error) {
	w.src[0] = 0
	if finish {
		w.src[0] = 1
	}
	if err := goccl.AllReduceTo(ctx, g, w.dst, w.src, goccl.Sum); err != nil {
		return false, err
	}
	n := g.Size()
	last = w.dst[0] > 0
	w.dst[0] = float32(n * (n + 1) / 2)
	for i, v := range w.dst {
		if want := float32(n*(n+1)/2 + n*(i%7)); v != want && w.wrong == "" {
			w.wrong = fmt.Sprintf("element %d is %v, want %v", i, v, want)
		}
		w.dst[i] = nan // what the next one leaves out shows
	}
	return last, nil
}

func stacks() string {
	buf := make([]byte, 1<<20)
	return string(buf[:runtime.Stack(buf, true)])
}
