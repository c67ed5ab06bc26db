package dtype

// assign is the first step of a fold: acc = src. It is no operation of its own.
const assign ReduceOp = 0

// accumulate sets acc = acc op src, or acc = src. acc has src's type or Accumulator(op, src.typ); op Mean adds.
func accumulate(op ReduceOp, acc, src *Buffer) {
	if op == Mean {
		op = Sum
	}
	switch {
	case acc.typ == src.typ && op == assign:
		copy(acc.HostBytes(), src.HostBytes())
	case acc.typ == src.typ:
		combineBlock(op, *acc, *acc, *src)
	case src.typ.Float():
		accumulateFloats(op, hostSlice[float64](*acc), src)
	default:
		accumulateIntegers(op, hostSlice[int64](*acc), src)
	}
}

func accumulateFloats(op ReduceOp, acc []float64, src *Buffer) {
	switch src.typ {
	case F16:
		accumulateF16(op, acc, hostSlice[uint16](*src))
	case BF16:
		accumulateBF16(op, acc, hostSlice[uint16](*src))
	case F32:
		accumulateF32(op, acc, hostSlice[float32](*src))
	}
}

func accumulateF16(op ReduceOp, acc []float64, src []uint16) {
	switch op {
	case assign:
		f64FromF16s(acc, src)
	case Sum:
		addF16(acc, src)
	case Prod:
		mulF16(acc, src)
	}
}

func accumulateBF16(op ReduceOp, acc []float64, src []uint16) {
	switch op {
	case assign:
		f64FromBF16s(acc, src)
	case Sum:
		addBF16(acc, src)
	case Prod:
		mulBF16(acc, src)
	}
}

func accumulateF32(op ReduceOp, acc []float64, src []float32) {
	switch op {
	case assign:
		f64FromF32s(acc, src)
	case Sum:
		addF32(acc, src)
	case Prod:
		mulF32(acc, src)
	}
}

func accumulateIntegers(op ReduceOp, acc []int64, src *Buffer) {
	switch src.typ {
	case I8:
		accumulateInt(op, acc, hostSlice[int8](*src))
	case U8:
		accumulateInt(op, acc, hostSlice[uint8](*src))
	case I32:
		accumulateInt(op, acc, hostSlice[int32](*src))
	}
}

func accumulateInt[T integer](op ReduceOp, acc []int64, src []T) {
	if op == assign {
		widenInt(acc, src)
	} else {
		addInt(acc, src)
	}
}

// finish sets dst = acc, divided by n if op is Mean. It may overwrite acc.
func finish(op ReduceOp, dst, acc Buffer, n int) {
	if acc.typ == F64 {
		if op == Mean {
			divF64(hostSlice[float64](acc), float64(n))
		}
		narrow(dst, hostSlice[float64](acc))
		return
	}
	if op != Mean {
		copy(dst.HostBytes(), acc.HostBytes())
		return
	}
	a := hostSlice[int64](acc)
	switch dst.typ {
	case I8:
		divInt(hostSlice[int8](dst), a, int64(n))
	case U8:
		divInt(hostSlice[uint8](dst), a, int64(n))
	case I32:
		divInt(hostSlice[int32](dst), a, int64(n))
	case I64:
		divInt(hostSlice[int64](dst), a, int64(n))
	}
}
