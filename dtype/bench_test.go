package dtype

import (
	"fmt"
	"testing"
)

var benchSizes = []struct {
	name   string
	nbytes int
}{{"4B", 4}, {"1KiB", 1 << 10}, {"64KiB", 64 << 10}, {"4MiB", 4 << 20}}

// benchBuffer is filled with ones.
func benchBuffer(t Type, nbytes int) Buffer {
	b := newGuarded(t, max(nbytes/t.Size(), 1), 0).Buffer
	one := uint64(1)
	if t.Float() {
		one = round(t, 1)
	}
	for i := range b.Count() {
		setElement(b, i, one)
	}
	return b
}

func eachBench(b *testing.B, f func(b *testing.B, nbytes int)) {
	defer levels[0].set()
	for _, size := range benchSizes {
		for _, l := range []level{levels[0], levels[len(levels)-1]} {
			b.Run(fmt.Sprintf("size=%s/%s", size.name, l.name), func(b *testing.B) {
				l.set()
				b.SetBytes(int64(size.nbytes))
				f(b, size.nbytes)
			})
		}
	}
}

func BenchmarkReduce(b *testing.B) {
	for _, c := range []struct {
		op  ReduceOp
		typ Type
	}{{Sum, F16}, {Sum, BF16}, {Sum, F32}, {Sum, F64}, {Sum, I8}, {Sum, I32}, {Sum, I64}, {Max, F16}, {Max, F32}, {Prod, F32}, {BitXor, I32}} {
		b.Run(fmt.Sprintf("%v/%v", c.op, c.typ), func(b *testing.B) {
			eachBench(b, func(b *testing.B, nbytes int) {
				dst, src := benchBuffer(c.typ, nbytes), benchBuffer(c.typ, nbytes)
				for b.Loop() {
					if err := Reduce(c.op, dst, src); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

// BenchmarkFold counts the bytes of one of its four sources.
func BenchmarkFold(b *testing.B) {
	for _, c := range []struct {
		op  ReduceOp
		typ Type
	}{{Sum, F16}, {Sum, BF16}, {Sum, F32}, {Sum, F64}, {Mean, F32}, {Mean, I8}, {Sum, I32}} {
		b.Run(fmt.Sprintf("%v/%v", c.op, c.typ), func(b *testing.B) {
			eachBench(b, func(b *testing.B, nbytes int) {
				dst := benchBuffer(c.typ, nbytes)
				srcs := []Buffer{benchBuffer(c.typ, nbytes), benchBuffer(c.typ, nbytes), benchBuffer(c.typ, nbytes), benchBuffer(c.typ, nbytes)}
				for b.Loop() {
					if err := Fold(c.op, dst, srcs...); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

// BenchmarkConvert counts the bytes of the source.
func BenchmarkConvert(b *testing.B) {
	for _, c := range []struct{ to, from Type }{{F16, F32}, {F32, F16}, {BF16, F32}, {F32, BF16}, {F16, F64}, {F64, BF16}, {F32, F64}} {
		b.Run(fmt.Sprintf("%v-%v", c.from, c.to), func(b *testing.B) {
			eachBench(b, func(b *testing.B, nbytes int) {
				src := benchBuffer(c.from, nbytes)
				dst := benchBuffer(c.to, src.Count()*c.to.Size())
				for b.Loop() {
					if err := Convert(dst, src); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}
