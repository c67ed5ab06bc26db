package dtype

import "math"

// The scalar conversions, and the loops over them that every CPU can run. Assembly must give the same bits.

const (
	nanF16  uint16 = 0x7e00
	nanBF16 uint16 = 0x7fc0
	nanF32  uint32 = 0x7fc00000
	nanF64  uint64 = 0x7ff8000000000000

	infF16  uint16 = 0x7c00
	infBF16 uint16 = 0x7f80
)

// f32FromF16 is exact. A NaN becomes quiet.
func f32FromF16(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	u := uint32(h&0x7fff) << 13
	switch {
	case u > 0x0f800000:
		u |= 0x7fc00000
	case u == 0x0f800000:
		u = 0x7f800000
	default: // the product adds the difference of the exponents' biases and normalises subnormals
		u = math.Float32bits(math.Float32frombits(u) * 0x1p112)
	}
	return math.Float32frombits(sign | u)
}

// f16FromF32 rounds to nearest even. A NaN keeps its sign and upper payload and becomes quiet.
func f16FromF32(f float32) uint16 {
	u := math.Float32bits(f)
	sign := uint16(u >> 16 & 0x8000)
	u &= 0x7fffffff
	switch {
	case u > 0x7f800000:
		return sign | 0x7e00 | uint16(u>>13&0x3ff)
	case u >= 0x47800000: // 2^16 and more
		return sign | 0x7c00
	case u < 0x38800000: // below 2^-14 the result is subnormal: the sum rounds at 2^-24 and leaves the bits at the bottom
		return sign | uint16(math.Float32bits(math.Float32frombits(u)+0.5)-0x3f000000)
	}
	u += 0xfff + u>>13&1 - 0x38000000
	return sign | uint16(u>>13)
}

// f32FromBF16 moves bits, so a signalling NaN stays one.
func f32FromBF16(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// bf16FromF32 rounds to nearest even. A NaN keeps its sign and upper payload and becomes quiet.
func bf16FromF32(f float32) uint16 {
	u := math.Float32bits(f)
	if u&0x7fffffff > 0x7f800000 {
		return uint16(u>>16) | 0x0040
	}
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

// f32FromF64 rounds to nearest even. A NaN keeps its sign and upper payload and becomes quiet, which not every CPU does.
func f32FromF64(x float64) float32 {
	if x != x {
		b := math.Float64bits(x)
		return math.Float32frombits(uint32(b>>32)&0x80000000 | 0x7fc00000 | uint32(b>>29)&0x3fffff)
	}
	return float32(x)
}

// f64FromF32 is exact. A NaN becomes quiet.
func f64FromF32(f float32) float64 {
	if f != f {
		b := uint64(math.Float32bits(f))
		return math.Float64frombits(b>>31<<63 | nanF64 | b&0x3fffff<<29)
	}
	return float64(f)
}

// oddF32 rounds x to 13 significant bits such that rounding the result again, to f16 or bf16, equals rounding x once: an
// inexact result is made odd ("round to odd"), so it never lies on a tie of the shorter formats that x did not lie on. 13
// bits are 2 more than f16 has, which suffices, and few enough to be exact in float32 wherever bf16 is not zero.
func oddF32(x float64) float32 {
	const below = 1<<40 - 1
	b := math.Float64bits(x)
	b = (b | (b&below + below)) &^ below
	return f32FromF64(math.Float64frombits(b))
}

func f32FromF16Generic(dst []float32, src []uint16) {
	for i, h := range src[:len(dst)] {
		dst[i] = f32FromF16(h)
	}
}

func f32FromBF16Generic(dst []float32, src []uint16) {
	for i, b := range src[:len(dst)] {
		dst[i] = f32FromBF16(b)
	}
}

func f16FromF32Generic(dst []uint16, src []float32) {
	for i, f := range src[:len(dst)] {
		dst[i] = f16FromF32(f)
	}
}

func bf16FromF32Generic(dst []uint16, src []float32) {
	for i, f := range src[:len(dst)] {
		dst[i] = bf16FromF32(f)
	}
}

func f64FromF32Generic(dst []float64, src []float32) {
	for i, f := range src[:len(dst)] {
		dst[i] = f64FromF32(f)
	}
}

func f32FromF64Generic(dst []float32, src []float64) {
	for i, x := range src[:len(dst)] {
		dst[i] = f32FromF64(x)
	}
}

func f64FromF16Generic(dst []float64, src []uint16) {
	for i, h := range src[:len(dst)] {
		dst[i] = f64FromF32(f32FromF16(h))
	}
}

func f64FromBF16Generic(dst []float64, src []uint16) {
	for i, b := range src[:len(dst)] {
		dst[i] = f64FromF32(f32FromBF16(b))
	}
}

func f16FromF64Generic(dst []uint16, src []float64) {
	for i, x := range src[:len(dst)] {
		dst[i] = f16FromF32(oddF32(x))
	}
}

func bf16FromF64Generic(dst []uint16, src []float64) {
	for i, x := range src[:len(dst)] {
		dst[i] = bf16FromF32(oddF32(x))
	}
}
