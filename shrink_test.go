package goccl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccl/goccl/transport"
)

// kill ends a rank as a crash does: without a word.
func kill(gs ...*ProcessGroup) {
	for _, g := range gs {
		if g.base != nil {
			g.base.Close()
		}
		g.t.Close()
	}
}

// shrinkAll lets every group shrink at once; the test closes what comes of it.
func shrinkAll(t *testing.T, ctx context.Context, gs []*ProcessGroup) ([]*ProcessGroup, []error) {
	next := make([]*ProcessGroup, len(gs))
	var mu sync.Mutex
	errs := each(gs, func(g *ProcessGroup) (err error) {
		n, err := g.Shrink(ctx)
		mu.Lock()
		defer mu.Unlock()
		next[slices.Index(gs, g)] = n
		return err
	})
	t.Cleanup(func() {
		each(next, func(g *ProcessGroup) error {
			if g == nil {
				return nil
			}
			return g.Close()
		})
	})
	return next, errs
}

// anyEpoch is for ranks that have called Shrink before and given up. One that comes back may learn that all go on before it hears
// that another is back; that costs an attempt and its number.
const anyEpoch = 0

// mustShrink is shrinkAll that checks the result: who the ranks are in the old group, and that the new one works.
func mustShrink(t *testing.T, gs []*ProcessGroup, epoch uint64, parents []int) []*ProcessGroup {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	next, errs := shrinkAll(t, ctx, gs)
	for i, err := range errs {
		if err != nil {
			t.Fatalf("rank %d: %v", gs[i].Rank(), err)
		}
	}
	if epoch == anyEpoch {
		epoch = max(next[0].Epoch(), gs[0].Epoch()+1)
	}
	for i, g := range next {
		if g.Epoch() != epoch || g.Size() != len(parents) || !slices.Equal(g.ParentRanks(), parents) || parents[g.Rank()] != gs[i].Rank() {
			t.Fatalf("rank %d: epoch %d, rank %d of %d, parents %v; want epoch %d, parents %v",
				gs[i].Rank(), g.Epoch(), g.Rank(), g.Size(), g.ParentRanks(), epoch, parents)
		}
	}
	mustSum(t, next)
	return next
}

// mustSum runs a small and a large all-reduce and a message round the ring.
func mustSum(t *testing.T, gs []*ProcessGroup) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	for i, err := range each(gs, func(g *ProcessGroup) error {
		for _, count := range []int{1, 100_000} {
			x := slices.Repeat([]int32{int32(g.Rank() + 1)}, count)
			if err := AllReduce(ctx, g, x, Sum); err != nil {
				return err
			}
			if want := int32(g.Size() * (g.Size() + 1) / 2); x[0] != want || x[count-1] != want {
				return fmt.Errorf("sum is %d and %d, want %d", x[0], x[count-1], want)
			}
		}
		if err := Send(ctx, g, (g.Rank()+1)%g.Size(), 1, []int8{int8(g.Rank())}); err != nil {
			return err
		}
		from := (g.Rank() + g.Size() - 1) % g.Size()
		if got, err := Recv[int8](ctx, g, from, 1); err != nil || got[0] != int8(from) {
			return fmt.Errorf("got %v from %d: %w", got, from, err)
		}
		return nil
	}) {
		if err != nil {
			t.Fatalf("rank %d: %v", gs[i].Rank(), err)
		}
	}
}

func without(gs []*ProcessGroup, ranks ...int) []*ProcessGroup {
	return slices.DeleteFunc(slices.Clone(gs), func(g *ProcessGroup) bool { return slices.Contains(ranks, g.Rank()) })
}

func TestShrinkAfterDeaths(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w world) {
		for _, c := range []struct {
			n     int
			dead  []int
			left  []int
			count int
		}{
			{3, []int{2}, []int{0, 1}, 100_000},
			{3, []int{0}, []int{1, 2}, 1},
			{5, []int{1, 3}, []int{0, 2, 4}, 100_000},
			{6, []int{0, 5}, []int{1, 2, 3, 4}, 1},
		} {
			gs := groups(t, w, c.n, Config{})
			living := without(gs, c.dead...)
			dead := without(gs, c.left...)
			errs := each(gs, func(g *ProcessGroup) error {
				if slices.Contains(c.dead, g.Rank()) {
					kill(g)
					return errors.New("dead")
				}
				return AllReduce(t.Context(), g, make([]float32, c.count), Sum)
			})
			cause := living[0].Err()
			for r, err := range errs {
				if err == nil {
					t.Fatalf("rank %d of %d goes on without %v", r, c.n, c.dead)
				}
			}
			next := mustShrink(t, living, 1, c.left)
			if err := living[0].Err(); err != cause {
				t.Errorf("first cause was %v, is %v", cause, err)
			}
			each(next, func(g *ProcessGroup) error { return g.Close() })
			each(dead, func(g *ProcessGroup) error { return g.Close() })
		}
	})
}

// TestShrinkOfTheLiving shrinks groups that broke although everybody lives.
func TestShrinkOfTheLiving(t *testing.T) {
	for name, breaks := range map[string]func(ctx context.Context, g *ProcessGroup) error{
		"mismatch": func(ctx context.Context, g *ProcessGroup) error {
			return AllReduce(ctx, g, make([]int32, 1+g.Rank()), Sum)
		},
		"cancel": func(ctx context.Context, g *ProcessGroup) error {
			ctx, cancel := context.WithCancel(ctx)
			if g.Rank() == 1 {
				cancel()
			}
			defer cancel()
			return g.Barrier(ctx)
		},
		"stall": func(ctx context.Context, g *ProcessGroup) error {
			if g.Rank() == 1 {
				return verdict(g)
			}
			ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			return g.Barrier(ctx)
		},
		"abort": func(ctx context.Context, g *ProcessGroup) error {
			if g.Rank() == 1 {
				g.Abort(errors.New("enough"))
			}
			return verdict(g)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(t *testing.T, w world) {
				gs := groups(t, w, 3, Config{})
				for r, err := range each(gs, func(g *ProcessGroup) error { return breaks(t.Context(), g) }) {
					if err == nil {
						err = verdict(gs[r])
					}
					if err == nil {
						t.Fatalf("rank %d does not fail", r)
					}
				}
				next := mustShrink(t, gs, 1, []int{0, 1, 2})
				each(next, func(g *ProcessGroup) error { return g.Close() })
			})
		})
	}
}

// TestShrinkChain loses one rank after another, each from the group that came of the loss before, down to two.
func TestShrinkChain(t *testing.T) {
	overWorlds(t, func(t *testing.T, w world) {
		gs := groups(t, w, 6, Config{})
		for epoch := uint64(1); len(gs) > 2; epoch++ {
			dead := int(epoch) % len(gs)
			kill(gs[dead])
			gs[dead].Close()
			living := without(gs, dead)
			var ranks []int
			for _, g := range living {
				ranks = append(ranks, g.Rank())
				if err := verdict(g); err == nil {
					t.Fatal("not broken")
				}
			}
			next := mustShrink(t, living, epoch, ranks)
			slices.SortFunc(next, func(a, b *ProcessGroup) int { return a.Rank() - b.Rank() })
			for _, g := range living {
				mustBeRetired(t, g)
				if err := g.Barrier(t.Context()); !strings.Contains(err.Error(), fmt.Sprintf("the group of epoch %d goes on", epoch)) {
					t.Errorf("rank %d, a collective on the retired group: %v", g.Rank(), err)
				}
			}
			gs = next
		}
	})
}

func mustBeRetired(t *testing.T, g *ProcessGroup) {
	t.Helper()
	if err := g.Barrier(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("rank %d, a collective on the retired group: %v, want net.ErrClosed", g.Rank(), err)
	}
	if _, err := g.Shrink(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("rank %d, Shrink of the retired group: %v, want net.ErrClosed", g.Rank(), err)
	}
	if err := g.Close(); err != nil {
		t.Errorf("rank %d, Close of the retired group: %v", g.Rank(), err)
	}
}

// TestShrinkTogether lets two ranks die while the others shrink.
func TestShrinkTogether(t *testing.T) {
	overWorlds(t, func(t *testing.T, w world) {
		for round := range 6 {
			gs := groups(t, w, 7, Config{})
			kill(gs[6])
			for _, g := range gs[:6] {
				verdict(g)
			}
			var next []*ProcessGroup
			var errs []error
			var wg sync.WaitGroup
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
				defer cancel()
				next, errs = shrinkAll(t, ctx, gs[:6])
			})
			for range round * 100 {
				gs[0].Err() // takes a little
			}
			kill(gs[0])
			kill(gs[3])
			wg.Wait()
			// Those that died may have come to be members before; then the next group breaks, and its survivors shrink again.
			var living []*ProcessGroup
			for i, err := range errs {
				if i == 0 || i == 3 {
					if next[i] != nil {
						kill(next[i])
					}
					continue
				}
				if err != nil {
					t.Fatalf("rank %d: %v", i, err)
				}
				living = append(living, next[i])
			}
			if size := living[0].Size(); size > 4 {
				var ranks []int
				for _, g := range living {
					verdict(g)
					ranks = append(ranks, g.Rank())
				}
				living = mustShrink(t, living, living[0].Epoch()+1, ranks)
			} else {
				mustSum(t, living)
			}
			if len(living) != 4 || living[0].Size() != 4 {
				t.Fatalf("%d survivors are in a group of %d", len(living), living[0].Size())
			}
		}
	})
}

func TestShrinkWithoutMajority(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w world) {
		for _, n := range []int{2, 4} {
			for _, minority := range []bool{false, true} {
				gs := groups(t, w, n, Config{ShrinkMinority: minority})
				for _, g := range gs[n/2:] {
					kill(g)
				}
				living := gs[:n/2]
				ranks := []int{0, 1}[:n/2]
				for _, g := range living {
					verdict(g)
				}
				if minority {
					mustShrink(t, living, 1, ranks)
					continue
				}
				_, errs := shrinkAll(t, t.Context(), living)
				for r, err := range errs {
					if !errors.Is(err, ErrNoMajority) {
						t.Errorf("rank %d of %d: %v, want ErrNoMajority", r, n, err)
					}
				}
			}
		}
	})
}

func TestShrinkOfWhoIsIdle(t *testing.T) {
	overWorlds(t, func(t *testing.T, w world) {
		gs := groups(t, w, 3, Config{})
		if err := gs[1].Close(); err != nil { // in order: nothing is broken by that
			t.Fatal(err)
		}
		living := without(gs, 1)
		for _, g := range living {
			for !gone(g, 1) {
				time.Sleep(time.Millisecond)
			}
			if err := g.Err(); err != nil {
				t.Fatal(err)
			}
		}
		mustShrink(t, living, 1, []int{0, 2})
	})
}

func gone(g *ProcessGroup, rank int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.health.gone(rank)
}

// TestShrinkComesLate lets the ranks call Shrink one by one, and one of them never.
func TestShrinkComesLate(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w world) {
		gs := groups(t, w, 4, Config{})
		kill(gs[3])
		for _, g := range gs[:3] {
			verdict(g)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, errs := shrinkAll(t, ctx, gs[1:3])
		for i, err := range errs {
			var stall *StallError
			if !errors.As(err, &stall) || !slices.Equal(stall.Missing, []int{0}) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("rank %d: %v, want a StallError about rank 0", i+1, err)
			}
		}
		next := mustShrink(t, gs[:3], anyEpoch, []int{0, 1, 2}) // the same ranks can try again
		each(next, func(g *ProcessGroup) error { return g.Close() })
	})
}

// TestShrinkGivenUp lets one rank give up: the others go on without it, and it learns so.
func TestShrinkGivenUp(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w world) {
		gs := groups(t, w, 4, Config{})
		kill(gs[0])
		for _, g := range gs[1:] {
			verdict(g)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("changed my mind")
		cancel(why)
		if _, err := gs[3].Shrink(ctx); !errors.Is(err, why) {
			t.Fatalf("cancelled: %v, want its cause", err)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		_, errs := shrinkAll(t, ctx, gs[1:3])
		for i, err := range errs {
			var stall *StallError
			if !errors.As(err, &stall) || !slices.Contains(stall.Missing, 3) { // and whoever of the two gave up first
				t.Errorf("rank %d: %v, want a StallError about rank 3", i+1, err)
			}
		}
		next := mustShrink(t, gs[1:], anyEpoch, []int{1, 2, 3})
		each(next, func(g *ProcessGroup) error { return g.Close() })
	})
}

func TestShrinkExcludes(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w world) {
		gs := groups(t, w, 5, Config{})
		kill(gs[0])
		for _, g := range gs[1:] {
			verdict(g)
		}
		for _, g := range gs[1:4] { // as if nothing had been heard of rank 4 for too long
			g.mu.Lock()
			g.health.peers[4].silent = true
			g.health.departures++
			g.settle()
		}
		mustShrink(t, gs[1:4], 1, []int{1, 2, 3})
		_, err := gs[4].Shrink(t.Context())
		var excluded *ExcludedError
		if !errors.As(err, &excluded) || excluded.Epoch != 1 || !slices.Equal(excluded.Ranks, []int{1, 2, 3}) {
			t.Errorf("%v, want an ExcludedError: epoch 1 with ranks 1, 2 and 3", err)
		}
	})
}

func TestShrinkArguments(t *testing.T) {
	overWorlds(t, func(t *testing.T, w world) {
		gs := groups(t, w, 3, Config{})
		if _, err := gs[0].Shrink(t.Context()); !errors.Is(err, ErrArgument) {
			t.Errorf("a group that works: %v, want ErrArgument", err)
		}
		mustSum(t, gs)
		kill(gs[2])
		verdict(gs[0])
		done := make(chan error)
		go func() {
			_, err := gs[0].Shrink(t.Context())
			done <- err
		}()
		for running := false; !running; {
			gs[0].mu.Lock()
			running = gs[0].shrink.done != nil
			gs[0].mu.Unlock()
		}
		if _, err := gs[0].Shrink(t.Context()); !errors.Is(err, ErrArgument) {
			t.Errorf("a second call: %v, want ErrArgument", err)
		}
		if err := gs[0].Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Errorf("closed meanwhile: %v, want net.ErrClosed", err)
		}
		if _, err := gs[0].Shrink(t.Context()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("closed before: %v, want net.ErrClosed", err)
		}
		if _, err := gs[2].Shrink(t.Context()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("its transport was closed: %v, want net.ErrClosed", err)
		}
	})
}

func TestShrinkOfOne(t *testing.T) {
	for name, w := range map[string]world{"mem": memWorld, "plain": plainWorld} {
		g := groups(t, w, 1, Config{})[0]
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		g.Barrier(ctx)
		next := mustShrink(t, []*ProcessGroup{g}, 1, []int{0})
		if next[0].Err() != nil {
			t.Errorf("%s: %v", name, next[0].Err())
		}
	}
}

// TestShrinkEndsWhatHungOnTheGroup looks at messages and sub-groups of a group that is retired.
func TestShrinkEndsWhatHungOnTheGroup(t *testing.T) {
	overWorlds(t, func(t *testing.T, w world) {
		gs := groups(t, w, 3, Config{})
		subs := make([]*ProcessGroup, 3)
		if err := errors.Join(each(gs, func(g *ProcessGroup) (err error) {
			subs[g.Rank()], err = g.Split(t.Context(), 0, 0)
			return err
		})...); err != nil {
			t.Fatal(err)
		}
		pending := make(chan error)
		go func() {
			_, err := Recv[int8](t.Context(), gs[0], 1, 7)
			pending <- err
		}()
		kill(gs[2])
		for _, g := range gs[:2] {
			verdict(g)
		}
		mustShrink(t, gs[:2], 1, []int{0, 1})
		if err := <-pending; err == nil {
			t.Error("a receive goes on")
		}
		if err := subs[0].Barrier(t.Context()); err == nil {
			t.Error("a sub-group of the retired group works")
		}
	})
}

// closeCounter counts how often the transport under plain groups is closed.
type closeCounter struct {
	transport.Transport
	closed int
}

func (c *closeCounter) Close() error {
	c.closed++
	return c.Transport.Close()
}

func TestShrinkKeepsAPlainTransport(t *testing.T) {
	ts := plainWorld(t, 3)
	counters := make([]*closeCounter, 3)
	gs := make([]*ProcessGroup, 3)
	for r := range gs {
		counters[r] = &closeCounter{Transport: ts[r]}
		gs[r], _ = New(counters[r], Config{})
	}
	for epoch := range uint64(3) {
		gs[0].Abort(errors.New("again"))
		for _, g := range gs {
			verdict(g)
		}
		gs = mustShrink(t, gs, epoch+1, []int{0, 1, 2})
	}
	each(gs, func(g *ProcessGroup) error { return g.Close() })
	for r, c := range counters {
		if c.closed != 1 {
			t.Errorf("rank %d's transport was closed %d times", r, c.closed)
		}
	}
}
