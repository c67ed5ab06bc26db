package dtype

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"unsafe"
)

func TestTypes(t *testing.T) {
	sizes := map[Type]int{F16: 2, BF16: 2, F32: 4, F64: 8, I8: 1, U8: 1, I32: 4, I64: 8, 0: 0, 9: 0, 255: 0}
	for typ, size := range sizes {
		if typ.Size() != size {
			t.Errorf("%v.Size() = %d, want %d", typ, typ.Size(), size)
		}
		if got, err := ParseType(typ.String()); size > 0 && (got != typ || err != nil) || size == 0 && err == nil {
			t.Errorf("ParseType(%q) = %v, %v", typ, got, err)
		}
	}
	for got, want := range map[Type]Type{TypeOf[Float16](): F16, TypeOf[BFloat16](): BF16, TypeOf[float32](): F32, TypeOf[float64](): F64,
		TypeOf[int8](): I8, TypeOf[uint8](): U8, TypeOf[int32](): I32, TypeOf[int64](): I64} {
		if got != want {
			t.Errorf("TypeOf gave %v, want %v", got, want)
		}
	}
}

func TestReduceOps(t *testing.T) {
	for op := ReduceOp(0); op < 12; op++ {
		got, err := ParseReduceOp(op.String())
		if valid := op >= Sum && op <= BitXor; valid != op.Valid() || valid != (err == nil) || valid && got != op {
			t.Errorf("%v: valid %v, parsed to %v, %v", op, op.Valid(), got, err)
		}
	}
	if op, err := ParseReduceOp("avg"); op != Mean || err != nil {
		t.Errorf("avg is %v, %v", op, err)
	}
}

func TestBuffer(t *testing.T) {
	s := []int32{1, 2, 3, 4, 5}
	b := Of(s).Slice(1, 4)
	if b.Type() != I32 || b.Count() != 3 || b.Nbytes() != 12 || b.OnDevice() || b.DevicePtr() != 0 || b.DeviceOrdinal() != -1 {
		t.Errorf("slice of a host buffer: %+v", b)
	}
	if v, err := View[int32](b.Slice(1, 3)); err != nil || len(v) != 2 || &v[0] != &s[2] {
		t.Errorf("View = %v, %v, not the same memory", v, err)
	}
	if want := []byte{2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0}; !bytes.Equal(b.HostBytes(), want) {
		t.Errorf("HostBytes = %v", b.HostBytes())
	}
	if end := b.Slice(3, 3); end.Count() != 0 || len(end.HostBytes()) != 0 {
		t.Errorf("empty slice at the end: %+v", end)
	}
	var zero Buffer
	if zero.Type() != 0 || zero.Count() != 0 || zero.Nbytes() != 0 || zero.OnDevice() || len(zero.HostBytes()) != 0 || zero.Slice(0, 0) != zero {
		t.Errorf("the zero buffer is not empty: %+v", zero)
	}
	if e := Of([]float64(nil)); e.Type() != F64 || e.Count() != 0 || len(e.HostBytes()) != 0 {
		t.Errorf("buffer of nil: %+v", e)
	}
	if _, err := View[uint8](Of([]int8{1})); err == nil {
		t.Error("View took an i8 buffer as u8")
	}
}

func TestDeviceBuffer(t *testing.T) {
	d := Device(F32, 1<<40, 1000, 3).Slice(10, 20)
	if !d.OnDevice() || d.DevicePtr() != 1<<40+40 || d.DeviceOrdinal() != 3 || d.Count() != 10 || d.Nbytes() != 40 || d.HostBytes() != nil {
		t.Errorf("slice of a device buffer: %+v", d)
	}
	if empty := Device(F32, 0, 0, 0); !empty.OnDevice() || empty.HostBytes() != nil || empty.DeviceOrdinal() != 0 {
		t.Errorf("empty device buffer: %+v", empty)
	}
	h := Of(make([]float32, 10))
	for name, err := range map[string]error{
		"Reduce":  Reduce(Sum, h, d),
		"Fold":    Fold(Sum, d, h, h),
		"Convert": Convert(Of(make([]float64, 10)), d),
		"Widen":   Widen(d, h),
		"Finish":  Finish(Max, h, d, 1),
		"Divide":  Divide(d, 2),
	} {
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "device") {
			t.Errorf("%s of device memory: %v", name, err)
		}
	}
	if _, err := View[float32](d); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("View of device memory: %v", err)
	}
}

func expectPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if s, ok := recover().(string); !ok || !strings.HasPrefix(s, "dtype: ") {
			t.Errorf("%s: panic %q", what, s)
		}
	}()
	f()
}

func TestSizesOutOfRangePanic(t *testing.T) {
	b := Of(make([]int64, 4))
	expectPanic(t, "slice before the start", func() { b.Slice(-1, 2) })
	expectPanic(t, "slice backwards", func() { b.Slice(3, 2) })
	expectPanic(t, "slice behind the end", func() { b.Slice(2, 5) })
	expectPanic(t, "negative count", func() { Device(I8, 0, -1, 0) })
	expectPanic(t, "size beyond int", func() { Device(I64, 0, math.MaxInt/8+1, 0) })
	expectPanic(t, "address beyond 64 bits", func() { Device(I64, math.MaxUint64-15, 2, 0) })
	expectPanic(t, "invalid type", func() { Device(0, 0, 1, 0) })
	expectPanic(t, "negative ordinal", func() { Device(I8, 0, 1, -1) })
	if n := Device(I64, 0, math.MaxInt/8, 0).Nbytes(); n != math.MaxInt/8*8 {
		t.Errorf("largest device buffer has %d bytes", n)
	}
}

func TestBytes(t *testing.T) {
	words := make([]uint64, 4)
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 32)
	for _, typ := range allTypes {
		b, err := Bytes(typ, raw)
		if err != nil || b.Type() != typ || b.Nbytes() != 32 || &b.HostBytes()[0] != &raw[0] {
			t.Errorf("Bytes(%v) = %+v, %v", typ, b, err)
		}
		if typ.Size() == 1 {
			continue
		}
		if _, err := Bytes(typ, raw[:31]); err == nil || !strings.Contains(err.Error(), "31 bytes") {
			t.Errorf("Bytes(%v) of 31 bytes: %v", typ, err)
		}
		if _, err := Bytes(typ, raw[1:17]); err == nil || !strings.Contains(err.Error(), "multiple of") {
			t.Errorf("Bytes(%v) of misaligned bytes: %v", typ, err)
		}
		if b, err := Bytes(typ, raw[1:1]); err != nil || b.Count() != 0 {
			t.Errorf("Bytes(%v) of no bytes at an odd address: %v", typ, err)
		}
	}
	if _, err := Bytes(0, nil); err == nil {
		t.Error("Bytes took the invalid type")
	}
}

func TestArgumentsRefused(t *testing.T) {
	f32, f64, i8 := Of(make([]float32, 8)), Of(make([]float64, 8)), Of(make([]int8, 8))
	for what, c := range map[string]struct {
		err         error
		unsupported bool
		text        string
	}{
		"mean by pairs":           {Reduce(Mean, f32, f32), true, "mean needs all inputs"},
		"bits of floats":          {Reduce(BitXor, f32, f32), true, "bitxor of f32"},
		"fold bits of floats":     {Fold(BitAnd, f64, f64, f64), true, "bitand of f64"},
		"invalid op":              {Reduce(0, f32, f32), false, "invalid reduce op 0"},
		"invalid op of a fold":    {Fold(99, f32, f32), false, "invalid reduce op 99"},
		"invalid type":            {Fold(Sum, Buffer{}, Buffer{}), false, "invalid type 0"},
		"types differ":            {Reduce(Sum, f32, f64), false, "source of f64, destination of f32"},
		"counts differ":           {Reduce(Sum, f32, f32.Slice(0, 7)), false, "source of 7 elements, destination of 8"},
		"overlap":                 {Reduce(Sum, f32.Slice(0, 4), f32.Slice(1, 5)), false, "overlap"},
		"overlap of a fold":       {Fold(Sum, f32.Slice(2, 6), f32.Slice(2, 6), f32.Slice(4, 8)), false, "source 1 of 2"},
		"no sources":              {Fold(Sum, f32), false, "no sources"},
		"fold of differing types": {Fold(Sum, f32, f32, i8), false, "source 1 of 2"},
		"convert integers":        {Convert(f32, i8), true, "i8 to f32"},
		"convert to integers":     {Convert(i8, f32), true, "f32 to i8"},
		"convert counts":          {Convert(f32, f64.Slice(0, 3)), false, "source of 3 elements"},
		"widen to less":           {Widen(f32, f64), true, "f64 to f32"},
		"widen to the other kind": {Widen(f64, i8), true, "i8 to f64"},
		"finish wrong partials":   {Finish(Sum, f32, f32, 2), false, "partials of f32, want f64 for sum of f32"},
		"finish without inputs":   {Finish(Sum, f32, f64, 0), false, "0 inputs"},
		"divide by zero":          {Divide(f32, 0), false, "by 0"},
		"divide nothing":          {Divide(Buffer{}, 2), false, "invalid type 0"},
	} {
		if c.err == nil || !strings.HasPrefix(c.err.Error(), "dtype: ") || !strings.Contains(c.err.Error(), c.text) ||
			errors.Is(c.err, errors.ErrUnsupported) != c.unsupported {
			t.Errorf("%s: %v", what, c.err)
		}
	}
	shared := Of(make([]float64, 4))
	narrow, _ := Bytes(F32, shared.HostBytes()[:16])
	if err := Convert(narrow, shared); err == nil || !strings.Contains(err.Error(), "overlap") {
		t.Errorf("convert over its own source: %v", err)
	}
}

func TestAccumulator(t *testing.T) {
	for _, typ := range allTypes {
		for op := Sum; op <= BitXor; op++ {
			want := typ
			if typ.Float() && (op == Sum || op == Mean || op == Prod) {
				want = F64
			} else if !typ.Float() && op == Mean {
				want = I64
			}
			if got := Accumulator(op, typ); got != want {
				t.Errorf("Accumulator(%v, %v) = %v, want %v", op, typ, got, want)
			}
		}
	}
}

// TestNoAllocations also keeps the operands on the stack: none of the calls lets them escape.
func TestNoAllocations(t *testing.T) {
	defer levels[0].set()
	for _, l := range levels {
		l.set()
		for _, typ := range allTypes {
			srcs := make([]Buffer, 64)
			for i := range srcs {
				srcs[i] = newGuarded(typ, 1100, 0).Buffer
			}
			dst, partial := srcs[5], newGuarded(Accumulator(Mean, typ), 1100, 0).Buffer
			wide := newGuarded(F64, 1100, 0).Buffer
			for name, f := range map[string]func() error{
				"Reduce":     func() error { return Reduce(Sum, dst, srcs[0]) },
				"Fold":       func() error { return Fold(Mean, dst, srcs...) },
				"Fold max":   func() error { return Fold(Max, dst, srcs...) },
				"short Fold": func() error { return Fold(Mean, dst.Slice(0, 9), srcs[0].Slice(0, 9), srcs[1].Slice(0, 9)) },
				"Widen":      func() error { return Widen(partial, dst) },
				"Finish":     func() error { return Finish(Mean, dst, partial, 3) },
				"Divide":     func() error { return Divide(dst, 3) },
				"Convert": func() error {
					if typ.Float() && typ != F64 {
						return Convert(wide, dst)
					}
					return nil
				},
				"stack": func() error {
					var a, b [8]float32
					return Fold(Sum, Of(a[:]), Of(a[:]), Of(b[:]), Of(b[:]))
				},
			} {
				if n := testing.AllocsPerRun(5, func() {
					if err := f(); err != nil {
						t.Fatal(err)
					}
				}); n != 0 {
					t.Errorf("%s: %s of %v: %v allocations", l.name, name, typ, n)
				}
			}
		}
	}
}
