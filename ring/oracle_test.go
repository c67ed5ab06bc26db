package ring

import (
	"fmt"
	"math"

	"github.com/goccl/goccl/dtype"
)

// The oracle computes reductions from the definition, element by element, with no code of dtype but the storage types.

// allTypes and their reduce operations.
var allTypes = []dtype.Type{dtype.F16, dtype.BF16, dtype.F32, dtype.F64, dtype.I8, dtype.U8, dtype.I32, dtype.I64}

func opsOf(t dtype.Type) []dtype.ReduceOp {
	ops := []dtype.ReduceOp{dtype.Sum, dtype.Mean, dtype.Prod, dtype.Min, dtype.Max}
	if !t.Float() {
		ops = append(ops, dtype.BitAnd, dtype.BitOr, dtype.BitXor)
	}
	return ops
}

// A format is a binary floating-point format: bits of the significand, and exponents of its least and largest power of two.
type format struct{ bits, least, largest int }

var formats = map[dtype.Type]format{
	dtype.F16: {11, -24, 15}, dtype.BF16: {8, -133, 127}, dtype.F32: {24, -149, 127}, dtype.F64: {53, -1074, 1023},
}

// round is to nearest even, once.
func (f format) round(x float64) float64 {
	if x == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return x
	}
	_, e := math.Frexp(x)
	ulp := max(e-f.bits, f.least)
	r := math.Ldexp(math.RoundToEven(math.Ldexp(x, -ulp)), ulp)
	if _, e := math.Frexp(r); e-1 > f.largest {
		return math.Inf(int(math.Copysign(1, x)))
	}
	return r
}

// unit is the relative rounding error.
func (f format) unit() float64 { return math.Ldexp(1, -f.bits) }

// foldFloats is the operation in rank order in float64, not rounded further; spread bounds, per rounding of relative size 1,
// how far another order may be away.
func foldFloats(op dtype.ReduceOp, xs []float64) (result, spread float64) {
	acc, abs := xs[0], math.Abs(xs[0])
	for _, x := range xs[1:] {
		switch op {
		case dtype.Sum, dtype.Mean:
			acc, abs = acc+x, abs+math.Abs(x)
		case dtype.Prod:
			acc, abs = acc*x, abs*math.Abs(x)
		case dtype.Min:
			acc = min(acc, x) // Go's: NaN wins, −0 < +0
		case dtype.Max:
			acc = max(acc, x)
		}
	}
	switch op {
	case dtype.Mean:
		n := float64(len(xs))
		return acc / n, abs / n
	case dtype.Min, dtype.Max:
		return acc, 0
	}
	return acc, abs
}

// foldInts is exact modulo 2^64.
func foldInts(op dtype.ReduceOp, xs []int64) int64 {
	acc := xs[0]
	for _, x := range xs[1:] {
		switch op {
		case dtype.Sum, dtype.Mean:
			acc += x
		case dtype.Prod:
			acc *= x
		case dtype.Min:
			acc = min(acc, x)
		case dtype.Max:
			acc = max(acc, x)
		case dtype.BitAnd:
			acc &= x
		case dtype.BitOr:
			acc |= x
		case dtype.BitXor:
			acc ^= x
		}
	}
	if op != dtype.Mean {
		return acc
	}
	n := int64(len(xs))
	q, r := acc/n, acc%n
	switch {
	case 2*r >= n:
		return q + 1
	case -2*r >= n:
		return q - 1
	}
	return q
}

// How near to the fold a result must be.
type exactness uint8

const (
	exact   exactness = iota // the rank-order fold, rounded once
	grouped                  // float64 partials in another order, rounded once
	perHop                   // rounded to the type after each operand
)

func exactnessOf(a Algorithm) exactness {
	switch a {
	case Ring, Chain:
		return perHop
	case Doubling:
		return grouped
	}
	return exact
}

// checkInts compares results with the operands of all ranks, one after the other; srcs are by rank.
func checkInts(t dtype.Type, op dtype.ReduceOp, got []int64, srcs [][]int64) error {
	xs := make([]int64, len(srcs))
	for i, g := range got {
		for rank := range srcs {
			xs[rank] = srcs[rank][i]
		}
		if want := wrap(t, foldInts(op, xs)); g != want {
			return fmt.Errorf("element %d: %v, want %v = %v of %v", i, g, want, op, xs)
		}
	}
	return nil
}

func checkFloats(t dtype.Type, op dtype.ReduceOp, how exactness, got []float64, srcs [][]float64) error {
	xs := make([]float64, len(srcs))
	for i, g := range got {
		for rank := range srcs {
			xs[rank] = srcs[rank][i]
		}
		if err := checkFloat(t, op, how, g, xs); err != nil {
			return fmt.Errorf("element %d: %w", i, err)
		}
	}
	return nil
}

func checkFloat(t dtype.Type, op dtype.ReduceOp, how exactness, got float64, xs []float64) error {
	result, spread := foldFloats(op, xs)
	f := formats[t]
	// The fold itself may be as far from the truth as any other order of float64 operations.
	slack := 2 * float64(len(xs)) * formats[dtype.F64].unit() * spread
	switch how {
	case exact:
		slack = 0
	case perHop:
		// (1+u)^(n+1): n−1 hops, the division of a mean, and the second order.
		slack += (math.Pow(1+f.unit(), float64(len(xs)+1)) - 1) * spread
	}
	lo, hi := f.round(result-slack), f.round(result+slack)
	switch {
	case math.IsNaN(result):
		if !math.IsNaN(got) {
			return fmt.Errorf("%v, want NaN = %v of %v", got, op, xs)
		}
	case math.IsInf(result, 0):
		if got != result {
			return fmt.Errorf("%v, want %v = %v of %v", got, result, op, xs)
		}
	case !(lo <= got && got <= hi), got == 0 && lo == 0 && hi == 0 && math.Signbit(got) != math.Signbit(result):
		return fmt.Errorf("%v, want %v to %v = %v of %v", got, lo, hi, op, xs)
	}
	return nil
}

func wrap(t dtype.Type, x int64) int64 {
	switch t {
	case dtype.I8:
		return int64(int8(x))
	case dtype.U8:
		return int64(uint8(x))
	case dtype.I32:
		return int64(int32(x))
	}
	return x
}

func ints(b dtype.Buffer) []int64 {
	switch b.Type() {
	case dtype.I8:
		return each(b, func(x int8) int64 { return int64(x) })
	case dtype.U8:
		return each(b, func(x uint8) int64 { return int64(x) })
	case dtype.I32:
		return each(b, func(x int32) int64 { return int64(x) })
	}
	return each(b, func(x int64) int64 { return x })
}

func floats(b dtype.Buffer) []float64 {
	switch b.Type() {
	case dtype.F16:
		return each(b, func(x dtype.Float16) float64 { return float64(x.Float32()) })
	case dtype.BF16:
		return each(b, func(x dtype.BFloat16) float64 { return float64(x.Float32()) })
	case dtype.F32:
		return each(b, func(x float32) float64 { return float64(x) })
	}
	return each(b, func(x float64) float64 { return x })
}

func each[T dtype.Element, U any](b dtype.Buffer, f func(T) U) []U {
	s, err := dtype.View[T](b)
	if err != nil {
		panic(err)
	}
	u := make([]U, len(s))
	for i, x := range s {
		u[i] = f(x)
	}
	return u
}

// newBuffer makes a buffer of its own memory, filled with a byte that tells whether it was written.
func newBuffer(t dtype.Type, count int) dtype.Buffer {
	raw := make([]byte, count*t.Size()+8)[:count*t.Size()]
	for i := range raw {
		raw[i] = 0xa5
	}
	b, err := dtype.Bytes(t, raw)
	if err != nil {
		panic(err)
	}
	return b
}

// fill sets b to the input of a rank: numbers of both signs and different sizes whose sums and products stay in range,
// and, where special is set, some NaNs, infinities and zeros.
func fill(b dtype.Buffer, rank int, op dtype.ReduceOp, special bool) {
	if !b.Type().Float() {
		raw := b.HostBytes()
		for i := range raw {
			raw[i] = byte(noise(rank, i))
		}
		return
	}
	xs := make([]float64, b.Count())
	for i := range xs {
		xs[i] = number(noise(rank, i), op, special)
	}
	if err := dtype.Convert(b, dtype.Of(xs)); err != nil {
		panic(err)
	}
}

func noise(rank, i int) uint64 {
	h := uint64(rank+1)*0x9e3779b97f4a7c15 ^ uint64(i+1)*0xd6e8feb86659fd93
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	return h ^ h>>29
}

func number(h uint64, op dtype.ReduceOp, special bool) float64 {
	x := 1 + float64(h>>12&0xfffff)/(1<<20) // 1 to 2
	if op == dtype.Prod {
		x = x/2 + 0.25
	} else {
		x = math.Ldexp(x, int(h>>40%12)-6)
	}
	if h&1 != 0 {
		x = -x
	}
	if special {
		switch h >> 50 % 23 {
		case 0:
			return math.NaN()
		case 1:
			return math.Inf(1)
		case 2:
			return math.Copysign(0, -1)
		case 3:
			return 0
		}
	}
	return x
}
