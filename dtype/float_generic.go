package dtype

import "math"

// Float kernels that every CPU can run, dst[i] = a[i] op b[i] with one rounding. dst may be a or b. The lengths are equal,
// as callers have checked. Two-operand sums and products of f16, bf16 and f32 need no float64: float32 has at least twice
// their significant bits and two more, so rounding twice equals rounding once.
//
// NaN results are stored as the canonical NaN: which operand's payload survives differs between CPUs and, as the compiler
// may swap operands, between builds.

func canonicalF32(f float32) float32 {
	if f != f {
		return math.Float32frombits(nanF32)
	}
	return f
}

func canonicalF64(f float64) float64 {
	if f != f {
		return math.Float64frombits(nanF64)
	}
	return f
}

func sumF32Generic(dst, a, b []float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = canonicalF32(a[i] + b[i])
	}
}

func sumF64Generic(dst, a, b []float64) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = canonicalF64(a[i] + b[i])
	}
}

func sumF16Generic(dst, a, b []uint16) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = f16FromF32(canonicalF32(f32FromF16(a[i]) + f32FromF16(b[i])))
	}
}

func sumBF16Generic(dst, a, b []uint16) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = bf16FromF32(canonicalF32(f32FromBF16(a[i]) + f32FromBF16(b[i])))
	}
}

func prodF32(dst, a, b []float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = canonicalF32(a[i] * b[i])
	}
}

func prodF64(dst, a, b []float64) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = canonicalF64(a[i] * b[i])
	}
}

func prodF16(dst, a, b []uint16) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = f16FromF32(canonicalF32(f32FromF16(a[i]) * f32FromF16(b[i])))
	}
}

// prodBF16 rounds once also where the product is subnormal: its 16 bits are exact in float32 down to half of the smallest
// bf16, and what is less becomes zero.
func prodBF16(dst, a, b []uint16) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = bf16FromF32(canonicalF32(f32FromBF16(a[i]) * f32FromBF16(b[i])))
	}
}

func minF32(dst, a, b []float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = canonicalF32(min(a[i], b[i]))
	}
}

func maxF32(dst, a, b []float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = canonicalF32(max(a[i], b[i]))
	}
}

func minF64(dst, a, b []float64) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = canonicalF64(min(a[i], b[i]))
	}
}

func maxF64(dst, a, b []float64) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = canonicalF64(max(a[i], b[i]))
	}
}

// order16 maps the bits of an f16 or bf16 to an integer of the same order, with -0 just below +0. It is its own inverse.
func order16(u uint16) int16 { return int16(u ^ uint16(int16(u)>>15)&0x7fff) }

// min16 and max16 serve f16 and bf16: inf is the bits of +Inf, nan those of the canonical NaN.
func min16(dst, a, b []uint16, inf, nan uint16) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		x, y := a[i], b[i]
		r := uint16(order16(uint16(min(order16(x), order16(y)))))
		if max(x&0x7fff, y&0x7fff) > inf {
			r = nan
		}
		dst[i] = r
	}
}

func max16(dst, a, b []uint16, inf, nan uint16) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		x, y := a[i], b[i]
		r := uint16(order16(uint16(max(order16(x), order16(y)))))
		if max(x&0x7fff, y&0x7fff) > inf {
			r = nan
		}
		dst[i] = r
	}
}

// Kernels of the folds: acc is float64.

func addF32Generic(acc []float64, src []float32) {
	for i, f := range src[:len(acc)] {
		acc[i] = canonicalF64(acc[i] + float64(f))
	}
}

func addF16Generic(acc []float64, src []uint16) {
	for i, h := range src[:len(acc)] {
		acc[i] = canonicalF64(acc[i] + float64(f32FromF16(h)))
	}
}

func addBF16Generic(acc []float64, src []uint16) {
	for i, b := range src[:len(acc)] {
		acc[i] = canonicalF64(acc[i] + float64(f32FromBF16(b)))
	}
}

func mulF32(acc []float64, src []float32) {
	for i, f := range src[:len(acc)] {
		acc[i] = canonicalF64(acc[i] * float64(f))
	}
}

func mulF16(acc []float64, src []uint16) {
	for i, h := range src[:len(acc)] {
		acc[i] = canonicalF64(acc[i] * float64(f32FromF16(h)))
	}
}

func mulBF16(acc []float64, src []uint16) {
	for i, b := range src[:len(acc)] {
		acc[i] = canonicalF64(acc[i] * float64(f32FromBF16(b)))
	}
}

func divF64Generic(acc []float64, divisor float64) {
	for i := range acc {
		acc[i] = canonicalF64(acc[i] / divisor)
	}
}
