package ring

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/goccl/goccl/dtype"
)

// allReduceAll runs an all-reduce of one slice per rank with every algorithm that may, and returns what comes out: the same
// everywhere.
func allReduceAll[T dtype.Element](t *testing.T, op dtype.ReduceOp, inputs [][]T, check func(a Algorithm, got []T)) {
	t.Helper()
	for _, a := range reductions[OpAllReduce] {
		c := Call{Op: OpAllReduce, Src: dtype.Of(inputs[0]), Reduce: op}
		runs, _ := Choose(&c, len(inputs), a, nil)
		roomy.run(t, len(inputs), Options{Algorithm: a}, func(ctx context.Context, x *Executor) error {
			got := append([]T(nil), inputs[x.plan.rank]...)
			b := dtype.Of(got)
			if err := x.Run(ctx, 0, &Call{Op: OpAllReduce, Dst: b, Src: b, Reduce: op}); err != nil {
				return err
			}
			if x.plan.rank == 0 {
				check(runs, got)
			}
			return nil
		})
	}
}

func constant[T any](count int, xs ...T) [][]T {
	s := make([][]T, len(xs))
	for r, x := range xs {
		for range count {
			s[r] = append(s[r], x)
		}
	}
	return s
}

// wantAll is for results that every algorithm gives.
func wantAll[T dtype.Element](t *testing.T, want T) func(Algorithm, []T) {
	return func(a Algorithm, got []T) {
		for i, g := range got {
			if g != want {
				t.Errorf("%v: element %d is %v, want %v", a, i, g, want)
				return
			}
		}
	}
}

func f16(x float64) dtype.Float16   { return convert[dtype.Float16](x) }
func bf16(x float64) dtype.BFloat16 { return convert[dtype.BFloat16](x) }

func convert[T dtype.Float](x float64) T {
	s := make([]T, 1)
	if err := dtype.Convert(dtype.Of(s), dtype.Of([]float64{x})); err != nil {
		panic(err)
	}
	return s[0]
}

// TestNumbers has the cases in which peers are wrong.
func TestNumbers(t *testing.T) {
	const count = 64
	allReduceAll(t, dtype.Mean, constant(count, f16(30000), f16(30000), f16(30000), f16(30000)), wantAll(t, f16(30000)))
	allReduceAll(t, dtype.Mean, constant(count, f16(65504), f16(65504), f16(65504), f16(65504)), wantAll(t, f16(65504)))
	allReduceAll(t, dtype.Mean, constant(count, f16(3), f16(3), f16(3)), wantAll(t, f16(3)))
	allReduceAll(t, dtype.Sum, constant(count, bf16(256), bf16(1), bf16(1), bf16(1)), wantAll(t, bf16(260)))
	allReduceAll(t, dtype.Sum, constant(count, f16(2048), f16(1), f16(1), f16(1)), wantAll(t, f16(2052)))
	allReduceAll(t, dtype.Mean, constant(count, bf16(1), bf16(2), bf16(3), bf16(4)), wantAll(t, bf16(2.5)))
	allReduceAll(t, dtype.Mean, constant[int8](count, 100, 100, 100), wantAll[int8](t, 100))
	allReduceAll(t, dtype.Mean, constant[int8](count, -10, -20, -31), wantAll[int8](t, -20))
	allReduceAll(t, dtype.Mean, constant[int32](count, 10, 21), wantAll[int32](t, 16))
	allReduceAll(t, dtype.Mean, constant[int32](count, -10, -21), wantAll[int32](t, -16))
	allReduceAll(t, dtype.Mean, constant[int64](count, -7, -8), wantAll[int64](t, -8))
	allReduceAll(t, dtype.Sum, constant[int8](count, 100, 100), wantAll[int8](t, -56))
	allReduceAll(t, dtype.Max, constant[int64](count, 1<<53+1, 3, math.MinInt64), wantAll[int64](t, 1<<53+1))
	allReduceAll(t, dtype.Sum, constant[int64](count, 1<<53, 1, 0), wantAll[int64](t, 1<<53+1))
	allReduceAll(t, dtype.Min, constant(count, 0, math.Copysign(0, -1), 1), func(a Algorithm, got []float64) {
		if got[0] != 0 || !math.Signbit(got[0]) {
			t.Errorf("%v: min of 0, -0, 1 is %v", a, got[0])
		}
	})
	allReduceAll(t, dtype.Sum, constant[float32](count, 1e8, -1e8, 4, 4), func(a Algorithm, got []float32) {
		for i, g := range got { // a ring may meet 1e8 + 4 first, and rounds there
			if g != 8 && !(a == Ring && (g == 0 || g == 4)) {
				t.Errorf("%v: element %d: sum of 1e8, -1e8, 4, 4 is %v", a, i, g)
				return
			}
		}
	})
	for _, op := range []dtype.ReduceOp{dtype.Min, dtype.Max, dtype.Sum, dtype.Prod, dtype.Mean} {
		for nan := range 3 {
			inputs := constant[float32](count, 1, 2, 3)
			inputs[nan] = constant(count, float32(math.NaN()))[0]
			allReduceAll(t, op, inputs, func(a Algorithm, got []float32) {
				for i, g := range got {
					if g == g {
						t.Errorf("%v: %v with a NaN in rank %d: element %d is %v", a, op, nan, i, g)
						return
					}
				}
			})
		}
	}
}

// TestMeanOfEqual: a mean of equal inputs is that input, where sums are not rounded on the way.
func TestMeanOfEqual(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5, 7} {
		inputs := make([][]float32, n)
		for r := range inputs {
			inputs[r] = []float32{0.1, 0.2, 0.3, 0.7}
		}
		allReduceAll(t, dtype.Mean, inputs, func(a Algorithm, got []float32) {
			for i := range got {
				if got[i] != inputs[0][i] && a != Ring {
					t.Errorf("%v: mean of %d times %v is %v", a, n, inputs[0][i], got[i])
				}
			}
		})
	}
}

// TestAlone: in a world of one every operation is a copy, with the network closed.
func TestAlone(t *testing.T) {
	tr := roomy.make(t, 1)[0]
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	src := dtype.Of([]float32{1, float32(math.Inf(-1)), 3})
	for name, f := range map[string]func(dst dtype.Buffer) error{
		"all-reduce":       func(dst dtype.Buffer) error { return AllReduceTo(ctx, tr, dst, src, dtype.Mean) },
		"reduce-scatter":   func(dst dtype.Buffer) error { return ReduceScatter(ctx, tr, dst, src, dtype.Prod) },
		"reduce-scatter V": func(dst dtype.Buffer) error { return ReduceScatterV(ctx, tr, dst, src, []int{3}, dtype.Max) },
		"all-gather":       func(dst dtype.Buffer) error { return AllGather(ctx, tr, dst, src) },
		"all-gather V":     func(dst dtype.Buffer) error { return AllGatherV(ctx, tr, dst, src, []int{3}) },
		"reduce":           func(dst dtype.Buffer) error { return Reduce(ctx, tr, dst, src, dtype.Mean, 0) },
		"gather":           func(dst dtype.Buffer) error { return Gather(ctx, tr, dst, src, 0) },
		"gather V":         func(dst dtype.Buffer) error { return GatherV(ctx, tr, dst, src, []int{3}, 0) },
		"scatter":          func(dst dtype.Buffer) error { return Scatter(ctx, tr, dst, src, 0) },
		"scatter V":        func(dst dtype.Buffer) error { return ScatterV(ctx, tr, dst, src, []int{3}, 0) },
		"all-to-all":       func(dst dtype.Buffer) error { return AllToAll(ctx, tr, dst, src) },
		"all-to-all V":     func(dst dtype.Buffer) error { return AllToAllV(ctx, tr, dst, []int{3}, src, []int{3}) },
		"in place": func(dst dtype.Buffer) error {
			copy(dst.HostBytes(), src.HostBytes())
			return errors.Join(AllReduce(ctx, tr, dst, dtype.Mean), Broadcast(ctx, tr, dst, 0), Barrier(ctx, tr))
		},
	} {
		dst := newBuffer(dtype.F32, 3)
		if err := f(dst); err != nil || string(dst.HostBytes()) != string(src.HostBytes()) {
			t.Errorf("%s: %v, %x", name, err, dst.HostBytes())
		}
	}
	ended, cancel := context.WithCancelCause(ctx)
	cause := errors.New("enough")
	cancel(cause)
	if err := AllReduce(ended, tr, newBuffer(dtype.F32, 3), dtype.Sum); !errors.Is(err, cause) {
		t.Errorf("with an ended context: %v", err)
	}
}

// TestFunctions runs the functions that need no Executor among three ranks.
func TestFunctions(t *testing.T) {
	roomy.run(t, 3, Options{}, func(ctx context.Context, x *Executor) error {
		tr, r := x.t, int32(x.plan.rank)
		all, mine := make([]int32, 6), []int32{10 * r, 10*r + 1}
		if err := AllGather(ctx, tr, dtype.Of(all), dtype.Of(mine)); err != nil {
			return err
		}
		if fmt.Sprint(all) != "[0 1 10 11 20 21]" {
			return fmt.Errorf("all-gather: %v", all)
		}
		part := make([]int32, 2)
		if err := ReduceScatter(ctx, tr, dtype.Of(part), dtype.Of(all), dtype.Sum); err != nil {
			return err
		}
		if part[0] != 30*r || part[1] != 30*r+3 {
			return fmt.Errorf("reduce-scatter: %v", part)
		}
		if err := Broadcast(ctx, tr, dtype.Of(part), 1); err != nil {
			return err
		}
		if part[0] != 30 {
			return fmt.Errorf("broadcast: %v", part)
		}
		got := make([]int32, 3*(r+1))
		give := []int32{r + 1, r + 1, r + 1, r + 1, r + 1, r + 1}
		if err := AllToAllV(ctx, tr, dtype.Of(got), []int{int(r + 1), int(r + 1), int(r + 1)}, dtype.Of(give), []int{1, 2, 3}); err != nil {
			return err
		}
		for i, g := range got {
			if g != int32(i)/(r+1)+1 {
				return fmt.Errorf("all-to-all: %v", got)
			}
		}
		return Barrier(ctx, tr)
	})
}
