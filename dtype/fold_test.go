package dtype

import (
	"errors"
	"testing"

	"github.com/x448/float16"
)

// f16 and bf16 make test inputs out of numbers.
func f16(v ...float32) []Float16 {
	s := make([]Float16, len(v))
	for i, f := range v {
		s[i] = float16.Fromfloat32(f)
	}
	return s
}

func bf16(v ...float32) []BFloat16 {
	s := make([]BFloat16, len(v))
	for i, f := range v {
		s[i] = BFloat16FromFloat32(f)
	}
	return s
}

// foldOf folds one-element inputs.
func foldOf[T Element](t *testing.T, op ReduceOp, in ...T) T {
	t.Helper()
	srcs := make([]Buffer, len(in))
	for i := range in {
		srcs[i] = Of(in[i : i+1])
	}
	var dst [1]T
	if err := Fold(op, Of(dst[:]), srcs...); err != nil {
		t.Fatalf("Fold(%v, %v): %v", op, in, err)
	}
	return dst[0]
}

func expectFold[T Element](t *testing.T, want T, op ReduceOp, in ...T) {
	t.Helper()
	if got := foldOf(t, op, in...); got != want {
		t.Errorf("%v of %v = %v, want %v", op, in, got, want)
	}
}

func TestFoldNamedValues(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		expectFold(t, f16(30000)[0], Mean, f16(30000, 30000, 30000, 30000)...)
		expectFold(t, f16(65504)[0], Mean, f16(65504, 65504, 65504, 65504)...)
		expectFold(t, f16(3)[0], Mean, f16(3, 3, 3)...)
		expectFold(t, f16(2052)[0], Sum, f16(2048, 1, 1, 1)...) // 2051 is a tie
		expectFold(t, bf16(260)[0], Sum, bf16(256, 1, 1, 1)...) // 259 is a tie
		expectFold(t, bf16(3)[0], Mean, bf16(3, 3, 3)...)
		expectFold(t, bf16(2.5)[0], Mean, bf16(1, 2, 3, 4)...)
		expectFold[float32](t, 8, Sum, 1e8, -1e8, 4, 4)
		expectFold[float32](t, 3, Mean, 3, 3, 3)
		expectFold[float32](t, 3e38, Mean, 3e38, 3e38, 3e38)
		expectFold(t, 3.0, Mean, 3, 3, 3)
		expectFold[int8](t, 100, Mean, 100, 100, 100)
		expectFold[int8](t, 44, Sum, 100, 100, 100) // wraps
		expectFold[int8](t, -2, Mean, -1, -2)       // half away from zero
		expectFold[int8](t, 2, Mean, 1, 2)
		expectFold[int8](t, -128, Mean, -128, -127)
		expectFold[uint8](t, 255, Mean, 255, 255, 255, 255, 254)
		expectFold[int32](t, 1<<31-1, Mean, 1<<31-1, 1<<31-1, 1<<31-1)
		expectFold[int64](t, 1<<53+1, Mean, 1<<53+1, 1<<53+1)
		expectFold[int64](t, 1<<53+1, Sum, 1<<53, 1, 0)
		expectFold[int64](t, 1<<53+1, Max, 1<<53+1, 1<<53, 0)
		expectFold[int64](t, -1, Mean, 1<<63-1, 1<<63-1) // the sum wraps to -2, as documented
		expectFold[int32](t, 1<<30, Prod, 1<<15, 1<<15)
		expectFold[uint8](t, 0b0100, BitAnd, 0b1100, 0b0110, 0b0101)
		expectFold[uint8](t, 0b1111, BitOr, 0b1100, 0b0110, 0b0101)
		expectFold[uint8](t, 0b1111, BitXor, 0b1100, 0b0110, 0b0101)
	})
}

func TestSupports(t *testing.T) {
	for op := Sum; op <= BitXor; op++ {
		for typ := F16; typ <= I64; typ++ {
			err := Supports(op, typ)
			if want := op >= BitAnd && typ.Float(); want != errors.Is(err, errors.ErrUnsupported) || want != (err != nil) {
				t.Errorf("Supports(%v, %v) = %v", op, typ, err)
			}
		}
	}
}
