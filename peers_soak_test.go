package goccl

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/mem"
)

var soak = flag.Duration("soak", 0, "how long TestPeers59_Soak goes on; 0: 3 s, 1 s with -short")

// stuckAfter is how long one round of the soak may take before it counts as a stall.
const stuckAfter = time.Minute

// Scenario 59: a stall appears only at five ranks, or with rare timing (exo#2219, mlx#4475). Worlds of 2 to 9 ranks whose pipes
// move random portions make random calls of random sizes on 1 to 4 processors. Go on for longer with
//
//	go test -run TestPeers59_Soak -soak 1h -timeout 0 .
func TestPeers59_Soak(t *testing.T) {
	length := *soak
	switch {
	case length == 0 && testing.Short():
		length = time.Second
	case length == 0:
		length = 3 * time.Second
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	rounds := 0
	for end := time.Now().Add(length); time.Now().Before(end) && !t.Failed(); rounds++ {
		soakRound(t, rand.Uint64())
	}
	t.Logf("%d rounds", rounds)
}

// soakRound is one world's life. The seed decides everything but the timing.
func soakRound(t *testing.T, seed uint64) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 59))
	n := 2 + random.IntN(8)
	runtime.GOMAXPROCS(1 + random.IntN(4))
	options := mem.Options{Buffer: 100 + random.IntN(10_000), Jitter: seed | 1}
	a := everyAlgorithm[random.IntN(len(everyAlgorithm))]
	w := func(_ *testing.T, n int) []transport.Transport { return mem.NewWorldWith(n, options) }
	gs := groups(t, w, n, Config{Algorithm: a})
	what := fmt.Sprintf("seed %d: %d ranks, %v, %+v, GOMAXPROCS %d", seed, n, a, options, runtime.GOMAXPROCS(0))
	watchdog := time.AfterFunc(stuckAfter, func() {
		t.Errorf("%s: stuck\n%s", what, stuck(gs))
		gs[0].Abort(errors.New("stuck"))
	})
	defer watchdog.Stop()
	for r, err := range each(gs, func(g *ProcessGroup) error { return soakProgram(t.Context(), g, seed) }) {
		if err != nil {
			t.Errorf("%s: rank %d: %v", what, r, err)
		}
	}
	for r, err := range each(gs, func(g *ProcessGroup) error { return g.Close() }) {
		if err != nil {
			t.Errorf("%s: rank %d leaves: %v", what, r, err)
		}
	}
}

// stuck says which call each rank is in, and where its goroutines are.
func stuck(gs []*ProcessGroup) string {
	var b strings.Builder
	for r, g := range gs {
		g.mu.Lock()
		fmt.Fprintf(&b, "rank %d: %s\n", r, g.health.mine.describe())
		g.mu.Unlock()
	}
	stacks := make([]byte, 1<<20)
	b.Write(stacks[:runtime.Stack(stacks, true)])
	return b.String()
}

// soakProgram makes 30 calls; the seed is the same on all ranks, and so are the calls.
func soakProgram(ctx context.Context, g *ProcessGroup, seed uint64) error {
	random := rand.New(rand.NewPCG(seed, 60))
	for i := range 30 {
		count := random.IntN(40)
		if random.IntN(4) == 0 {
			count = random.IntN(20_000)
		}
		root, kind := random.IntN(g.Size()), random.IntN(len(soakCalls))
		if err := soakCalls[kind](ctx, g, count, root); err != nil {
			return fmt.Errorf("call %d, kind %d with %d elements, root %d: %w", i, kind, count, root, err)
		}
	}
	return nil
}

// soakCalls check what they get, as far as one look at each element tells.
var soakCalls = []func(ctx context.Context, g *ProcessGroup, count, root int) error{
	func(ctx context.Context, g *ProcessGroup, count, _ int) error {
		x := slices.Repeat([]int32{int32(g.Rank())}, count)
		return same(AllReduce(ctx, g, x, Sum), x, int32(g.Size()*(g.Size()-1)/2))
	},
	func(ctx context.Context, g *ProcessGroup, count, _ int) error {
		var works []*Work
		bufs := [][]float32{make([]float32, count), make([]float32, 3), make([]float32, count/2)}
		for i, b := range bufs {
			for k := range b {
				b[k] = float32(i)
			}
			works = append(works, AllReduceAsync(ctx, g, b, Mean))
		}
		for i, w := range works {
			if err := same(w.Wait(ctx), bufs[i], float32(i)); err != nil {
				return err
			}
		}
		return nil
	},
	func(ctx context.Context, g *ProcessGroup, count, _ int) error {
		src, dst := slices.Repeat([]float64{1}, count*g.Size()), make([]float64, count)
		return same(ReduceScatter(ctx, g, dst, src, Sum), dst, float64(g.Size()))
	},
	func(ctx context.Context, g *ProcessGroup, count, _ int) error {
		dst, src := make([]uint8, count*g.Size()), slices.Repeat([]uint8{uint8(g.Rank())}, count)
		err := AllGather(ctx, g, dst, src)
		for r := range g.Size() {
			err = errors.Join(err, same(nil, dst[r*count:(r+1)*count], uint8(r)))
		}
		return err
	},
	func(ctx context.Context, g *ProcessGroup, count, root int) error {
		x := slices.Repeat([]int64{int64(g.Rank())}, count)
		return same(Broadcast(ctx, g, x, root), x, int64(root))
	},
	func(ctx context.Context, g *ProcessGroup, count, root int) error {
		src, dst := slices.Repeat([]float32{2}, count), make([]float32, count)
		err := Reduce(ctx, g, dst, src, Sum, root)
		if g.Rank() == root {
			return same(err, dst, float32(2*g.Size()))
		}
		return same(err, dst, 0)
	},
	func(ctx context.Context, g *ProcessGroup, count, root int) error {
		all, mine := make([]int32, count*g.Size()), make([]int32, count)
		err := Scatter(ctx, g, mine, slices.Repeat([]int32{9}, len(all)), root)
		return errors.Join(same(err, mine, 9), Gather(ctx, g, all, mine, root))
	},
	func(ctx context.Context, g *ProcessGroup, count, _ int) error {
		dst, src := make([]int8, count*g.Size()), slices.Repeat([]int8{int8(g.Rank())}, count*g.Size())
		err := AllToAll(ctx, g, dst, src)
		for r := range g.Size() {
			err = errors.Join(err, same(nil, dst[r*count:(r+1)*count], int8(r)))
		}
		return err
	},
	func(ctx context.Context, g *ProcessGroup, count, root int) error {
		next, prev := (g.Rank()+1)%g.Size(), (g.Rank()+g.Size()-1)%g.Size()
		if err := Send(ctx, g, next, uint32(root), slices.Repeat([]int32{int32(g.Rank())}, count)); err != nil {
			return err
		}
		got, err := Recv[int32](ctx, g, prev, uint32(root))
		if err == nil && len(got) != count {
			err = fmt.Errorf("a message of %d elements", len(got))
		}
		return same(err, got, int32(prev))
	},
	func(ctx context.Context, g *ProcessGroup, _, _ int) error { return g.Barrier(ctx) },
	func(ctx context.Context, g *ProcessGroup, count, root int) error {
		child, err := g.Split(ctx, g.Rank()%2, root)
		if err != nil {
			return err
		}
		x := slices.Repeat([]int32{1}, count)
		return errors.Join(same(AllReduce(ctx, child, x, Sum), x, int32(child.Size())), child.Close())
	},
}

// same checks that a call went well and that all elements are v.
func same[T comparable](err error, got []T, v T) error {
	if err != nil {
		return err
	}
	for i, x := range got {
		if x != v {
			return fmt.Errorf("element %d of %d is %v, want %v", i, len(got), x, v)
		}
	}
	return nil
}
