//go:build !amd64 || purego

package dtype

func sumF32(dst, a, b []float32)               { sumF32Generic(dst, a, b) }
func sumF64(dst, a, b []float64)               { sumF64Generic(dst, a, b) }
func sumF16(dst, a, b []uint16)                { sumF16Generic(dst, a, b) }
func sumBF16(dst, a, b []uint16)               { sumBF16Generic(dst, a, b) }
func divF64(acc []float64, divisor float64)    { divF64Generic(acc, divisor) }
func addF32(acc []float64, src []float32)      { addF32Generic(acc, src) }
func addF16(acc []float64, src []uint16)       { addF16Generic(acc, src) }
func addBF16(acc []float64, src []uint16)      { addBF16Generic(acc, src) }
func f64FromF32s(dst []float64, src []float32) { f64FromF32Generic(dst, src) }
func f64FromF16s(dst []float64, src []uint16)  { f64FromF16Generic(dst, src) }
func f64FromBF16s(dst []float64, src []uint16) { f64FromBF16Generic(dst, src) }
func f32FromF64s(dst []float32, src []float64) { f32FromF64Generic(dst, src) }
func f16FromF64s(dst []uint16, src []float64)  { f16FromF64Generic(dst, src) }
func bf16FromF64s(dst []uint16, src []float64) { bf16FromF64Generic(dst, src) }
func f32FromF16s(dst []float32, src []uint16)  { f32FromF16Generic(dst, src) }
func f16FromF32s(dst []uint16, src []float32)  { f16FromF32Generic(dst, src) }
func f32FromBF16s(dst []float32, src []uint16) { f32FromBF16Generic(dst, src) }
func bf16FromF32s(dst []uint16, src []float32) { bf16FromF32Generic(dst, src) }
