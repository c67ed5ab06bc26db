package dtype

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/x448/float16"
)

// level is one set of kernels.
type level struct {
	name string
	set  func()
}

// eachLevel runs f once for every set of kernels.
func eachLevel(t *testing.T, f func(t *testing.T)) {
	defer levels[0].set()
	for _, l := range levels {
		l.set()
		t.Run(l.name, f)
	}
}

var allTypes = []Type{F16, BF16, F32, F64, I8, U8, I32, I64}

var floatTypes = allTypes[:4]

// Elements are compared as bits, in the low end of a uint64.

func element(b Buffer, i int) uint64 {
	switch b.Type().Size() {
	case 1:
		return uint64(hostSlice[uint8](b)[i])
	case 2:
		return uint64(hostSlice[uint16](b)[i])
	case 4:
		return uint64(hostSlice[uint32](b)[i])
	}
	return hostSlice[uint64](b)[i]
}

func setElement(b Buffer, i int, v uint64) {
	switch b.Type().Size() {
	case 1:
		hostSlice[uint8](b)[i] = uint8(v)
	case 2:
		hostSlice[uint16](b)[i] = uint16(v)
	case 4:
		hostSlice[uint32](b)[i] = uint32(v)
	default:
		hostSlice[uint64](b)[i] = v
	}
}

// number is the value of an element of a float type.
func number(t Type, bits uint64) float64 {
	switch t {
	case F16:
		return float64(float16.Frombits(uint16(bits)).Float32())
	case BF16:
		return float64(math.Float32frombits(uint32(bits) << 16))
	case F32:
		return float64(math.Float32frombits(uint32(bits)))
	}
	return math.Float64frombits(bits)
}

// signed is the value of an element of an integer type.
func signed(t Type, bits uint64) int64 {
	switch t {
	case I8:
		return int64(int8(bits))
	case I32:
		return int64(int32(bits))
	}
	return int64(bits)
}

func canonicalNaN(t Type) uint64 {
	return map[Type]uint64{F16: 0x7e00, BF16: 0x7fc0, F32: 0x7fc00000, F64: 0x7ff8000000000000}[t]
}

// magnitudes holds the values of the non-negative 16-bit floats in order, the index being the bits; where infinity stands
// is what the next number would be, as rounding goes by that.
var magnitudes = func() map[Type][]float64 {
	m := map[Type][]float64{}
	for i := range uint64(0x7c00) {
		m[F16] = append(m[F16], number(F16, i))
	}
	m[F16] = append(m[F16], 0x1p16)
	for i := range uint64(0x7f80) {
		m[BF16] = append(m[BF16], number(BF16, i))
	}
	m[BF16] = append(m[BF16], 0x1p128)
	return m
}()

// round rounds to nearest even by looking for the nearest number. A NaN becomes canonical.
func round(t Type, x float64) uint64 {
	switch {
	case x != x:
		return canonicalNaN(t)
	case t == F32:
		return uint64(math.Float32bits(float32(x)))
	case t == F64:
		return math.Float64bits(x)
	}
	m := magnitudes[t]
	var sign uint64
	if math.Signbit(x) {
		sign, x = 0x8000, -x
	}
	i := 0 // the first number that is not less than x
	for end := len(m); i < end; {
		if h := (i + end) / 2; m[h] < x {
			i = h + 1
		} else {
			end = h
		}
	}
	switch {
	case i == len(m):
		i--
	case i > 0 && m[i] != x:
		middle := m[i-1] + (m[i]-m[i-1])/2 // exact
		if x < middle || x == middle && i%2 == 1 {
			i--
		}
	}
	return sign | uint64(i)
}

// foldOracle is the package's numeric rules, for one element.
func foldOracle(op ReduceOp, t Type, in []uint64) uint64 {
	if len(in) == 1 {
		return in[0]
	}
	if t.Float() {
		return round(t, foldFloats(op, t, in))
	}
	mask := uint64(1)<<(8*t.Size()-1)<<1 - 1
	acc := signed(t, in[0])
	for _, bits := range in[1:] {
		v := signed(t, bits)
		switch op {
		case Sum, Mean:
			acc += v
		case Prod:
			acc *= v
		case Min:
			acc = min(acc, v)
		case Max:
			acc = max(acc, v)
		case BitAnd:
			acc &= v
		case BitOr:
			acc |= v
		case BitXor:
			acc ^= v
		}
	}
	if op == Mean {
		acc = meanOracle(acc, int64(len(in)))
	}
	return uint64(acc) & mask
}

// meanOracle rounds half away from zero.
func meanOracle(v, n int64) int64 {
	q, r := v/n, v%n
	if max(r, -r) >= n-max(r, -r) {
		if v < 0 {
			return q - 1
		}
		return q + 1
	}
	return q
}

func foldFloats(op ReduceOp, t Type, in []uint64) float64 {
	acc := number(t, in[0])
	for _, bits := range in[1:] {
		v := number(t, bits)
		switch op {
		case Sum, Mean:
			acc += v
		case Prod:
			acc *= v
		case Min:
			if v != v || acc == acc && (v < acc || v == acc && math.Signbit(v)) {
				acc = v
			}
		case Max:
			if v != v || acc == acc && (v > acc || v == acc && !math.Signbit(v)) {
				acc = v
			}
		}
	}
	if op == Mean {
		acc /= float64(len(in))
	}
	return acc
}

// special holds bits that kernels get wrong: zeros, subnormals, ties, limits, infinities, NaNs quiet and signalling.
var special = map[Type][]uint64{
	F16: {0, 0x8000, 1, 0x8001, 2, 0x03ff, 0x83ff, 0x0400, 0x8400, 0x0401, 0x1000, 0x3bff, 0x3c00, 0xbc00, 0x3c01, 0x4000,
		0x4200, 0x6800, 0xe800, 0x6801, 0x7000, 0x77ff, 0x7800, 0xf800, 0x7bff, 0xfbff, 0x7bfe, 0x7c00, 0xfc00, 0x7c01, 0xfc01,
		0x7dff, 0x7e00, 0xfe00, 0x7e01, 0x7fff, 0xffff},
	BF16: {0, 0x8000, 1, 0x8001, 2, 0x007f, 0x807f, 0x0080, 0x8080, 0x0081, 0x0100, 0x1f80, 0x2000, 0x3f7f, 0x3f80, 0xbf80,
		0x3f81, 0x4000, 0x4040, 0x4380, 0xc380, 0x7eff, 0x7f00, 0xff00, 0x7f7f, 0xff7f, 0x7f7e, 0x7f80, 0xff80, 0x7f81, 0xff81,
		0x7fbf, 0x7fc0, 0xffc0, 0x7fc1, 0x7fff, 0xffff, 0x205b, 0x9fd5},
	F32: {0, 0x80000000, 1, 0x80000001, 0x007fffff, 0x00800000, 0x80800000, 0x3f7fffff, 0x3f800000, 0xbf800000, 0x3f800001,
		0x3f801000, 0x3f808000, 0x33800000, 0x4b800000, 0x4cbebc20, 0xccbebc20, 0x40800000, 0x7f7fffff, 0xff7fffff, 0x7f7f8000,
		0x7f800000, 0xff800000, 0x7f800001, 0xff800001, 0x7fbfffff, 0x7fc00000, 0xffc00000, 0x7fc00001, 0x7fffffff, 0xffffffff},
	F64: {0, 1 << 63, 1, 1<<63 | 1, 1<<52 - 1, 1 << 52, 0x3ff0000000000000, 0xbff0000000000000, 0x3ff0000000000001,
		0x3ff0000010000000, 0x3ff0000010000001, 0x3ca0000000000000, 0x4340000000000000, 0x7fefffffffffffff, 0xffefffffffffffff,
		0x47efffffffffffff, 0x47efffffe0000000, 0x47effffff0000000, 0x36a0000000000000, 0x3690000000000000, 0x3690000000000001,
		0x7ff0000000000000, 0xfff0000000000000, 0x7ff0000000000001, 0xfff0000000000001, 0x7ff8000000000000, 0xfff8000000000000,
		0x7ff8000000000001, 0x7fffffffffffffff, 0xffffffffffffffff},
	I8:  {0, 1, 2, 100, 126, 127, 128, 129, 254, 255},
	U8:  {0, 1, 2, 100, 126, 127, 128, 129, 254, 255},
	I32: {0, 1, 2, 0x7ffffffe, 0x7fffffff, 0x80000000, 0x80000001, 0xfffffffe, 0xffffffff, 0x10000},
	I64: {0, 1, 2, 1<<63 - 2, 1<<63 - 1, 1 << 63, 1<<63 + 1, 1<<64 - 2, 1<<64 - 1, 1 << 32, 1<<53 + 1},
}

// random returns bits of one of three kinds in turn: special, any, and numbers of like size, which cancel and tie.
func random(r *rand.Rand, t Type) uint64 {
	mask := uint64(1)<<(8*t.Size()-1)<<1 - 1
	switch kind := r.IntN(3); {
	case kind == 0:
		return special[t][r.IntN(len(special[t]))]
	case kind == 1 || !t.Float():
		return r.Uint64() & mask
	}
	return round(t, float64(r.IntN(1<<14)-1<<13)*math.Ldexp(1, r.IntN(12)-10))
}

const guardBytes = 64

// guarded is a buffer with guard bytes on both sides.
type guarded struct {
	Buffer
	before, behind []byte
}

// newGuarded lays count elements of type t behind skip others, so that they are aligned as elements only.
func newGuarded(t Type, count, skip int) guarded {
	start, end := guardBytes+skip*t.Size(), guardBytes+(skip+count)*t.Size()
	words := make([]uint64, (end+guardBytes+7)/8)
	all := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*8)
	for i := range all {
		all[i] = 0xa5
	}
	b, err := Bytes(t, all[start:end])
	if err != nil {
		panic(err)
	}
	return guarded{b, all[:start], all[end:]}
}

func (g guarded) fill(v []uint64) guarded {
	for i := range v {
		setElement(g.Buffer, i, v[i])
	}
	return g
}

// outside reports whether something was written beside the buffer.
func (g guarded) outside() bool {
	return bytes.Count(g.before, []byte{0xa5}) != len(g.before) || bytes.Count(g.behind, []byte{0xa5}) != len(g.behind)
}

func randoms(r *rand.Rand, t Type, count int) []uint64 {
	v := make([]uint64, count)
	for i := range v {
		v[i] = random(r, t)
	}
	return v
}

// expect stops the test at the first element that differs.
func expect(t *testing.T, what string, got guarded, want []uint64) {
	t.Helper()
	for i := range want {
		if e := element(got.Buffer, i); e != want[i] {
			t.Fatalf("%s: %v element %d of %d is %#x, want %#x", what, got.Type(), i, len(want), e, want[i])
		}
	}
	if got.outside() {
		t.Fatalf("%s: wrote beside the %d elements", what, len(want))
	}
}

// lengths are all short ones and some that need several vectors or blocks and leave a tail.
func lengths() []int {
	var l []int
	for n := range 101 {
		if !testing.Short() || n < 20 || n%8 == 7 {
			l = append(l, n)
		}
	}
	for n := 1000; n <= 1033; n++ {
		if !testing.Short() || n%11 == 0 {
			l = append(l, n)
		}
	}
	return append(l, 2500)
}
