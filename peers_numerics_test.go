package goccl

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/goccl/goccl/dtype"
)

// reduced all-reduces 64 copies of each rank's own value and wants each to be one of those given.
func reduced[T dtype.Element](ctx context.Context, g *ProcessGroup, op ReduceOp, values []T, want ...T) error {
	buf := slices.Repeat(values[g.Rank():g.Rank()+1], 64)
	if err := AllReduce(ctx, g, buf, op); err != nil {
		return err
	}
	for i, v := range buf {
		if !slices.Contains(want, v) {
			return fmt.Errorf("%v of %v: element %d is %v, want %v", op, values, i, v, want)
		}
	}
	return nil
}

func f16s(xs ...float64) []dtype.Float16   { return converted[dtype.Float16](xs) }
func bf16s(xs ...float64) []dtype.BFloat16 { return converted[dtype.BFloat16](xs) }

func converted[T dtype.Float](xs []float64) []T {
	s := make([]T, len(xs))
	if err := dtype.Convert(dtype.Of(s), dtype.Of(xs)); err != nil {
		panic(err)
	}
	return s
}

// Scenario 22: a ring rounds 16-bit sums at every hop, so that a constant input gives a result that is not constant
// (nccl#1026, tt-metal#36749).
func TestPeers22_SixteenBitSumsRoundOnce(t *testing.T) {
	everywhere(t, 4, func(ctx context.Context, g *ProcessGroup) error {
		return errors.Join(reduced(ctx, g, Sum, bf16s(256, 1, 1, 1), bf16s(260)...), // 259 is a tie
			reduced(ctx, g, Sum, f16s(2048, 1, 1, 1), f16s(2052)...)) // so is 2051
	})
}

// Scenario 23: an average overflows f16 on the way (horovod#1699, pytorch#78774).
func TestPeers23_MeanDoesNotOverflow(t *testing.T) {
	everywhere(t, 4, func(ctx context.Context, g *ProcessGroup) error {
		return errors.Join(reduced(ctx, g, Mean, f16s(40000, 40000, 40000, 40000), f16s(40000)...),
			reduced(ctx, g, Mean, f16s(65504, 65504, 65504, 65504), f16s(65504)...))
	})
}

// Scenario 24: multiplying by a rounded 1/n biases the mean (torchcomms PR#4071).
func TestPeers24_MeanOfEqualsIsExact(t *testing.T) {
	everywhere(t, 3, func(ctx context.Context, g *ProcessGroup) error {
		return errors.Join(reduced(ctx, g, Mean, f16s(3, 3, 3), f16s(3)...), reduced(ctx, g, Mean, bf16s(3, 3, 3), bf16s(3)...),
			reduced(ctx, g, Mean, []float32{3, 3, 3}, 3), reduced(ctx, g, Mean, []float64{3, 3, 3}, 3))
	})
}

// Scenario 26: an integer average is zero or a type error (InfiniCCL PR#37, torchcomms PR#287). It rounds half away from zero.
func TestPeers26_IntegerMean(t *testing.T) {
	everywhere(t, 2, func(ctx context.Context, g *ProcessGroup) error {
		buf := [][]int32{{10, 7, -10, -7, 3}, {21, 8, -21, -8, 4}}[g.Rank()]
		return expect("mean", AllReduce(ctx, g, buf, Mean), buf, []int32{16, 8, -16, -8, 4})
	})
}

// Scenario 28: each rank sums in an order of its own, and the ranks end with different bits (ompi PR#12258).
func TestPeers28_SameBitsOnAllRanks(t *testing.T) {
	rounds := 1000
	if testing.Short() {
		rounds = 100
	}
	const n, count = 4, 257
	results := make([]uint64, n)
	program := func(ctx context.Context, g *ProcessGroup, rounds int) error {
		hash := fnv.New64a()
		buf := slices.Repeat([]float32{[]float32{1e8, 1, -1e8, 1}[g.Rank()]}, 64)
		if err := AllReduce(ctx, g, buf, Sum); err != nil {
			return err
		}
		if buf[0] != 2 && !strings.Contains(g.Plan("all-reduce", dtype.F32, 64), ": ring (") { // which rounds at every hop, and may lose a 1
			return fmt.Errorf("the sum of 1e8, 1, -1e8 and 1 is %v", buf[0])
		}
		hash.Write(dtype.Of(buf).HostBytes())
		random := rand.New(rand.NewPCG(28, uint64(g.Rank())))
		buf = make([]float32, count)
		for range rounds {
			for i := range buf {
				buf[i] = float32(math.Ldexp(random.Float64()-0.5, random.IntN(40)))
			}
			if err := AllReduce(ctx, g, buf, Sum); err != nil {
				return err
			}
			hash.Write(dtype.Of(buf).HostBytes())
		}
		results[g.Rank()] = hash.Sum64()
		return nil
	}
	for _, a := range everyAlgorithm {
		for name, rounds := range map[string]int{"mem": rounds, "tcp": rounds / 10} {
			t.Run(a.String()+"/"+name, func(t *testing.T) {
				runRanksWith(t, worlds[name], n, Config{Algorithm: a}, func(ctx context.Context, g *ProcessGroup) error { return program(ctx, g, rounds) })
				for r, h := range results {
					if h != results[0] {
						t.Errorf("ranks 0 and %d have different bits", r)
					}
				}
			})
		}
	}
}

// Scenario 31: an integer sum wraps and hides an error flag (heat PR#1029). Sums and products wrap in two's complement, as in
// Go, the same everywhere; no integer passes through a float.
func TestPeers31_IntegersWrap(t *testing.T) {
	everywhere(t, 3, func(ctx context.Context, g *ProcessGroup) error {
		const most, least = math.MaxInt64, math.MinInt64
		return errors.Join(
			reduced(ctx, g, Sum, []int8{100, 27, 1}, -128),
			reduced(ctx, g, Sum, []uint8{255, 2, 255}, 0),
			reduced(ctx, g, Sum, []int32{math.MaxInt32, 1, 1}, math.MinInt32+1),
			reduced(ctx, g, Sum, []int64{most, 1, 0}, least),
			reduced(ctx, g, Sum, []int64{1<<53 + 1, 0, 0}, 1<<53+1),
			reduced(ctx, g, Prod, []int8{16, 16, 3}, 0),
			reduced(ctx, g, Prod, []int64{1 << 62, 3, 2}, least), // 3 × 2⁶³
			reduced(ctx, g, Min, []int64{least, least + 1, most}, least),
			reduced(ctx, g, Max, []int64{least, least, least + 1}, least+1),
			reduced(ctx, g, Max, []int64{most - 1, most, least}, most))
	})
}
