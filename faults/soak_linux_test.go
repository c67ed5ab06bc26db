package faults

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/goccl/goccl"
)

var (
	soakCalls  = flag.Int("calls", 4000, "collectives of a soak")
	soakGroups = flag.Int("groups", 80, "groups that a soak makes and closes")
)

func init() { roles["soak"] = soak }

// soakGrowth is how much more memory a rank may have in the last quarter of a soak than in the first.
const soakGrowth = 4 << 20

// A soak does all there is, over and over, in four quarters, and reports what the process holds at the end of each. A warm-up
// comes before. One group in ten is a whole world of its own, met anew.
func soak(s *self) {
	for quarter := range 5 {
		calls, groups := s.plan.Count/4, s.plan.Groups/4
		if quarter == 0 {
			calls, groups = min(calls, 1000), min(groups, 20)
		}
		b := &soaking{rng: rand.New(rand.NewPCG(uint64(quarter), 1))}
		var err error
		for i, left := 0, groups; left > 0 && err == nil; i++ {
			share := min(left, 10)
			left -= share
			err = b.world(s, calls*share/groups, share-1)
		}
		now := s.settled()
		now.Resident = max(now.Resident, b.most)
		s.say("quarter", func(r *report) { r.Failure, r.Now, r.Wrong = describe(err), now, b.wrong })
		if err != nil {
			return
		}
	}
	s.done(nil, "")
}

// soaking is a rank's part; the random numbers are the same on all ranks.
type soaking struct {
	rng   *rand.Rand
	most  int64 // resident bytes
	wrong string
}

// world joins, works, and leaves.
func (b *soaking) world(s *self, calls, groups int) error {
	ctx := context.Background()
	g := s.join(ctx)
	for i := range max(calls, groups) {
		if i < calls {
			if err := b.call(ctx, g); err != nil {
				return err
			}
		}
		if i < groups {
			if err := b.group(ctx, g); err != nil {
				return err
			}
		}
		if i%64 == 0 {
			b.most = max(b.most, resident())
		}
	}
	return g.Close()
}

// group splits the ranks in two, or not, and works in the part.
func (b *soaking) group(ctx context.Context, g *goccl.ProcessGroup) error {
	parts := 1 + b.rng.IntN(2)
	child, err := g.Split(ctx, g.Rank()%parts, 0)
	if err != nil {
		return err
	}
	buf := []int32{1}
	if err := goccl.AllReduce(ctx, child, buf, goccl.Sum); err != nil {
		return err
	}
	b.check(int(buf[0]) == child.Size(), "a sub-group's sum is %v", buf)
	return child.Close()
}

// call is one collective, or an exchange of messages, of a random size.
func (b *soaking) call(ctx context.Context, g *goccl.ProcessGroup) error {
	n := g.Size()
	count := 1 + b.rng.IntN(1<<b.rng.IntN(16))
	src := make([]float32, count)
	for i := range src {
		src[i] = float32(g.Rank())
	}
	switch kind := b.rng.IntN(5); kind {
	case 0:
		return circle(ctx, g, count%1000)
	case 1:
		root := b.rng.IntN(n)
		err := goccl.Broadcast(ctx, g, src, root)
		b.check(err != nil || src[count-1] == float32(root), "broadcast of %d from rank %d: %v", count, root, src[count-1])
		return err
	case 2:
		dst := make([]float32, n*count)
		err := goccl.AllGather(ctx, g, dst, src)
		b.check(err != nil || dst[(n-1)*count] == float32(n-1), "all-gather of %d: %v", count, dst[(n-1)*count])
		return err
	case 3:
		return b.many(ctx, g, count)
	default:
		err := goccl.AllReduce(ctx, g, src, goccl.Sum)
		b.check(err != nil || src[count-1] == float32(n*(n-1)/2), "all-reduce of %d: %v", count, src[count-1])
		return err
	}
}

// many has several calls in flight.
func (b *soaking) many(ctx context.Context, g *goccl.ProcessGroup, count int) error {
	var bufs [4][]int64
	var works [4]*goccl.Work
	for i := range works {
		bufs[i] = make([]int64, count)
		bufs[i][count-1] = int64(g.Rank() + i)
		works[i] = goccl.AllReduceAsync(ctx, g, bufs[i], goccl.Max)
	}
	for i, w := range works {
		if err := w.Wait(ctx); err != nil {
			return err
		}
		b.check(bufs[i][count-1] == int64(g.Size()-1+i), "all-reduce %d of several: %v", i, bufs[i][count-1])
	}
	return nil
}

func (b *soaking) check(right bool, format string, args ...any) {
	if !right && b.wrong == "" {
		b.wrong = fmt.Sprintf(format, args...)
	}
}

// Descriptors, goroutines and memory stay flat over many calls and many groups.
func TestSoak(t *testing.T) {
	const n = 3
	j := startWithin(t, 30*time.Minute, n, plan{Role: "soak", Count: *soakCalls, Groups: *soakGroups})
	var first []report
	for quarter := range 5 {
		reports := j.expectAll(upTo(n), "quarter")
		for i, r := range reports {
			if r.Failure != nil {
				t.Fatalf("rank %d: %s", i, r.Failure.Text)
			}
			t.Logf("quarter %d, rank %d: %d goroutines, %d descriptors, %.1f MiB", quarter, i, r.Now.Goroutines, r.Now.Descriptors, float64(r.Now.Resident)/(1<<20))
			if quarter < 2 {
				continue
			}
			f := first[i].Now
			if !r.Now.within(f) || quarter == 4 && r.Now.Resident > f.Resident+soakGrowth {
				t.Errorf("rank %d: had %+v after the first quarter, %+v after quarter %d", i, f, r.Now, quarter)
			}
		}
		if quarter == 1 {
			first = reports
		}
	}
	j.expectDone(upTo(n))
	if err := j.end(); err != nil {
		t.Error(err)
	}
}
