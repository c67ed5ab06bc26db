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
	if err := checkConvert("convert", dst, src); err != nil {
		return err
	}
	if dst.typ == src.typ {
		copy(dst.HostBytes(), src.HostBytes())
		return nil
	}
	for i := 0; i < dst.count; i += maxCall {
		j := min(i+maxCall, dst.count)
		convert(dst.Slice(i, j), src.Slice(i, j))
	}
	return nil
}

func convert(dst, src Buffer) {
	switch {
	case dst.typ == F64:
		accumulateFloats(assign, hostSlice[float64](dst), src)
	case src.typ == F64:
		narrow(dst, hostSlice[float64](src))
	case dst.typ == F32:
		asF32(src, hostSlice[float32](dst))
	case src.typ == F32:
		fromF32(dst, hostSlice[float32](src))
	default:
		var mid [midCount]float32
		for i := 0; i < dst.count; i += midCount {
			j := min(i+midCount, dst.count)
			fromF32(dst.Slice(i, j), asF32(src.Slice(i, j), mid[:]))
		}
	}
}

func checkConvert(verb string, dst, src Buffer) error {
	if dst.count != src.count {
		return fmt.Errorf("dtype: %s: source of %d elements, destination of %d", verb, src.count, dst.count)
	}
	return checkMemory(verb, "source", dst, src)
}

// asF32 returns the elements of an F16, BF16 or F32 buffer as float32: in mid, or where they lie.
func asF32(src Buffer, mid []float32) []float32 {
	if src.typ == F32 {
		return hostSlice[float32](src)
	}
	mid = mid[:src.count]
	if src.typ == F16 {
		f32FromF16s(mid, hostSlice[uint16](src))
	} else {
		f32FromBF16s(mid, hostSlice[uint16](src))
	}
	return mid
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
	case F64:
		copy(hostSlice[float64](dst), src)
	case F32:
		f32FromF64s(hostSlice[float32](dst), src)
	default:
		var mid [midCount]float32
		for i := 0; i < len(src); i += midCount {
			j := min(i+midCount, len(src))
			oddF32FromF64s(mid[:j-i], src[i:j])
			fromF32(dst.Slice(i, j), mid[:j-i])
		}
	}
}
