package dtype

import (
	"errors"
	"fmt"
)

// Convert sets dst = src, rounded once to nearest even, between any two float types; between equal types it copies. Both
// are in host memory with the same count; they may be the same memory if the types have the same size, and do not overlap
// otherwise. It allocates nothing.
func Convert(dst, src Buffer) error {
	if !dst.typ.Float() || !src.typ.Float() {
		return fmt.Errorf("dtype: convert: %v to %v: %w", src.typ, dst.typ, errors.ErrUnsupported)
	}
	if err := checkMemory("convert", "source", &dst, &src); err != nil {
		return err
	}
	if dst.typ == src.typ {
		copy(dst.HostBytes(), src.HostBytes())
		return nil
	}
	for i := 0; i < dst.count; i += maxCall {
		j := min(i+maxCall, dst.count)
		convert(dst.part(i, j), src.part(i, j))
	}
	return nil
}

func convert(dst, src Buffer) {
	switch {
	case dst.typ == F64:
		accumulateFloats(assign, hostSlice[float64](dst), &src)
	case src.typ == F64:
		narrow(dst, hostSlice[float64](src))
	case dst.typ == F32:
		toF32(hostSlice[float32](dst), src)
	case src.typ == F32:
		fromF32(dst, hostSlice[float32](src))
	default: // between the 16-bit types, by way of a few float32s
		var mid [256]float32
		for i := 0; i < dst.count; i += len(mid) {
			j := min(i+len(mid), dst.count)
			toF32(mid[:j-i], src.part(i, j))
			fromF32(dst.part(i, j), mid[:j-i])
		}
	}
}

// toF32 takes an F16 or BF16 buffer.
func toF32(dst []float32, src Buffer) {
	if src.typ == F16 {
		f32FromF16s(dst, hostSlice[uint16](src))
	} else {
		f32FromBF16s(dst, hostSlice[uint16](src))
	}
}

// fromF32 rounds to an F16 or BF16 buffer.
func fromF32(dst Buffer, src []float32) {
	if dst.typ == F16 {
		f16FromF32s(hostSlice[uint16](dst), src)
	} else {
		bf16FromF32s(hostSlice[uint16](dst), src)
	}
}

// narrow rounds once to a float buffer.
func narrow(dst Buffer, src []float64) {
	switch dst.typ {
	case F16:
		f16FromF64s(hostSlice[uint16](dst), src)
	case BF16:
		bf16FromF64s(hostSlice[uint16](dst), src)
	case F32:
		f32FromF64s(hostSlice[float32](dst), src)
	case F64:
		copy(hostSlice[float64](dst), src)
	}
}
