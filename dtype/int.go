package dtype

import "encoding/binary"

// Integer kernels, dst[i] = a[i] op b[i]. dst may be a or b. The lengths are equal, as callers have checked.

type integer interface{ int8 | uint8 | int32 | int64 }

func sumInt[T integer](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

func prodInt[T integer](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] * b[i]
	}
}

func minInt[T integer](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = min(a[i], b[i])
	}
}

func maxInt[T integer](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = max(a[i], b[i])
	}
}

// Kernels on bytes take eight at a time. The sum of i8 or u8: the low seven bits cannot carry into the neighbour, the top
// bit is their exclusive or.
func sumBytes(dst, a, b []byte) {
	const top = 0x8080808080808080
	i := 0
	for ; i+8 <= len(dst); i += 8 {
		x, y := binary.LittleEndian.Uint64(a[i:i+8]), binary.LittleEndian.Uint64(b[i:i+8])
		binary.LittleEndian.PutUint64(dst[i:i+8], (x&^top+y&^top)^(x^y)&top)
	}
	for ; i < len(dst); i++ {
		dst[i] = a[i] + b[i]
	}
}

// The bit operations take integers of every type as bytes.

func andBytes(dst, a, b []byte) {
	i := 0
	for ; i+8 <= len(dst); i += 8 {
		x, y := binary.LittleEndian.Uint64(a[i:i+8]), binary.LittleEndian.Uint64(b[i:i+8])
		binary.LittleEndian.PutUint64(dst[i:i+8], x&y)
	}
	for ; i < len(dst); i++ {
		dst[i] = a[i] & b[i]
	}
}

func orBytes(dst, a, b []byte) {
	i := 0
	for ; i+8 <= len(dst); i += 8 {
		x, y := binary.LittleEndian.Uint64(a[i:i+8]), binary.LittleEndian.Uint64(b[i:i+8])
		binary.LittleEndian.PutUint64(dst[i:i+8], x|y)
	}
	for ; i < len(dst); i++ {
		dst[i] = a[i] | b[i]
	}
}

func xorBytes(dst, a, b []byte) {
	i := 0
	for ; i+8 <= len(dst); i += 8 {
		x, y := binary.LittleEndian.Uint64(a[i:i+8]), binary.LittleEndian.Uint64(b[i:i+8])
		binary.LittleEndian.PutUint64(dst[i:i+8], x^y)
	}
	for ; i < len(dst); i++ {
		dst[i] = a[i] ^ b[i]
	}
}

// Kernels of the means: acc is int64.

func widenInt[T integer](acc []int64, src []T) {
	for i, v := range src[:len(acc)] {
		acc[i] = int64(v)
	}
}

func addInt[T integer](acc []int64, src []T) {
	for i, v := range src[:len(acc)] {
		acc[i] += int64(v)
	}
}

func divInt[T integer](dst []T, acc []int64, n int64) {
	for i, v := range acc[:len(dst)] {
		dst[i] = T(divideRounded(v, n))
	}
}

// divideRounded rounds half away from zero; n > 0.
func divideRounded(v, n int64) int64 {
	q, r := v/n, v%n
	switch {
	case r >= n-r:
		q++
	case -r >= n+r:
		q--
	}
	return q
}
