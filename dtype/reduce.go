package dtype

import (
	"errors"
	"fmt"
)

// maxCall is the most elements that one kernel call takes, 256 KiB per operand: a goroutine cannot be stopped inside
// assembly, so the garbage collector has to wait for it.
const maxCall = 32 << 10

// Reduce sets dst[i] = dst[i] op src[i], rounded once. Both have the same type and count and lie in host memory; they may be
// the same memory, but not overlap otherwise. Mean is refused, because a mean needs all its inputs: use Fold, or Sum and
// then Divide. What an operation, type or device does not allow is an error that wraps errors.ErrUnsupported.
func Reduce(op ReduceOp, dst, src Buffer) error {
	if op == Mean {
		return fmt.Errorf("dtype: reduce: mean needs all inputs at once: %w", errors.ErrUnsupported)
	}
	if err := Supports(op, dst.typ); err != nil {
		return err
	}
	if err := checkSame("reduce", "source", &dst, &src); err != nil {
		return err
	}
	combine(op, dst, dst, src)
	return nil
}

// The checks take addresses: copies of buffers would be what a small call spends most of its time on.

// checkSame refuses a src that a result of dst's type and count cannot be computed from.
func checkSame(verb, what string, dst, src *Buffer) error {
	if src.typ != dst.typ {
		return fmt.Errorf("dtype: %s: %s of %v, destination of %v", verb, what, src.typ, dst.typ)
	}
	return checkMemory(verb, what, dst, src)
}

func checkMemory(verb, what string, dst, src *Buffer) error {
	switch {
	case src.count != dst.count:
		return fmt.Errorf("dtype: %s: %s of %d elements, destination of %d", verb, what, src.count, dst.count)
	case src.OnDevice() || dst.OnDevice():
		return fmt.Errorf("dtype: %s: device memory: %w", verb, errors.ErrUnsupported)
	case overlap(dst, src):
		return fmt.Errorf("dtype: %s: %s and destination overlap without being the same memory", verb, what)
	}
	return nil
}

// combine sets dst = a op b, any length. The arguments have been checked; op is not Mean.
func combine(op ReduceOp, dst, a, b Buffer) {
	if dst.count <= maxCall {
		combineBlock(op, dst, a, b)
		return
	}
	for i := 0; i < dst.count; i += maxCall {
		j := min(i+maxCall, dst.count)
		combineBlock(op, dst.part(i, j), a.part(i, j), b.part(i, j))
	}
}

func combineBlock(op ReduceOp, dst, a, b Buffer) {
	switch dst.typ {
	case F16:
		combineF16(op, hostSlice[uint16](dst), hostSlice[uint16](a), hostSlice[uint16](b))
	case BF16:
		combineBF16(op, hostSlice[uint16](dst), hostSlice[uint16](a), hostSlice[uint16](b))
	case F32:
		combineF32(op, hostSlice[float32](dst), hostSlice[float32](a), hostSlice[float32](b))
	case F64:
		combineF64(op, hostSlice[float64](dst), hostSlice[float64](a), hostSlice[float64](b))
	default:
		combineIntegers(op, dst, a, b)
	}
}

func combineF16(op ReduceOp, dst, a, b []uint16) {
	switch op {
	case Sum:
		sumF16(dst, a, b)
	case Prod:
		prodF16(dst, a, b)
	case Min:
		min16(dst, a, b, infF16, nanF16)
	case Max:
		max16(dst, a, b, infF16, nanF16)
	}
}

func combineBF16(op ReduceOp, dst, a, b []uint16) {
	switch op {
	case Sum:
		sumBF16(dst, a, b)
	case Prod:
		prodBF16(dst, a, b)
	case Min:
		min16(dst, a, b, infBF16, nanBF16)
	case Max:
		max16(dst, a, b, infBF16, nanBF16)
	}
}

func combineF32(op ReduceOp, dst, a, b []float32) {
	switch op {
	case Sum:
		sumF32(dst, a, b)
	case Prod:
		prodF32(dst, a, b)
	case Min:
		minF32(dst, a, b)
	case Max:
		maxF32(dst, a, b)
	}
}

func combineF64(op ReduceOp, dst, a, b []float64) {
	switch op {
	case Sum:
		sumF64(dst, a, b)
	case Prod:
		prodF64(dst, a, b)
	case Min:
		minF64(dst, a, b)
	case Max:
		maxF64(dst, a, b)
	}
}

func combineIntegers(op ReduceOp, dst, a, b Buffer) {
	switch op {
	case BitAnd:
		andBytes(dst.HostBytes(), a.HostBytes(), b.HostBytes())
		return
	case BitOr:
		orBytes(dst.HostBytes(), a.HostBytes(), b.HostBytes())
		return
	case BitXor:
		xorBytes(dst.HostBytes(), a.HostBytes(), b.HostBytes())
		return
	}
	switch dst.typ {
	case I8:
		if op == Sum {
			sumBytes(dst.HostBytes(), a.HostBytes(), b.HostBytes())
			return
		}
		combineInt(op, hostSlice[int8](dst), hostSlice[int8](a), hostSlice[int8](b))
	case U8:
		if op == Sum {
			sumBytes(dst.HostBytes(), a.HostBytes(), b.HostBytes())
			return
		}
		combineInt(op, hostSlice[uint8](dst), hostSlice[uint8](a), hostSlice[uint8](b))
	case I32:
		combineInt(op, hostSlice[int32](dst), hostSlice[int32](a), hostSlice[int32](b))
	case I64:
		combineInt(op, hostSlice[int64](dst), hostSlice[int64](a), hostSlice[int64](b))
	}
}

func combineInt[T integer](op ReduceOp, dst, a, b []T) {
	switch op {
	case Sum:
		sumInt(dst, a, b)
	case Prod:
		prodInt(dst, a, b)
	case Min:
		minInt(dst, a, b)
	case Max:
		maxInt(dst, a, b)
	}
}
