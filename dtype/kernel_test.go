package dtype

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/x448/float16"
)

// TestFoldMatchesOracle holds every operation on every type, level and length against the oracle, bit for bit: with the
// destination apart and the same memory as each of the sources, at unaligned addresses and between guards.
func TestFoldMatchesOracle(t *testing.T) {
	defer levels[0].set()
	r := rand.New(rand.NewPCG(1, 2))
	for _, typ := range allTypes {
		for op := Sum; op <= BitXor; op++ {
			if Supports(op, typ) != nil {
				continue
			}
			for i, count := range lengths() {
				testFold(t, r, op, typ, count, 1+i%5)
			}
		}
	}
}

func testFold(t *testing.T, r *rand.Rand, op ReduceOp, typ Type, count, n int) {
	t.Helper()
	in := make([][]uint64, n)
	for k := range in {
		in[k] = randoms(r, typ, count)
	}
	want := make([]uint64, count)
	column := make([]uint64, n)
	for i := range want {
		for k := range in {
			column[k] = in[k][i]
		}
		want[i] = foldOracle(op, typ, column)
	}
	for _, l := range levels {
		l.set()
		for alias := -1; alias < n; alias++ { // the source that dst is the same memory as
			if count > 100 && alias >= 0 && alias != count%n {
				continue // long ones take one of them
			}
			srcs, buffers := make([]guarded, n), make([]Buffer, n)
			for k := range srcs {
				srcs[k] = newGuarded(typ, count, r.IntN(17)).fill(in[k])
				buffers[k] = srcs[k].Buffer
			}
			dst := newGuarded(typ, count, r.IntN(17))
			if alias >= 0 {
				dst = srcs[alias]
			}
			what := fmt.Sprintf("%s: %v of %d, dst = source %d", l.name, op, n, alias)
			if err := Fold(op, dst.Buffer, buffers...); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			expect(t, what, dst, want)
			for k := range srcs {
				if k != alias {
					expect(t, what+": source", srcs[k], in[k])
				}
			}
		}
	}
}

func TestFoldTakesASourceTwice(t *testing.T) {
	a := []int32{1, 2, 3}
	if err := Fold(Sum, Of(a), Of(a), Of(a), Of(a)); err != nil || a[2] != 9 {
		t.Errorf("a+a+a in place = %v, %v", a, err)
	}
}

func TestReduceMatchesOracle(t *testing.T) {
	defer levels[0].set()
	r := rand.New(rand.NewPCG(3, 4))
	for _, typ := range allTypes {
		for op := Sum; op <= BitXor; op++ {
			if Supports(op, typ) != nil || op == Mean {
				continue
			}
			for _, count := range lengths() {
				a, b := randoms(r, typ, count), randoms(r, typ, count)
				apart, same := make([]uint64, count), make([]uint64, count)
				for i := range a {
					apart[i] = foldOracle(op, typ, []uint64{a[i], b[i]})
					same[i] = foldOracle(op, typ, []uint64{a[i], a[i]})
				}
				for _, l := range levels {
					l.set()
					dst, src := newGuarded(typ, count, r.IntN(17)).fill(a), newGuarded(typ, count, r.IntN(17)).fill(b)
					if err := Reduce(op, dst.Buffer, src.Buffer); err != nil {
						t.Fatal(err)
					}
					expect(t, l.name+": "+op.String(), dst, apart)
					expect(t, l.name+": source of "+op.String(), src, b)
					dst.fill(a)
					if err := Reduce(op, dst.Buffer, dst.Buffer); err != nil {
						t.Fatal(err)
					}
					expect(t, l.name+": "+op.String()+" with itself", dst, same)
				}
			}
		}
	}
}

// TestReduceBeyondOneCall covers the cuts into calls of bounded length.
func TestReduceBeyondOneCall(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	count := 2*maxCall + 7
	a, b := randoms(r, F32, count), randoms(r, F32, count)
	dst := newGuarded(F32, count, 1).fill(a)
	if err := Reduce(Sum, dst.Buffer, newGuarded(F32, count, 3).fill(b).Buffer); err != nil {
		t.Fatal(err)
	}
	for i := range a {
		a[i] = foldOracle(Sum, F32, []uint64{a[i], b[i]})
	}
	expect(t, "sum", dst, a)
}

// TestPeers30_ReduceAll16 takes every 16-bit operand with every special one, in both places.
func TestPeers30_ReduceAll16(t *testing.T) {
	ops := []ReduceOp{Sum, Prod, Min, Max}
	defer levels[0].set()
	for _, typ := range []Type{F16, BF16} {
		all := make([]uint64, 1<<16)
		for i := range all {
			all[i] = uint64(i)
		}
		a, b := newGuarded(typ, 1<<16, 0).fill(all), newGuarded(typ, 1<<16, 1)
		dst := newGuarded(typ, 1<<16, 0)
		want := make([]uint64, 1<<16)
		specials := special[typ]
		if testing.Short() {
			specials = specials[:4]
		}
		for _, s := range specials {
			for i := range all {
				setElement(b.Buffer, i, s)
			}
			for _, op := range ops {
				for i := range want {
					want[i] = foldOracle(op, typ, []uint64{uint64(i), s})
				}
				packed := newGuarded(typ, 1<<16, 0).fill(want).HostBytes()
				each := levels
				if op != Sum {
					each = levels[:1] // generic at every level
				}
				for _, l := range each {
					l.set()
					what := fmt.Sprintf("%s: %v with %#x", l.name, op, s)
					for _, srcs := range [][]Buffer{{a.Buffer, b.Buffer}, {b.Buffer, a.Buffer}} {
						if err := Fold(op, dst.Buffer, srcs...); err != nil {
							t.Fatal(err)
						}
						if !bytes.Equal(dst.HostBytes(), packed) || dst.outside() {
							expect(t, what, dst, want)
						}
					}
				}
			}
		}
	}
}

// checkConversion converts the elements at every level.
func checkConversion(t *testing.T, to, from Type, in, want []uint64) {
	t.Helper()
	defer levels[0].set()
	src := newGuarded(from, len(in), 1).fill(in)
	for _, l := range levels {
		l.set()
		dst := newGuarded(to, len(in), 3)
		if err := Convert(dst.Buffer, src.Buffer); err != nil {
			t.Fatal(err)
		}
		expect(t, fmt.Sprintf("%s: %v to %v", l.name, from, to), dst, want)
	}
}

// TestPeers30_ConvertAll16 takes every 16-bit float to the wider types and back. NaNs keep their payload and become quiet.
func TestPeers30_ConvertAll16(t *testing.T) {
	var all, f16AsF32, f16AsF64, bf16AsF32, bf16AsF64, f16Back, bf16Back []uint64
	for i := range uint64(1 << 16) {
		all = append(all, i)
		f := float16.Frombits(uint16(i)).Float32()
		f16AsF32 = append(f16AsF32, uint64(math.Float32bits(f)))
		f16AsF64 = append(f16AsF64, wideBits(i, 10, 5, 52, 11))
		bf16AsF32 = append(bf16AsF32, i<<16)
		bf16AsF64 = append(bf16AsF64, wideBits(i, 7, 8, 52, 11))
		f16Back = append(f16Back, quietBits(i, 0x7c00, 0x200))
		bf16Back = append(bf16Back, quietBits(i, 0x7f80, 0x40))
	}
	checkConversion(t, F32, F16, all, f16AsF32)
	checkConversion(t, F64, F16, all, f16AsF64)
	checkConversion(t, F32, BF16, all, bf16AsF32)
	checkConversion(t, F64, BF16, all, bf16AsF64)
	checkConversion(t, F16, F32, f16AsF32, f16Back)
	checkConversion(t, F16, F64, f16AsF64, f16Back)
	checkConversion(t, BF16, F32, bf16AsF32, bf16Back)
	checkConversion(t, BF16, F64, bf16AsF64, bf16Back)
}

func quietBits(bits, inf, quiet uint64) uint64 {
	if bits&0x7fff > inf {
		return bits | quiet
	}
	return bits
}

// wideBits widens a float given by the widths of its fraction and exponent, by its definition.
func wideBits(bits uint64, fraction, exponent, toFraction, toExponent int) uint64 {
	sign := bits >> (fraction + exponent) & 1 << (toFraction + toExponent)
	e, f := bits>>fraction&(1<<exponent-1), bits&(1<<fraction-1)
	if e == 1<<exponent-1 {
		if f != 0 {
			f |= 1 << (fraction - 1)
		}
		return sign | (1<<toExponent-1)<<toFraction | f<<(toFraction-fraction)
	}
	bias := 1<<(exponent-1) - 1
	x := math.Ldexp(float64(f), max(int(e), 1)-bias-fraction)
	if e > 0 {
		x += math.Ldexp(1, int(e)-bias)
	}
	return sign | math.Float64bits(x)
}

// TestPeers30_ConvertF32To16 walks through all of float32 with a stride, and through every tie and its neighbours.
func TestPeers30_ConvertF32To16(t *testing.T) {
	var in []uint64
	stride := uint64(4099)
	if testing.Short() {
		stride *= 16
	}
	for u := uint64(0); u < 1<<32; u += stride {
		in = append(in, u)
	}
	for i := range uint64(1 << 15) {
		for _, typ := range []Type{F16, BF16} {
			if x := middle(typ, i); i < uint64(len(magnitudes[typ])-1) {
				u := uint64(math.Float32bits(float32(x)))
				in = append(in, u, u|1<<31, u+1, u-1, (u+1)|1<<31, (u-1)|1<<31)
			}
		}
	}
	toF16, toBF16 := make([]uint64, len(in)), make([]uint64, len(in))
	for i, u := range in {
		f := math.Float32frombits(uint32(u))
		toF16[i] = uint64(float16.Fromfloat32(f))
		toBF16[i] = round(BF16, float64(f))
		if f != f {
			toBF16[i] = u>>16 | 0x40
		} else if want := round(F16, float64(f)); want != toF16[i] {
			t.Fatalf("oracles differ: %v to %#x or %#x", f, want, toF16[i])
		}
		if b := BFloat16FromFloat32(f); uint64(b) != toBF16[i] {
			t.Fatalf("BFloat16FromFloat32(%v) = %#x, want %#x", f, b, toBF16[i])
		}
	}
	checkConversion(t, F16, F32, in, toF16)
	checkConversion(t, BF16, F32, in, toBF16)
}

// middle is halfway between the 16-bit floats with bits i and i+1, which is exact in float64 and in float32.
func middle(t Type, i uint64) float64 {
	if i+1 >= uint64(len(magnitudes[t])) {
		return 0
	}
	return (magnitudes[t][i] + magnitudes[t][i+1]) / 2
}

// TestConvertF64RoundsOnce puts numbers so close to every tie of the 16-bit floats that rounding to float32 first would move
// them onto it, and does the same for ties of float32.
func TestConvertF64RoundsOnce(t *testing.T) {
	for _, typ := range []Type{F16, BF16} {
		var in []uint64
		for i := range uint64(len(magnitudes[typ]) - 1) {
			x := middle(typ, i)
			for _, v := range []float64{x, math.Nextafter(x, 0), math.Nextafter(x, 1e300), x * (1 + 0x1p-40), x * (1 - 0x1p-26)} {
				in = append(in, math.Float64bits(v), math.Float64bits(-v))
			}
		}
		in = append(in, special[F64][:21]...)
		want := make([]uint64, len(in))
		for i, u := range in {
			want[i] = round(typ, math.Float64frombits(u))
		}
		checkConversion(t, typ, F64, in, want)
	}
}

// TestConvertNaN shows what is left of a NaN's payload.
func TestConvertNaN(t *testing.T) {
	checkConversion(t, F32, F64, []uint64{0x7ff0000000000001, 0xfffabcdef1234567, 0x7ff8000000000000}, []uint64{0x7fc00000, 0xffd5e6f7, 0x7fc00000})
	checkConversion(t, F64, F32, []uint64{0x7f800001, 0xffd5e6f7}, []uint64{0x7ff8000020000000, 0xfffabcdee0000000})
	checkConversion(t, F16, F64, []uint64{0x7ff0000000000001, 0xfffabcdef1234567}, []uint64{0x7e00, 0xfeaf})
	checkConversion(t, BF16, F64, []uint64{0x7ff0000000000001, 0xfffabcdef1234567}, []uint64{0x7fc0, 0xffd5})
	checkConversion(t, BF16, F16, []uint64{0x7c01, 0xfe80}, []uint64{0x7fc0, 0xffd0})
	checkConversion(t, F16, BF16, []uint64{0x7f81, 0xffd0}, []uint64{0x7e08, 0xfe80})
	checkConversion(t, F64, F64, []uint64{0x7ff0000000000001}, []uint64{0x7ff0000000000001}) // a copy
}

// TestConvertLengths holds every pair at every length and level against the oracle.
func TestConvertLengths(t *testing.T) {
	defer levels[0].set()
	r := rand.New(rand.NewPCG(7, 8))
	for _, from := range floatTypes {
		for _, to := range floatTypes {
			for _, count := range lengths() {
				in, want := randoms(r, from, count), make([]uint64, count)
				for i, u := range in {
					if x := number(from, u); x != x {
						in[i] = canonicalNaN(from)
					}
					want[i] = round(to, number(from, in[i]))
				}
				checkConversion(t, to, from, in, want)
			}
		}
	}
	in := f16(1, -2, 0.333)
	b, _ := Bytes(BF16, Of(in).HostBytes())
	if err := Convert(b, Of(in)); err != nil || BFloat16(in[1]).Float32() != -2 {
		t.Errorf("f16 to bf16 in place: %v %v", BFloat16(in[1]).Float32(), err)
	}
}

// TestWidenFinish takes the way of partials: widened, summed, finished. It must equal Fold.
func TestWidenFinish(t *testing.T) {
	defer levels[0].set()
	r := rand.New(rand.NewPCG(9, 10))
	for _, typ := range allTypes {
		for op := Sum; op <= BitXor; op++ {
			if Supports(op, typ) != nil {
				continue
			}
			for _, count := range lengths() {
				a, b := randoms(r, typ, count), randoms(r, typ, count)
				want := make([]uint64, count)
				for i := range want {
					want[i] = foldOracle(op, typ, []uint64{a[i], b[i]})
				}
				for _, l := range levels {
					l.set()
					partial := newGuarded(Accumulator(op, typ), count, r.IntN(5))
					other := newGuarded(Accumulator(op, typ), count, r.IntN(5))
					dst := newGuarded(typ, count, r.IntN(17))
					step := op
					if op == Mean {
						step = Sum
					}
					for _, err := range []error{
						Widen(partial.Buffer, newGuarded(typ, count, 1).fill(a).Buffer),
						Widen(other.Buffer, newGuarded(typ, count, 1).fill(b).Buffer),
						Reduce(step, partial.Buffer, other.Buffer),
						Finish(op, dst.Buffer, partial.Buffer, 2),
					} {
						if err != nil {
							t.Fatal(err)
						}
					}
					expect(t, l.name+": finished "+op.String(), dst, want)
					if partial.outside() {
						t.Fatalf("%s: %v wrote beside the partials", l.name, op)
					}
				}
			}
		}
	}
}

func TestDivide(t *testing.T) {
	defer levels[0].set()
	r := rand.New(rand.NewPCG(11, 12))
	for _, typ := range allTypes {
		for i, count := range lengths() {
			n := []int{1, 2, 3, 7, 64, 1000003}[i%6]
			in, want := randoms(r, typ, count), make([]uint64, count)
			for i, u := range in {
				if typ.Float() {
					want[i] = round(typ, number(typ, u)/float64(n))
				} else {
					want[i] = uint64(meanOracle(signed(typ, u), int64(n))) & (1<<(8*typ.Size()-1)<<1 - 1)
				}
			}
			for _, l := range levels {
				l.set()
				dst := newGuarded(typ, count, r.IntN(17)).fill(in)
				if err := Divide(dst.Buffer, n); err != nil {
					t.Fatal(err)
				}
				expect(t, fmt.Sprintf("%s: divided by %d", l.name, n), dst, want)
			}
		}
	}
}
