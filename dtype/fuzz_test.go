package dtype

import (
	"math"
	"testing"
)

// fuzzBuffers cuts data into n equal sources of type t.
func fuzzBuffers(typ Type, data []byte, n int) (srcs []guarded, count int) {
	count = min(len(data)/(typ.Size()*n), 4096)
	for k := range n {
		g := newGuarded(typ, count, k%3)
		copy(g.HostBytes(), data[k*g.Nbytes():])
		srcs = append(srcs, g)
	}
	return srcs, count
}

// FuzzFold holds folds of arbitrary bits against the oracle at every level.
func FuzzFold(f *testing.F) {
	f.Add(uint8(F16), uint8(Sum), uint8(3), []byte("\x00\x7c\x00\xfc\x01\x00\xff\x7b\xff\x7b\x01\x80\x00\x7e"))
	f.Add(uint8(BF16), uint8(Mean), uint8(4), []byte("\x80\x43\x80\x3f\x80\x3f\x80\x3f\x80\x7f\x81\x7f\x7f\x7f\x00\x80"))
	f.Add(uint8(F32), uint8(Prod), uint8(3), []byte("\x01\x00\x00\x00\x00\x00\x80\x7f\xff\xff\x7f\x7f"))
	f.Add(uint8(F64), uint8(Min), uint8(2), []byte("\x00\x00\x00\x00\x00\x00\x00\x80\x01\x00\x00\x00\x00\x00\xf0\x7f"))
	f.Add(uint8(I8), uint8(Mean), uint8(3), []byte("\x64\x64\x64"))
	f.Add(uint8(U8), uint8(Sum), uint8(2), []byte("\xff\x80\x7f\x01\xff\xff\x00\x00\x01\xff\x80\x7f\x02\xfe\xff\x80\x80\x80"))
	f.Add(uint8(I64), uint8(BitXor), uint8(2), []byte("0123456789abcdef"))
	f.Fuzz(func(t *testing.T, typ, op, n uint8, data []byte) {
		if Supports(ReduceOp(op), Type(typ)) != nil || n == 0 || n > 16 {
			return
		}
		srcs, count := fuzzBuffers(Type(typ), data, int(n))
		buffers, column, want := make([]Buffer, n), make([]uint64, n), make([]uint64, count)
		for i := range want {
			for k := range srcs {
				buffers[k], column[k] = srcs[k].Buffer, element(srcs[k].Buffer, i)
			}
			want[i] = foldOracle(ReduceOp(op), Type(typ), column)
		}
		if count == 0 {
			return
		}
		defer levels[0].set()
		for _, l := range levels {
			l.set()
			dst := newGuarded(Type(typ), count, 1)
			if err := Fold(ReduceOp(op), dst.Buffer, buffers...); err != nil {
				t.Fatal(err)
			}
			expect(t, l.name, dst, want)
		}
	})
}

// FuzzConvert holds conversions of arbitrary bits against the oracle at every level; NaNs only have to stay NaNs, alike at
// every level.
func FuzzConvert(f *testing.F) {
	f.Add(uint8(F16), uint8(F64), []byte("\x00\x00\x00\x00\x00\x02\xa0\x40\x01\x00\x00\x00\x00\x02\xa0\x40"))
	f.Add(uint8(BF16), uint8(F32), []byte("\x00\x80\x80\x3f\x01\x00\x80\x7f\xff\xff\x7f\x7f\x00\x80\x00\x00"))
	f.Add(uint8(F32), uint8(BF16), []byte("\x81\x7f\x80\x7f\x01\x00"))
	f.Fuzz(func(t *testing.T, to, from uint8, data []byte) {
		if !Type(to).Float() || !Type(from).Float() {
			return
		}
		srcs, count := fuzzBuffers(Type(from), data, 1)
		src := srcs[0].Buffer
		defer levels[0].set()
		var first guarded
		for _, l := range levels {
			l.set()
			dst := newGuarded(Type(to), count, 1)
			if err := Convert(dst.Buffer, src); err != nil {
				t.Fatal(err)
			}
			for i := range count {
				x, got := number(Type(from), element(src, i)), element(dst.Buffer, i)
				if x == x && got != round(Type(to), x) || x != x && !math.IsNaN(number(Type(to), got)) {
					t.Fatalf("%s: %v to %v: %#x gives %#x", l.name, Type(from), Type(to), element(src, i), got)
				}
				if first.Buffer != (Buffer{}) && got != element(first.Buffer, i) {
					t.Fatalf("%v to %v: %#x gives %#x with %s, %#x with %s", Type(from), Type(to), element(src, i), got, l.name, element(first.Buffer, i), levels[0].name)
				}
			}
			if dst.outside() {
				t.Fatalf("%s: wrote beside the buffer", l.name)
			}
			if first.Buffer == (Buffer{}) {
				first = dst
			}
		}
	})
}
