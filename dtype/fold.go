package dtype

import (
	"errors"
	"fmt"
)

// A fold works on blocks: the partials of a block stay in the cache while all inputs are added to them. Short folds take
// the small block, because clearing a large one would cost more than the fold, and that one stays out of their stack frame
// (noinline). Partials of any type fit into float64s.
const (
	blockCount      = 1024
	smallBlockCount = 64
)

// Fold combines srcs in their order and rounds once: see the package's numeric rules. Mean divides by len(srcs). All
// buffers have dst's type and count and lie in host memory; dst may be the same memory as any of srcs, but not overlap one
// otherwise. It allocates nothing.
func Fold(op ReduceOp, dst Buffer, srcs ...Buffer) error {
	if err := Supports(op, dst.typ); err != nil {
		return err
	}
	if len(srcs) == 0 {
		return errors.New("dtype: fold: no sources")
	}
	for i := range srcs {
		if err := checkSame("fold", "source", &dst, &srcs[i]); err != nil {
			return fmt.Errorf("%w (source %d of %d)", err, i, len(srcs))
		}
	}
	switch {
	case len(srcs) == 1:
		copy(dst.HostBytes(), srcs[0].HostBytes())
	case len(srcs) == 2 && op != Mean: // no partials, and two operands rounded natively are rounded once
		combine(op, dst, srcs[0], srcs[1])
	case dst.count <= smallBlockCount:
		foldSmall(op, dst, srcs)
	default:
		foldBlocks(op, dst, srcs)
	}
	return nil
}

func foldSmall(op ReduceOp, dst Buffer, srcs []Buffer) {
	var acc [smallBlockCount]float64
	fold(op, dst, srcs, acc[:])
}

//go:noinline
func foldBlocks(op ReduceOp, dst Buffer, srcs []Buffer) {
	var acc [blockCount]float64
	fold(op, dst, srcs, acc[:])
}

func fold(op ReduceOp, dst Buffer, srcs []Buffer, acc []float64) {
	partials := partialsIn(acc, op, dst.typ)
	for i := 0; i < dst.count; i += len(acc) {
		j := min(i+len(acc), dst.count)
		p := partials.part(0, j-i)
		step := assign
		for k := range srcs {
			src := srcs[k].part(i, j)
			accumulate(step, &p, &src)
			step = op
		}
		finish(op, dst.part(i, j), p, len(srcs))
	}
}

func partialsIn(acc []float64, op ReduceOp, t Type) Buffer {
	b := Of(acc)
	b.typ = Accumulator(op, t)
	return b
}

// Widen sets dst = src, exactly. dst has src's type or the accumulator's: F64 for floats, I64 for integers. Both are in host
// memory with the same count; they may be the same memory if the types are equal, and do not overlap otherwise.
func Widen(dst, src Buffer) error {
	if !src.typ.Valid() || dst.typ != src.typ && dst.typ != Accumulator(Mean, src.typ) {
		return fmt.Errorf("dtype: widen: %v to %v: %w", src.typ, dst.typ, errors.ErrUnsupported)
	}
	if err := checkMemory("widen", "source", &dst, &src); err != nil {
		return err
	}
	for i := 0; i < dst.count; i += maxCall {
		j := min(i+maxCall, dst.count)
		d, s := dst.part(i, j), src.part(i, j)
		accumulate(assign, &d, &s)
	}
	return nil
}

// Finish turns partials of op into its result: dst is partial, for a Mean divided by n, rounded once to dst's type.
// partial has the type Accumulator(op, dst.Type()) and holds sums if op is Mean; Finish may overwrite it. Both are in host
// memory with the same count; they may be the same memory if the types are equal, and do not overlap otherwise.
func Finish(op ReduceOp, dst, partial Buffer, n int) error {
	if err := Supports(op, dst.typ); err != nil {
		return err
	}
	if want := Accumulator(op, dst.typ); partial.typ != want {
		return fmt.Errorf("dtype: finish: partials of %v, want %v for %v of %v", partial.typ, want, op, dst.typ)
	}
	if n <= 0 {
		return fmt.Errorf("dtype: finish: %d inputs", n)
	}
	if err := checkMemory("finish", "source", &dst, &partial); err != nil {
		return err
	}
	for i := 0; i < dst.count; i += blockCount {
		j := min(i+blockCount, dst.count)
		finish(op, dst.part(i, j), partial.part(i, j), n)
	}
	return nil
}

// Divide divides each element by n, in place: floats in float64 and rounded once, integers rounded half away from zero.
func Divide(dst Buffer, n int) error {
	switch {
	case !dst.typ.Valid():
		return fmt.Errorf("dtype: divide: %v", dst.typ)
	case n <= 0:
		return fmt.Errorf("dtype: divide: by %d", n)
	case dst.OnDevice():
		return fmt.Errorf("dtype: divide: device memory: %w", errors.ErrUnsupported)
	}
	if dst.count <= smallBlockCount {
		divideSmall(dst, n)
	} else {
		divideBlocks(dst, n)
	}
	return nil
}

func divideSmall(dst Buffer, n int) {
	var acc [smallBlockCount]float64
	divide(dst, n, acc[:])
}

//go:noinline
func divideBlocks(dst Buffer, n int) {
	var acc [blockCount]float64
	divide(dst, n, acc[:])
}

func divide(dst Buffer, n int, acc []float64) {
	partials := partialsIn(acc, Mean, dst.typ)
	for i := 0; i < dst.count; i += len(acc) {
		d := dst.part(i, min(i+len(acc), dst.count))
		p := partials.part(0, d.count)
		accumulate(assign, &p, &d)
		finish(Mean, d, p, n)
	}
}
