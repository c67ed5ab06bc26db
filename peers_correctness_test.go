package goccl

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccl/goccl/dtype"
)

// Tests named TestPeersNN replay what users of other libraries of this kind reported; peers_table_test.go lists them all. The
// reports are named as repository#number.

var everyAlgorithm = []Algorithm{AlgorithmAuto, AlgorithmRing, AlgorithmDirect, AlgorithmOneShot, AlgorithmDoubling, AlgorithmChain}

// everywhere runs a program on n ranks of every world, and over mem with every algorithm.
func everywhere(t *testing.T, n int, program func(ctx context.Context, g *ProcessGroup) error) {
	t.Helper()
	overWorlds(t, func(t *testing.T, w world) { runRanks(t, w, n, program) })
	for _, a := range everyAlgorithm[1:] {
		t.Run(a.String(), func(t *testing.T) { runRanksWith(t, memWorld, n, Config{Algorithm: a}, program) })
	}
}

// expect is a check of a result in one line.
func expect[T comparable](what string, err error, got, want []T) error {
	if err == nil && !slices.Equal(got, want) {
		err = fmt.Errorf("got %v, want %v", got, want)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", what, err)
	}
	return err
}

// Scenario 1: reduce writes partial sums into the buffers of other ranks than the root (pytorch#21480, #76527).
func TestPeers01_ReduceLeavesOthersAlone(t *testing.T) {
	for n := 2; n <= 4; n++ {
		everywhere(t, n, func(ctx context.Context, g *ProcessGroup) error {
			for _, count := range []int{1, 3, 100_000} {
				src := slices.Repeat([]float32{float32(g.Rank() + 1)}, count)
				dst := slices.Repeat([]float32{-7}, count)
				wantSrc, wantDst := slices.Clone(src), slices.Clone(dst)
				if g.Rank() == 0 {
					wantDst = slices.Repeat([]float32{float32(n * (n + 1) / 2)}, count)
				}
				err := Reduce(ctx, g, dst, src, Sum, 0)
				if err != nil || !slices.Equal(dst, wantDst) || !slices.Equal(src, wantSrc) {
					return fmt.Errorf("%d elements: dst begins with %v, src with %v, %v", count, dst[0], src[0], err)
				}
			}
			return nil
		})
	}
}

// Scenario 2: an all-reduce over several buffers fills only the first (gloo#152). Here a bucket is several calls in flight.
func TestPeers02_BucketOfThree(t *testing.T) {
	everywhere(t, 3, func(ctx context.Context, g *ProcessGroup) error {
		a, b, c := []float32{1, 2}, []dtype.BFloat16{dtype.BFloat16FromFloat32(3)}, []int64{int64(g.Rank()), 5, -5}
		works := []*Work{AllReduceAsync(ctx, g, a, Sum), AllReduceAsync(ctx, g, b, Sum), AllReduceAsync(ctx, g, c, Sum)}
		var errs []error
		for _, w := range works {
			errs = append(errs, w.Wait(ctx))
		}
		return errors.Join(errors.Join(errs...), expect("first", nil, a, []float32{3, 6}),
			expect("second", nil, b, []dtype.BFloat16{dtype.BFloat16FromFloat32(9)}), expect("third", nil, c, []int64{3, 15, -15}))
	})
}

// disagree runs one all-reduce in which the odd rank does something else, and checks the call's own error on every rank: both
// calls named, and on the ranks that agree, who it is that does not.
func disagree(t *testing.T, gs []*ProcessGroup, odd int, words [2]string, most, one func(g *ProcessGroup) error) {
	t.Helper()
	for r, err := range each(gs, func(g *ProcessGroup) error {
		if g.Rank() == odd {
			return one(g)
		}
		return most(g)
	}) {
		var e *MismatchError
		if !errors.As(err, &e) {
			t.Errorf("rank %d differs; rank %d: %v, want a MismatchError", odd, r, err)
			continue
		}
		want, got := words[0], words[1]
		if r == odd || e.Told && e.By == odd {
			want, got = got, want
		}
		named := e.Rank == odd || r == odd || e.Told && e.By == odd
		if !named || !strings.Contains(e.Want, want) || !strings.Contains(e.Got, got) {
			t.Errorf("rank %d differs; rank %d: %v, want %q against %q", odd, r, err, want, got)
		}
	}
}

// Scenario 3: unequal lengths sometimes pass with a wrong tail, sometimes hang (nccl#1417, #1394).
func TestPeers03_UnequalLengths(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w world) {
		reduce := func(count int) func(g *ProcessGroup) error {
			return func(g *ProcessGroup) error { return AllReduce(t.Context(), g, make([]float32, count), Sum) }
		}
		algorithms := everyAlgorithm
		if strings.HasSuffix(t.Name(), "/tcp") {
			algorithms = algorithms[:1]
		}
		for n := 2; n <= 4; n++ {
			for _, c := range []struct{ odd, most, one int }{{0, 409598, 409600}, {0, 200, 100}, {n - 1, 200, 201}, {n - 1, 409600, 409601}} {
				for _, a := range algorithms {
					gs := groups(t, w, n, Config{Algorithm: a, Timeout: 20 * time.Second})
					disagree(t, gs, c.odd, [2]string{fmt.Sprintf("f32 x %d ", c.most), fmt.Sprintf("f32 x %d ", c.one)}, reduce(c.most), reduce(c.one))
					each(gs, func(g *ProcessGroup) error { return g.Close() })
				}
			}
		}
	})
}

// Scenario 5: equal byte counts of different types are added up as if they were one (ompi#199).
func TestPeers05_TypesOfEqualSize(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w world) {
		f32 := func(g *ProcessGroup) error { return AllReduce(t.Context(), g, make([]float32, 8), Sum) }
		gs := groups(t, w, 2, Config{})
		disagree(t, gs, 1, [2]string{"f32 x 8", "f16 x 16"}, f32, func(g *ProcessGroup) error {
			return AllReduce(t.Context(), g, make([]dtype.Float16, 16), Sum)
		})
		gs = groups(t, w, 2, Config{})
		disagree(t, gs, 0, [2]string{"f32 x 8", "i32 x 8"}, f32, func(g *ProcessGroup) error {
			return AllReduce(t.Context(), g, make([]int32, 8), Sum)
		})
	})
}

// nothing is every collective with no elements.
func nothing(ctx context.Context, g *ProcessGroup, none []float32) (calls uint64, err error) {
	zeros := make([]int, g.Size())
	errs := []error{
		AllReduce(ctx, g, none, Sum),
		AllReduceTo(ctx, g, none, none, Mean),
		ReduceScatter(ctx, g, none, none, Max),
		ReduceScatterV(ctx, g, none, none, zeros, Min),
		AllGather(ctx, g, none, none),
		AllGatherV(ctx, g, none, none, zeros),
		Broadcast(ctx, g, none, g.Size()-1),
		Reduce(ctx, g, none, none, Prod, 0),
		Gather(ctx, g, none, none, 0),
		Scatter(ctx, g, none, none, 0),
		AllToAll(ctx, g, none, none),
		AllToAllV(ctx, g, none, zeros, none, zeros),
		AllReduceAsync(ctx, g, none, Sum).Wait(ctx),
		ReduceScatterAsync(ctx, g, none, none, Sum).Wait(ctx),
		AllGatherAsync(ctx, g, none, none).Wait(ctx),
		BroadcastAsync(ctx, g, none, 0).Wait(ctx),
	}
	return uint64(len(errs)), errors.Join(errs...)
}

// Scenario 6: an all-gather of nothing dies (pytorch#85234, gloo#179, PR#495). It succeeds, and takes its place in the order.
func TestPeers06_NothingInEveryOperation(t *testing.T) {
	for n := 1; n <= 5; n++ {
		everywhere(t, n, func(ctx context.Context, g *ProcessGroup) error {
			first, err := nothing(ctx, g, nil)
			if err != nil {
				return fmt.Errorf("nil: %w", err)
			}
			second, err := nothing(ctx, g, []float32{})
			if err != nil {
				return fmt.Errorf("empty: %w", err)
			}
			if g.seq != first+second {
				return fmt.Errorf("%d calls made, %d counted", first+second, g.seq)
			}
			next, prev := (g.Rank()+1)%n, (g.Rank()+n-1)%n
			if err := Send[float32](ctx, g, next, 0, nil); err != nil {
				return err
			}
			got, err := Recv[float32](ctx, g, prev, 0)
			return expect("message", err, got, nil)
		})
	}
}

// Scenario 7: gather fails when some ranks hold nothing (pytorch#150928).
func TestPeers07_SomeHoldNothing(t *testing.T) {
	everywhere(t, 4, func(ctx context.Context, g *ProcessGroup) error {
		counts := []int{3, 0, 5, 0}
		src := [][]int32{{0, 1, 2}, nil, {20, 21, 22, 23, 24}, {}}[g.Rank()]
		dst := make([]int32, 8)
		return expect("all-gather", AllGatherV(ctx, g, dst, src, counts), dst, []int32{0, 1, 2, 20, 21, 22, 23, 24})
	})
}

// splits is a random table of how many elements each rank sends to each other, about a third of them none.
func splits(random *rand.Rand, n, total int) [][]int {
	table := make([][]int, n)
	for i := range table {
		table[i] = make([]int, n)
	}
	for left := total; left > 0; {
		i, j := random.IntN(n), random.IntN(n)
		if (i+2*j)%3 == 0 {
			continue
		}
		k := min(left, random.IntN(2*total/(n*n))+1)
		table[i][j] += k
		left -= k
	}
	return table
}

// Scenario 11: a large all-to-all with uneven parts reports bytes that nobody sent (gloo#334).
func TestPeers11_RandomAllToAllV(t *testing.T) {
	const n, total = 10, 1_000_000
	rounds := map[string]int{"mem": 100, "tcp": 5}
	if testing.Short() {
		rounds = map[string]int{"mem": 5, "tcp": 1}
	}
	for name, rounds := range rounds {
		t.Run(name, func(t *testing.T) {
			runRanks(t, worlds[name], n, func(ctx context.Context, g *ProcessGroup) error {
				random := rand.New(rand.NewPCG(11, 11)) // the same on all ranks
				for round := range rounds {
					table := splits(random, n, total)
					value := func(from, to, i int) int64 { return int64(round)<<48 | int64(from)<<40 | int64(to)<<32 | int64(i) }
					var src, want []int64
					var from []int
					for r := range n {
						for i := range table[g.Rank()][r] {
							src = append(src, value(g.Rank(), r, i))
						}
						from = append(from, table[r][g.Rank()])
						for i := range from[r] {
							want = append(want, value(r, g.Rank(), i))
						}
					}
					dst := make([]int64, len(want))
					if err := AllToAllV(ctx, g, dst, from, src, table[g.Rank()]); err != nil {
						return err
					}
					if !slices.Equal(dst, want) {
						return fmt.Errorf("round %d: %d elements, not those that were sent", round, len(dst))
					}
				}
				return nil
			})
		})
	}
}

// Scenario 14: where the remainder of a reduce-scatter goes, and what in place means, is undefined (ucc PR#384, PR#345,
// ompi#218).
func TestPeers14_ReduceScatterOfTen(t *testing.T) {
	everywhere(t, 4, func(ctx context.Context, g *ProcessGroup) error {
		counts := []int{3, 3, 2, 2} // as goccl splits ten: the first parts are the longer ones
		lo := []int{0, 3, 6, 8}[g.Rank()]
		hi := lo + counts[g.Rank()]
		whole := func() (s []int64) {
			for i := range 10 {
				s = append(s, int64(100*g.Rank()+i))
			}
			return s
		}
		var want []int64
		for i := lo; i < hi; i++ {
			want = append(want, int64(600+4*i))
		}
		apart, src := make([]int64, counts[g.Rank()]), whole()
		if err := expect("apart", ReduceScatterV(ctx, g, apart, src, counts, Sum), apart, want); err != nil {
			return err
		}
		if !slices.Equal(src, whole()) {
			return fmt.Errorf("src was written: %v", src)
		}
		own := src[lo:hi]
		if err := expect("in place", ReduceScatterV(ctx, g, own, src, counts, Sum), own, want); err != nil {
			return err
		}
		if left := append(slices.Clone(src[:lo]), src[hi:]...); !slices.Equal(left, append(whole()[:lo], whole()[hi:]...)) {
			return fmt.Errorf("in place: other parts were written: %v", src)
		}
		if err := ReduceScatter(ctx, g, make([]int64, 3), whole(), Sum); !errors.Is(err, ErrArgument) {
			return fmt.Errorf("ten elements without counts: %v, want ErrArgument", err)
		}
		return nil
	})
	runRanks(t, memWorld, 1, func(ctx context.Context, g *ProcessGroup) error {
		x := []int64{1, 2, 3}
		return errors.Join(expect("alone in place", ReduceScatter(ctx, g, x, x, Mean), x, []int64{1, 2, 3}),
			expect("alone in place with counts", ReduceScatterV(ctx, g, x, x, []int{3}, Sum), x, []int64{1, 2, 3}))
	})
}

// alone is every operation in a world of one, where each is a copy.
func alone[T dtype.Element](ctx context.Context, g *ProcessGroup, x ...T) error {
	n := len(x)
	var errs []error
	check := func(what string, err error, got []T) { errs = append(errs, expect(what, err, got, x)) }
	for op := Sum; op <= BitXor; op++ {
		if dtype.Supports(op, dtype.Of(x).Type()) != nil {
			continue
		}
		a, b, c, d, e := slices.Clone(x), make([]T, n), make([]T, n), make([]T, n), make([]T, n)
		check(op.String()+" AllReduce", AllReduce(ctx, g, a, op), a)
		check(op.String()+" AllReduceTo", AllReduceTo(ctx, g, b, x, op), b)
		check(op.String()+" ReduceScatter", ReduceScatter(ctx, g, c, x, op), c)
		check(op.String()+" ReduceScatterV", ReduceScatterV(ctx, g, d, x, []int{n}, op), d)
		check(op.String()+" Reduce", Reduce(ctx, g, e, x, op, 0), e)
	}
	a, b, c, d, e, f := make([]T, n), make([]T, n), make([]T, n), make([]T, n), make([]T, n), make([]T, n)
	check("AllGather", AllGather(ctx, g, a, x), a)
	check("AllGatherV", AllGatherV(ctx, g, b, x, []int{n}), b)
	check("Gather", Gather(ctx, g, c, x, 0), c)
	check("Scatter", Scatter(ctx, g, d, x, 0), d)
	check("AllToAll", AllToAll(ctx, g, e, x), e)
	check("AllToAllV", AllToAllV(ctx, g, f, []int{n}, x, []int{n}), f)
	check("Broadcast", Broadcast(ctx, g, a, 0), a)
	errs = append(errs, Send(ctx, g, 0, 1, x))
	got, err := Recv[T](ctx, g, 0, 1)
	check("message", err, got)
	return errors.Join(append(errs, g.Barrier(ctx))...)
}

// sockets counts this process's, where the system tells.
func sockets() (n int) {
	links, _ := filepath.Glob("/proc/self/fd/*")
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// Scenario 18: a world of one fails (Aluminum#89). Every operation is the identity, and no socket is opened.
func TestPeers18_WorldOfOne(t *testing.T) {
	before := sockets()
	for _, a := range everyAlgorithm {
		g, err := Join(t.Context(), JoinConfig{Size: 1, Config: Config{Algorithm: a}})
		if err != nil {
			t.Fatal(err)
		}
		ctx := t.Context()
		bf := dtype.BFloat16FromFloat32
		err = errors.Join(
			alone(ctx, g, dtype.Float16(0x7bff), dtype.Float16(0x0001), dtype.Float16(0x8000)), alone(ctx, g, bf(3e38), bf(1e-40), bf(-1)),
			alone[float32](ctx, g, 3e38, 1e-45, -2), alone(ctx, g, 1.7e308, 5e-324, -2), alone[int8](ctx, g, 127, -128, 1),
			alone[uint8](ctx, g, 255, 0, 7), alone[int32](ctx, g, 1<<31-1, -1<<31, 3), alone[int64](ctx, g, 1<<63-1, -1<<63, 3))
		if err != nil {
			t.Errorf("%v: %v", a, err)
		}
		if now := sockets(); now > before {
			t.Errorf("%v: %d sockets before, %d with a group of one", a, before, now)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Scenario 19: a cancelled call's completion is taken for the next one's (ucc#1334, pytorch#32363). In goccl a message belongs
// to its sender and tag and not to a receive: a late one goes to the next receive, whole and in order, and the buffer of the
// cancelled one is left alone. A cancelled collective breaks its group. No asynchronous call takes a counts slice.
func TestPeers19_CallAfterACancelledOne(t *testing.T) {
	overWorlds(t, func(t *testing.T, w world) {
		gs := groups(t, w, 2, Config{})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		old := []int32{-1, -1}
		if _, err := RecvInto(ctx, gs[0], 1, 3, old); !errors.Is(err, context.Canceled) {
			t.Fatalf("cancelled: %v", err)
		}
		for _, m := range [][]int32{{1, 2}, {3, 4}} {
			if err := Send(t.Context(), gs[1], 0, 3, m); err != nil {
				t.Fatal(err)
			}
		}
		for _, want := range [][]int32{{1, 2}, {3, 4}} {
			got := make([]int32, 2)
			_, err := RecvInto(t.Context(), gs[0], 1, 3, got)
			if err := expect("message", err, got, want); err != nil {
				t.Error(err)
			}
		}
		if !slices.Equal(old, []int32{-1, -1}) {
			t.Errorf("the cancelled call's buffer holds %v", old)
		}

		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		if err := AllReduce(ctx, gs[0], []int32{1}, Sum); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled all-reduce: %v", err)
		}
		later := []int32{5}
		if err := AllReduce(t.Context(), gs[0], later, Sum); !errors.Is(err, ErrBroken) || later[0] != 5 {
			t.Errorf("the next all-reduce: %v, %v, want ErrBroken", later, err)
		}
	})
}

// Scenario 20: a buffer is used again while the library still writes into it (mlx#4276, PR#3933). A cancelled call lets go of
// its buffer before it returns, although bytes for it go on coming; the race detector looks on.
func TestPeers20_CancelledCallLetsGo(t *testing.T) {
	const count = 1 << 19
	mine := slices.Repeat([]float32{-3}, count)
	overWorlds(t, func(t *testing.T, w world) {
		for _, a := range []Algorithm{AlgorithmRing, AlgorithmDirect, AlgorithmOneShot} {
			gs := groups(t, w, 3, Config{Algorithm: a})
			others := AllReduceAsync(t.Context(), gs[1], make([]float32, count), Sum)
			ctx, cancel := context.WithCancel(t.Context())
			buf := make([]float32, count)
			work := AllReduceAsync(ctx, gs[0], buf, Sum) // rank 2 is not there yet
			time.AfterFunc(5*time.Millisecond, cancel)
			if err := work.Wait(t.Context()); !errors.Is(err, context.Canceled) {
				t.Errorf("%v: %v", a, err)
			}
			copy(buf, mine)
			AllReduce(t.Context(), gs[2], make([]float32, count), Sum)
			others.Wait(t.Context())
			runtime.GC()
			if !slices.Equal(buf, mine) {
				t.Errorf("%v: the buffer of a cancelled all-reduce was written", a)
			}
			each(gs, func(g *ProcessGroup) error { return g.Close() })
		}

		gs := groups(t, w, 2, Config{})
		sent := make(chan error, 1)
		go func() { sent <- Send(t.Context(), gs[1], 0, 0, make([]float32, 16*count)) }()
		into := make([]float32, 16*count)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond) // in the middle of it, on most machines
		defer cancel()
		_, err := RecvInto(ctx, gs[0], 1, 0, into)
		for i := range into {
			into[i] = -3
		}
		if err != nil {
			if _, err := RecvInto(t.Context(), gs[0], 1, 0, make([]float32, 16*count)); err != nil {
				t.Errorf("the message of a cut-off receive: %v", err)
			}
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
		if slices.ContainsFunc(into, func(v float32) bool { return v != -3 }) {
			t.Error("the buffer of a cancelled receive was written")
		}
	})
}
