//go:build !purego

package dtype

import "golang.org/x/sys/cpu"

// Which assembly may run. Tests clear them; nothing else writes them.
var (
	useAVX2 = cpu.X86.HasAVX2
	useF16C = cpu.X86.HasAVX2 && cpu.X86.HasF16C
)

// lanes is what the element counts of assembly calls are a multiple of; generic code does the rest. Above each assembly
// function stands the body of the loop over n elements that it equals.
const lanes = 16

// dst[i] = canonicalF32(a[i] + b[i])
//
//go:noescape
func sumF32AVX2(dst, a, b *float32, n int)

func sumF32(dst, a, b []float32) {
	n := 0
	if useAVX2 && len(dst) >= lanes {
		n = len(dst) &^ (lanes - 1)
		sumF32AVX2(&dst[0], &a[0], &b[0], n)
	}
	sumF32Generic(dst[n:], a[n:], b[n:])
}

// dst[i] = canonicalF64(a[i] + b[i])
//
//go:noescape
func sumF64AVX2(dst, a, b *float64, n int)

func sumF64(dst, a, b []float64) {
	n := 0
	if useAVX2 && len(dst) >= lanes {
		n = len(dst) &^ (lanes - 1)
		sumF64AVX2(&dst[0], &a[0], &b[0], n)
	}
	sumF64Generic(dst[n:], a[n:], b[n:])
}

// dst[i] = f16FromF32(canonicalF32(f32FromF16(a[i]) + f32FromF16(b[i])))
//
//go:noescape
func sumF16F16C(dst, a, b *uint16, n int)

func sumF16(dst, a, b []uint16) {
	n := 0
	if useF16C && len(dst) >= lanes {
		n = len(dst) &^ (lanes - 1)
		sumF16F16C(&dst[0], &a[0], &b[0], n)
	}
	sumF16Generic(dst[n:], a[n:], b[n:])
}

// dst[i] = bf16FromF32(canonicalF32(f32FromBF16(a[i]) + f32FromBF16(b[i])))
//
//go:noescape
func sumBF16AVX2(dst, a, b *uint16, n int)

func sumBF16(dst, a, b []uint16) {
	n := 0
	if useAVX2 && len(dst) >= lanes {
		n = len(dst) &^ (lanes - 1)
		sumBF16AVX2(&dst[0], &a[0], &b[0], n)
	}
	sumBF16Generic(dst[n:], a[n:], b[n:])
}

// acc[i] = canonicalF64(acc[i] + float64(src[i]))
//
//go:noescape
func addF32AVX2(acc *float64, src *float32, n int)

func addF32(acc []float64, src []float32) {
	n := 0
	if useAVX2 && len(acc) >= lanes {
		n = len(acc) &^ (lanes - 1)
		addF32AVX2(&acc[0], &src[0], n)
	}
	addF32Generic(acc[n:], src[n:])
}

// acc[i] = canonicalF64(acc[i] + float64(f32FromF16(src[i])))
//
//go:noescape
func addF16F16C(acc *float64, src *uint16, n int)

func addF16(acc []float64, src []uint16) {
	n := 0
	if useF16C && len(acc) >= lanes {
		n = len(acc) &^ (lanes - 1)
		addF16F16C(&acc[0], &src[0], n)
	}
	addF16Generic(acc[n:], src[n:])
}

// acc[i] = canonicalF64(acc[i] + float64(f32FromBF16(src[i])))
//
//go:noescape
func addBF16AVX2(acc *float64, src *uint16, n int)

func addBF16(acc []float64, src []uint16) {
	n := 0
	if useAVX2 && len(acc) >= lanes {
		n = len(acc) &^ (lanes - 1)
		addBF16AVX2(&acc[0], &src[0], n)
	}
	addBF16Generic(acc[n:], src[n:])
}

// dst[i] = f64FromF32(src[i])
//
//go:noescape
func f64FromF32AVX2(dst *float64, src *float32, n int)

func f64FromF32s(dst []float64, src []float32) {
	n := 0
	if useAVX2 && len(dst) >= lanes {
		n = len(dst) &^ (lanes - 1)
		f64FromF32AVX2(&dst[0], &src[0], n)
	}
	f64FromF32Generic(dst[n:], src[n:])
}

// dst[i] = f64FromF32(f32FromF16(src[i]))
//
//go:noescape
func f64FromF16F16C(dst *float64, src *uint16, n int)

func f64FromF16s(dst []float64, src []uint16) {
	n := 0
	if useF16C && len(dst) >= lanes {
		n = len(dst) &^ (lanes - 1)
		f64FromF16F16C(&dst[0], &src[0], n)
	}
	f64FromF16Generic(dst[n:], src[n:])
}

// dst[i] = f64FromF32(f32FromBF16(src[i]))
//
//go:noescape
func f64FromBF16AVX2(dst *float64, src *uint16, n int)

func f64FromBF16s(dst []float64, src []uint16) {
	n := 0
	if useAVX2 && len(dst) >= lanes {
		n = len(dst) &^ (lanes - 1)
		f64FromBF16AVX2(&dst[0], &src[0], n)
	}
	f64FromBF16Generic(dst[n:], src[n:])
}

// dst[i] = f32FromF64(src[i])
//
//go:noescape
func f32FromF64AVX2(dst *float32, src *float64, n int)

func f32FromF64s(dst []float32, src []float64) {
	n := 0
	if useAVX2 && len(dst) >= lanes {
		n = len(dst) &^ (lanes - 1)
		f32FromF64AVX2(&dst[0], &src[0], n)
	}
	f32FromF64Generic(dst[n:], src[n:])
}

// dst[i] = f16FromF32(oddF32(src[i]))
//
//go:noescape
func f16FromF64F16C(dst *uint16, src *float64, n int)

func f16FromF64s(dst []uint16, src []float64) {
	n := 0
	if useF16C && len(dst) >= lanes {
		n = len(dst) &^ (lanes - 1)
		f16FromF64F16C(&dst[0], &src[0], n)
	}
	f16FromF64Generic(dst[n:], src[n:])
}

// dst[i] = bf16FromF32(oddF32(src[i]))
//
//go:noescape
func bf16FromF64AVX2(dst *uint16, src *float64, n int)

func bf16FromF64s(dst []uint16, src []float64) {
	n := 0
	if useAVX2 && len(dst) >= lanes {
		n = len(dst) &^ (lanes - 1)
		bf16FromF64AVX2(&dst[0], &src[0], n)
	}
	bf16FromF64Generic(dst[n:], src[n:])
}

// dst[i] = f32FromF16(src[i])
//
//go:noescape
func f32FromF16F16C(dst *float32, src *uint16, n int)

func f32FromF16s(dst []float32, src []uint16) {
	n := 0
	if useF16C && len(dst) >= lanes {
		n = len(dst) &^ (lanes - 1)
		f32FromF16F16C(&dst[0], &src[0], n)
	}
	f32FromF16Generic(dst[n:], src[n:])
}

// dst[i] = f16FromF32(src[i])
//
//go:noescape
func f16FromF32F16C(dst *uint16, src *float32, n int)

func f16FromF32s(dst []uint16, src []float32) {
	n := 0
	if useF16C && len(dst) >= lanes {
		n = len(dst) &^ (lanes - 1)
		f16FromF32F16C(&dst[0], &src[0], n)
	}
	f16FromF32Generic(dst[n:], src[n:])
}

// dst[i] = f32FromBF16(src[i])
//
//go:noescape
func f32FromBF16AVX2(dst *float32, src *uint16, n int)

func f32FromBF16s(dst []float32, src []uint16) {
	n := 0
	if useAVX2 && len(dst) >= lanes {
		n = len(dst) &^ (lanes - 1)
		f32FromBF16AVX2(&dst[0], &src[0], n)
	}
	f32FromBF16Generic(dst[n:], src[n:])
}

// dst[i] = bf16FromF32(src[i])
//
//go:noescape
func bf16FromF32AVX2(dst *uint16, src *float32, n int)

func bf16FromF32s(dst []uint16, src []float32) {
	n := 0
	if useAVX2 && len(dst) >= lanes {
		n = len(dst) &^ (lanes - 1)
		bf16FromF32AVX2(&dst[0], &src[0], n)
	}
	bf16FromF32Generic(dst[n:], src[n:])
}

// acc[i] = canonicalF64(acc[i] / divisor)
//
//go:noescape
func divF64AVX2(acc *float64, n int, divisor float64)

func divF64(acc []float64, divisor float64) {
	n := 0
	if useAVX2 && len(acc) >= lanes {
		n = len(acc) &^ (lanes - 1)
		divF64AVX2(&acc[0], n, divisor)
	}
	divF64Generic(acc[n:], divisor)
}
