package goccl

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccl/goccl/dtype"
	"github.com/goccl/goccl/transport/mem"
)

// Every collective once, with values that show rank order. Package ring's tests hold the full matrix against the oracle.
func TestCollectives(t *testing.T) {
	overWorlds(t, func(t *testing.T, w world) {
		for n := 1; n <= 5; n++ {
			runRanks(t, w, n, everyCollective)
		}
	})
}

func everyCollective(ctx context.Context, g *ProcessGroup) error {
	n, r := g.Size(), g.Rank()
	sum := int32(n * (n - 1) / 2)
	var errs []error
	check := func(what string, err error, got, want []int32) {
		if err != nil || !slices.Equal(got, want) {
			errs = append(errs, fmt.Errorf("%s: got %v, %v, want %v", what, got, err, want))
		}
	}
	ranks := func(scale int) (all []int32) { // 0, scale, 2 scale, …
		for i := range n {
			all = append(all, int32(i*scale))
		}
		return all
	}
	counts := make([]int, n)
	var ragged []int32 // rank i contributes i elements of value i
	for i := range counts {
		counts[i] = i
		ragged = append(ragged, slices.Repeat([]int32{int32(i)}, i)...)
	}
	root := n / 2

	buf := []int32{int32(r), int32(-r)}
	check("AllReduce", AllReduce(ctx, g, buf, Sum), buf, []int32{sum, -sum})

	src, dst := []int32{int32(r)}, []int32{7}
	check("AllReduceTo", AllReduceTo(ctx, g, dst, src, Max), dst, []int32{int32(n - 1)})
	check("AllReduceTo's src", nil, src, []int32{int32(r)})

	all := ranks(10)
	check("ReduceScatter", ReduceScatter(ctx, g, dst, all, Sum), dst, []int32{int32(10 * r * n)})
	check("ReduceScatter's src", nil, all, ranks(10))

	part := make([]int32, r)
	want := slices.Repeat([]int32{int32(r * n)}, r)
	check("ReduceScatterV", ReduceScatterV(ctx, g, part, ragged, counts, Sum), part, want)

	all = make([]int32, n)
	check("AllGather", AllGather(ctx, g, all, src), all, ranks(1))
	allV := make([]int32, len(ragged))
	check("AllGatherV", AllGatherV(ctx, g, allV, slices.Repeat([]int32{int32(r)}, r), counts), allV, ragged)

	buf = []int32{int32(r), int32(r)}
	check("Broadcast", Broadcast(ctx, g, buf, root), buf, []int32{int32(root), int32(root)})

	dst, want = []int32{-1}, []int32{-1}
	if r == root {
		want = []int32{sum}
	}
	check("Reduce", Reduce(ctx, g, dst, src, Sum, root), dst, want)

	all, want = make([]int32, n), make([]int32, n)
	if r == root {
		want = ranks(1)
	}
	check("Gather", Gather(ctx, g, all, src, root), all, want)
	check("Scatter", Scatter(ctx, g, dst, ranks(3), root), dst, []int32{int32(3 * r)})

	for i := range all {
		all[i] = int32(100*r + i)
	}
	got := make([]int32, n)
	want = nil
	for i := range n {
		want = append(want, int32(100*i+r))
	}
	check("AllToAll", AllToAll(ctx, g, got, all), got, want)

	recv, from := make([]int32, n*r), make([]int, n) // rank i sends j elements to rank j
	want = nil
	for i := range from {
		from[i] = r
		want = append(want, slices.Repeat([]int32{int32(i)}, r)...)
	}
	check("AllToAllV", AllToAllV(ctx, g, recv, from, slices.Repeat([]int32{int32(r)}, len(ragged)), counts), recv, want)

	var none []int32
	check("AllReduce of nothing", AllReduce(ctx, g, none, Sum), none, nil)
	errs = append(errs, g.Barrier(ctx))
	return errors.Join(errs...)
}

func TestAcceptedNumbers(t *testing.T) {
	overWorlds(t, func(t *testing.T, w world) {
		runRanks(t, w, 4, func(ctx context.Context, g *ProcessGroup) error {
			var errs []error
			h := slices.Repeat([]dtype.Float16{dtype.Float16(0x7753)}, 64) // 30000
			errs = append(errs, AllReduce(ctx, g, h, Mean))
			for _, v := range h {
				if v != 0x7753 {
					return fmt.Errorf("f16 mean of 4 × 30000 is %v", v)
				}
			}
			b := slices.Repeat([]dtype.BFloat16{dtype.BFloat16FromFloat32([]float32{256, 1, 1, 1}[g.Rank()])}, 64)
			errs = append(errs, AllReduce(ctx, g, b, Sum))
			for _, v := range b {
				if v.Float32() != 260 {
					return fmt.Errorf("bf16 sum of 256, 1, 1, 1 is %v", v.Float32())
				}
			}
			f := []float32{[]float32{1e8, -1e8, 4, 4}[g.Rank()]}
			errs = append(errs, AllReduce(ctx, g, f, Sum))
			if f[0] != 8 {
				return fmt.Errorf("f32 sum of 1e8, -1e8, 4, 4 is %v", f[0])
			}
			i := []int64{(1<<53 + 1) * int64((4-g.Rank())/4)}
			errs = append(errs, AllReduce(ctx, g, i, Sum))
			if i[0] != 1<<53+1 {
				return fmt.Errorf("i64 sum is %v", i[0])
			}
			return errors.Join(errs...)
		})
	})
}

func TestAccessors(t *testing.T) {
	runRanks(t, memWorld, 3, func(ctx context.Context, g *ProcessGroup) error {
		if g.Size() != 3 || g.Rank() != g.Transport().Rank() || g.IsLeader() != (g.Rank() == 0) || g.ParentRanks() != nil || g.Err() != nil {
			return fmt.Errorf("rank %d of %d, leader %v, parents %v, err %v", g.Rank(), g.Size(), g.IsLeader(), g.ParentRanks(), g.Err())
		}
		return nil
	})
}

func TestNewRefuses(t *testing.T) {
	if _, err := New(nil, Config{}); !errors.Is(err, ErrArgument) {
		t.Errorf("nil transport: %v", err)
	}
	if _, err := New(mem.Solo(), Config{Algorithm: 77}); !errors.Is(err, ErrArgument) {
		t.Errorf("no such algorithm: %v", err)
	}
	for _, cfg := range []Config{{Heartbeat: 1}, {Heartbeat: minHeartbeat - 1}, {Algorithm: 99}} {
		if _, err := New(mem.Solo(), cfg); !errors.Is(err, ErrArgument) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	g, err := New(mem.Solo(), Config{Heartbeat: -1, StallWarning: -1, Timeout: -1, MailboxBytes: -1})
	if err != nil {
		t.Fatalf("everything off: %v", err)
	}
	g.Close()
}

// An argument error sends nothing, takes no place in the order and leaves the group usable.
func TestArgumentErrors(t *testing.T) {
	overWorlds(t, func(t *testing.T, w world) {
		runRanks(t, w, 2, func(ctx context.Context, g *ProcessGroup) error {
			f := make([]float32, 4)
			if g.Rank() == 1 { // only one rank errs
				for what, err := range map[string]error{
					"root":           Broadcast(ctx, g, f, 2),
					"negative root":  Reduce(ctx, g, f, make([]float32, 4), Sum, -1),
					"gather length":  AllGather(ctx, g, f, make([]float32, 3)),
					"scatter length": ReduceScatter(ctx, g, f[:1], f, Sum),
					"counts":         AllGatherV(ctx, g, f, f[:1], []int{1}),
					"overlap":        AllReduceTo(ctx, g, f[:3], f[1:], Sum),
					"op":             AllReduce(ctx, g, f, ReduceOp(99)),
					"async":          AllReduceAsync(ctx, g, f, ReduceOp(99)).Wait(ctx),
					"peer":           Send(ctx, g, 2, 0, f),
					"tag":            Send(ctx, g, 0, TagReservedBase, f),
					"recv tag":       func() error { _, err := Recv[float32](ctx, g, 0, TagReservedBase+1); return err }(),
					"subgroup":       func() error { _, err := g.Subgroup(ctx, []int{0}); return err }(),
					"twice":          func() error { _, err := g.Subgroup(ctx, []int{1, 1}); return err }(),
				} {
					if !errors.Is(err, ErrArgument) {
						return fmt.Errorf("%s: %v, want ErrArgument", what, err)
					}
				}
				if err := AllReduce(ctx, g, f, BitAnd); !errors.Is(err, errors.ErrUnsupported) {
					return fmt.Errorf("bit operation on floats: %v", err)
				}
				if err := g.AllReduce(ctx, dtype.Device(dtype.F32, 4096, 4, 0), Sum); !errors.Is(err, errors.ErrUnsupported) {
					return fmt.Errorf("device memory: %v", err)
				}
			}
			return AllReduce(ctx, g, f, Sum)
		})
	})
}

func TestAsyncManyInFlight(t *testing.T) {
	rounds := 300
	if testing.Short() {
		rounds = 20
	}
	overWorlds(t, func(t *testing.T, w world) {
		runRanks(t, w, 4, func(ctx context.Context, g *ProcessGroup) error {
			random := rand.New(rand.NewPCG(1, 2)) // the same on all ranks
			for round := range rounds {
				var works []*Work
				var bufs [][]float32
				for i := range 64 {
					buf := slices.Repeat([]float32{float32(i + g.Rank())}, random.IntN(300))
					bufs = append(bufs, buf)
					works = append(works, AllReduceAsync(ctx, g, buf, Sum))
				}
				for i, work := range works {
					if err := work.Wait(ctx); err != nil {
						return err
					}
					for _, v := range bufs[i] {
						if v != float32(4*i+6) {
							return fmt.Errorf("round %d, call %d: got %v, want %d", round, i, v, 4*i+6)
						}
					}
				}
			}
			return nil
		})
	})
}

// A synchronous call takes its place behind the asynchronous ones.
func TestSyncAfterAsync(t *testing.T) {
	runRanks(t, memWorld, 3, func(ctx context.Context, g *ProcessGroup) error {
		for range 200 {
			x := []int32{1}
			w := AllReduceAsync(ctx, g, x, Sum)
			y := []int32{1}
			if err := AllReduce(ctx, g, y, Sum); err != nil {
				return err
			}
			select {
			case <-w.Done():
			default:
				return errors.New("a synchronous call returned before an earlier asynchronous one")
			}
			if w.Err() != nil || x[0] != 3 || y[0] != 3 {
				return fmt.Errorf("got %v, %v, %v", x, y, w.Err())
			}
		}
		return nil
	})
}

// The end of Wait's context ends only the wait.
func TestWaitContext(t *testing.T) {
	gs := groups(t, memWorld, 2, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	x, y := []int32{1}, []int32{2}
	w := AllReduceAsync(t.Context(), gs[0], x, Sum)
	if err := w.Wait(ctx); !errors.Is(err, context.Canceled) || w.Err() != nil {
		t.Errorf("cancelled wait: %v", err)
	}
	if err := AllReduce(t.Context(), gs[1], y, Sum); err != nil {
		t.Fatal(err)
	}
	if err := w.Wait(t.Context()); err != nil || x[0] != 3 {
		t.Errorf("got %v, %v", x, err)
	}
}

func TestOppositeOrderOnTwoGroups(t *testing.T) {
	overWorlds(t, func(t *testing.T, w world) {
		runRanks(t, w, 2, func(ctx context.Context, g *ProcessGroup) error {
			other, err := g.Split(ctx, 0, 0)
			if err != nil {
				return err
			}
			first, second := g, other
			if g.Rank() == 1 {
				first, second = other, g
			}
			errs := make(chan error, 2)
			big := func(g *ProcessGroup) {
				buf := make([]float32, 1<<20)
				errs <- AllReduce(ctx, g, buf, Sum)
			}
			started := make(chan bool)
			go func() { started <- true; big(first) }()
			<-started
			go big(second)
			return errors.Join(<-errs, <-errs, other.Close())
		})
	})
}

func TestSplit(t *testing.T) {
	overWorlds(t, func(t *testing.T, w world) {
		runRanks(t, w, 5, func(ctx context.Context, g *ProcessGroup) error {
			color := g.Rank() % 2
			if g.Rank() == 4 {
				color = -1
			}
			child, err := g.Split(ctx, color, -g.Rank()) // reversed
			if err != nil {
				return err
			}
			if color < 0 {
				if child != nil {
					return errors.New("a rank without colour got a group")
				}
				return g.Barrier(ctx)
			}
			if want := []int{2 + color, color}; !slices.Equal(child.ParentRanks(), want) {
				return fmt.Errorf("parent ranks %v, want %v", child.ParentRanks(), want)
			}
			x := []int32{int32(g.Rank())}
			if err := Broadcast(ctx, child, x, 0); err != nil || x[0] != int32(2+color) {
				return fmt.Errorf("broadcast in the child: %v, %v", x, err)
			}
			grand, err := child.Split(ctx, 0, child.Rank())
			if err != nil {
				return err
			}
			if err := AllReduce(ctx, grand, x, Sum); err != nil || x[0] != int32(2*(2+color)) {
				return fmt.Errorf("all-reduce in the grandchild: %v, %v", x, err)
			}
			to := []int32{int32(g.Rank())}
			if err := Send(ctx, grand, 1-grand.Rank(), 3, to); err != nil {
				return err
			}
			if got, err := Recv[int32](ctx, grand, 1-grand.Rank(), 3); err != nil || got[0] != int32(2+2*color)-to[0] {
				return fmt.Errorf("recv in the grandchild: %v, %v", got, err)
			}
			if err := child.Close(); err != nil {
				return err
			}
			if err := grand.Barrier(ctx); !errors.Is(err, net.ErrClosed) {
				return fmt.Errorf("grandchild after its parent's Close: %v", err)
			}
			return g.Barrier(ctx)
		})
	})
}

func TestSubgroupNeedsOnlyItsMembers(t *testing.T) {
	overWorlds(t, func(t *testing.T, w world) {
		runRanks(t, w, 4, func(ctx context.Context, g *ProcessGroup) error {
			if g.Rank() == 1 {
				return g.Barrier(ctx)
			}
			for range 3 {
				sub, err := g.Subgroup(ctx, []int{3, 0, 2})
				if err != nil {
					return err
				}
				x := []int64{int64(g.Rank())}
				if err := AllReduce(ctx, sub, x, Sum); err != nil || x[0] != 5 {
					return fmt.Errorf("got %v, %v", x, err)
				}
				if err := sub.Close(); err != nil {
					return err
				}
			}
			return g.Barrier(ctx)
		})
	})
}

// A member that cannot open a sub-group aborts it on the others.
func TestSubgroupFailureIsTold(t *testing.T) {
	overWorlds(t, func(t *testing.T, w world) {
		runRanks(t, w, 3, func(ctx context.Context, g *ProcessGroup) error {
			subCtx := ctx
			if g.Rank() == 2 {
				cancelled, cancel := context.WithCancelCause(ctx)
				cancel(errors.New("no more files"))
				subCtx = cancelled
			}
			_, err := g.Subgroup(subCtx, []int{0, 1, 2})
			if err == nil || !strings.Contains(err.Error(), "no more files") {
				return fmt.Errorf("got %v", err)
			}
			return g.Barrier(ctx) // the parent stays usable
		})
	})
}

func TestClose(t *testing.T) {
	overWorlds(t, func(t *testing.T, w world) {
		runRanks(t, w, 3, func(ctx context.Context, g *ProcessGroup) error {
			if err := g.Barrier(ctx); err != nil {
				return err
			}
			begin := time.Now()
			if err := errors.Join(g.Close(), g.Close()); err != nil {
				return err
			}
			if d := time.Since(begin); d > 5*time.Second {
				return fmt.Errorf("Close took %v", d)
			}
			_, recv := Recv[int8](ctx, g, 0, 0)
			_, split := g.Split(ctx, 0, 0)
			_, sub := g.Subgroup(ctx, []int{g.Rank()})
			for what, err := range map[string]error{
				"Barrier": g.Barrier(ctx), "Send": Send(ctx, g, 0, 0, []int8{1}), "Recv": recv, "Split": split, "Subgroup": sub,
				"async": AllReduceAsync(ctx, g, []int8{1}, Sum).Wait(ctx),
			} {
				if !errors.Is(err, net.ErrClosed) {
					return fmt.Errorf("%s after Close: %v", what, err)
				}
			}
			g.Abort(errors.New("too late"))
			return nil
		})
	})
}

// Close lets submitted calls come through.
func TestCloseFlushes(t *testing.T) {
	overWorlds(t, func(t *testing.T, w world) {
		runRanks(t, w, 3, func(ctx context.Context, g *ProcessGroup) error {
			var works []*Work
			for range 20 {
				works = append(works, AllReduceAsync(ctx, g, make([]float64, 1000), Sum))
			}
			if err := g.Close(); err != nil {
				return err
			}
			for _, w := range works {
				if err := w.Wait(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

func TestPlan(t *testing.T) {
	gs := groups(t, memWorld, 4, Config{})
	for _, c := range []struct {
		op    string
		t     dtype.Type
		count int
		want  string
	}{
		{"all-reduce", dtype.F32, 1 << 24, ": ring ("},
		{"all-reduce", dtype.BF16, 1 << 24, ": direct ("},
		{"all-reduce mean", dtype.I8, 1 << 24, ": direct ("},
		{"all-reduce", dtype.F32, 1, ": doubling ("},
		{"barrier", dtype.U8, 0, ": doubling ("},
		{"nonsense", dtype.F32, 1, "unknown operation"},
		{"all-reduce", dtype.Type(0), 1, "no such buffer"},
		{"all-reduce", dtype.F64, math.MaxInt / 2, "no such buffer"},
	} {
		if got := gs[0].Plan(c.op, c.t, c.count); !strings.Contains(got, c.want) {
			t.Errorf("Plan(%q, %v, %d) = %q, want %q in it", c.op, c.t, c.count, got, c.want)
		}
	}
}

func TestForcedAlgorithm(t *testing.T) {
	for _, a := range []Algorithm{AlgorithmRing, AlgorithmDirect, AlgorithmOneShot, AlgorithmDoubling, AlgorithmChain} {
		gs := groups(t, memWorld, 3, Config{Algorithm: a})
		for r, err := range each(gs, func(g *ProcessGroup) error { return everyCollective(t.Context(), g) }) {
			if err != nil {
				t.Errorf("%v, rank %d: %v", a, r, err)
			}
		}
	}
}

// Collectives, asynchronous and not, and messages both ways run on one group at once.
func TestEverythingAtOnce(t *testing.T) {
	rounds := 100
	if testing.Short() {
		rounds = 20
	}
	overWorlds(t, func(t *testing.T, w world) {
		runRanks(t, w, 3, func(ctx context.Context, g *ProcessGroup) error {
			errs := make(chan error)
			next, prev := (g.Rank()+1)%3, (g.Rank()+2)%3
			go func() {
				var err error
				for i := 0; i < rounds && err == nil; i++ {
					x := []float32{1}
					work := AllReduceAsync(ctx, g, x, Sum)
					y := slices.Repeat([]int64{int64(i)}, 5000)
					if err = errors.Join(AllReduce(ctx, g, y, Sum), work.Wait(ctx)); err == nil && (x[0] != 3 || y[4999] != int64(3*i)) {
						err = fmt.Errorf("round %d: got %v, %v", i, x, y[4999])
					}
				}
				errs <- err
			}()
			for tag := range uint32(3) {
				go func() {
					var err error
					for i := 0; i < rounds && err == nil; i++ {
						err = Send(ctx, g, next, tag, slices.Repeat([]int32{int32(i)}, int(tag)*4000+1))
					}
					errs <- err
				}()
				go func() {
					var err error
					for i := 0; i < rounds && err == nil; i++ {
						var got []int32
						if got, err = Recv[int32](ctx, g, prev, tag); err == nil && (len(got) != int(tag)*4000+1 || got[0] != int32(i)) {
							err = fmt.Errorf("tag %d, round %d: %d of %d", tag, i, got[0], len(got))
						}
					}
					errs <- err
				}()
			}
			var all []error
			for range 7 {
				all = append(all, <-errs)
			}
			return errors.Join(all...)
		})
	})
}
