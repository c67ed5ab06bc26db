package main

import (
	"bytes"
	"math"
	"testing"

	"github.com/goccl/goccl/dtype"
)

func TestBits16(t *testing.T) {
	for _, c := range []struct {
		v    float64
		f16  uint16
		bf16 uint16
	}{
		{1, 0x3c00, 0x3f80},
		{0.5, 0x3800, 0x3f00},
		{1 + 1.0/2048, 0x3c00, 0x3f80}, // half way, to even
		{1 + 3.0/2048, 0x3c02, 0x3f80}, // half way, to even
		{1 + 1.0/256, 0x3c04, 0x3f80},  // half way in bf16
		{1 + 3.0/256, 0x3c0c, 0x3f82},
		{2 - 1.0/4096, 0x4000, 0x4000}, // carries into the exponent
		{65504, 0x7bff, 0x4780},
		{1.0 / 64, 0x2400, 0x3c80},
	} {
		if got := bits16(c.v, 10); got != c.f16 {
			t.Errorf("f16 of %v is %#x, want %#x", c.v, got, c.f16)
		}
		if got := bits16(c.v, 7); got != c.bf16 {
			t.Errorf("bf16 of %v is %#x, want %#x", c.v, got, c.bf16)
		}
	}
}

func TestPatternFindsEveryWrongElement(t *testing.T) {
	for typ := dtype.Type(1); typ.Valid(); typ++ {
		p := inputPattern(typ, dtype.Sum, 3)
		const count = 3*period + 17
		for _, start := range []int{0, 1, period - 1, 5 * period, 12345} {
			buf := make([]byte, count*typ.Size())
			p.fill(buf, start)
			if n := p.wrong(buf, start); n != 0 {
				t.Errorf("%v from %d: %d of its own elements are wrong", typ, start, n)
			}
			if n := p.wrong(buf, start+1); n < count/2 {
				t.Errorf("%v from %d: a shift makes only %d elements wrong", typ, start, n)
			}
			for k, at := range []int{0, period, count - 1} {
				buf[at*typ.Size()] ^= 1
				if n := p.wrong(buf, start); n != int64(k+1) {
					t.Errorf("%v from %d: %d wrong elements, want %d", typ, start, n, k+1)
				}
			}
		}
	}
}

func TestReducedPattern(t *testing.T) {
	at := func(op dtype.ReduceOp, typ dtype.Type, size, j int) []byte {
		return reducedPattern(typ, op, size).tile[j*typ.Size() : (j+1)*typ.Size()]
	}
	f64 := func(v float64) []byte { return encodeFloat(dtype.F64, v) }
	for _, c := range []struct {
		name      string
		got, want []byte
	}{
		{"f64 sum", at(dtype.Sum, dtype.F64, 4, 2), f64((3 + 4 + 5 + 6) / 64.0)},
		{"f64 mean", at(dtype.Mean, dtype.F64, 4, 0), f64(2.5 / 64)},
		{"f64 max", at(dtype.Max, dtype.F64, 5, 13), f64(5.0 / 64)},
		{"f64 min", at(dtype.Min, dtype.F64, 5, 13), f64(1.0 / 64)},
		{"f64 prod", at(dtype.Prod, dtype.F64, 4, 0), f64(0.5)}, // 1/2 · 1 · 2 · 1/2
		{"i8 sum wraps", at(dtype.Sum, dtype.I8, 3, 0), []byte{(37 + 74 + 111) & 0xff}},
		{"i8 mean", at(dtype.Mean, dtype.I8, 4, 0), []byte{uint8(29)}}, // 37, 74, 111, -108: 28.5, away from zero
		{"u8 mean", at(dtype.Mean, dtype.U8, 2, 0), []byte{56}},        // 55.5
		{"u8 and", at(dtype.BitAnd, dtype.U8, 2, 0), []byte{37 & 74}},
		{"u8 xor", at(dtype.BitXor, dtype.U8, 3, 0), []byte{37 ^ 74 ^ 111}},
		{"i64 prod", at(dtype.Prod, dtype.I64, 2, 1), encodeInt(dtype.I64, 48*85)},
	} {
		if !bytes.Equal(c.got, c.want) {
			t.Errorf("%s: % x, want % x", c.name, c.got, c.want)
		}
	}
}

// Float inputs must be exact in every type, or the expected sums would not be those of the inputs.
func TestInputsAreExact(t *testing.T) {
	for rank := range 100 {
		for j := range period {
			for _, op := range []dtype.ReduceOp{dtype.Sum, dtype.Prod} {
				v := inputFloat(op, rank, j)
				b := encodeFloat(dtype.BF16, v)
				back := float64(math.Float32frombits(uint32(b[1])<<24 | uint32(b[0])<<16))
				if back != v {
					t.Fatalf("rank %d, element %d: %v becomes %v", rank, j, v, back)
				}
			}
		}
	}
}
