package dtype

import "encoding/binary"

// Integer kernels, dst[i] = a[i] op b[i]. dst may be a or b. The lengths are equal, as callers have checked.

type integer interface{ int8 | uint8 | int32 | int64 }

// sumInt goes four at a time: that hides the loop's own cost, which is most of it.
func sumInt[T integer](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for len(dst) >= 4 && len(a) >= 4 && len(b) >= 4 {
		dst[0], dst[1], dst[2], dst[3] = a[0]+b[0], a[1]+b[1], a[2]+b[2], a[3]+b[3]
		dst, a, b = dst[4:], a[4:], b[4:]
	}
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

// sumBytes adds eight bytes at a time: the low seven bits cannot carry into the neighbour, the top bit is their exclusive or.
func sumBytes(dst, a, b []byte) {
	const top = 0x8080808080808080
	for ; len(dst) >= 8; dst, a, b = dst[8:], a[8:], b[8:] {
		x, y := binary.LittleEndian.Uint64(a), binary.LittleEndian.Uint64(b)
		binary.LittleEndian.PutUint64(dst, (x&^top+y&^top)^(x^y)&top)
	}
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

// The bit operations take integers of every type as bytes.

func andBytes(dst, a, b []byte) {
	for ; len(dst) >= 8; dst, a, b = dst[8:], a[8:], b[8:] {
		binary.LittleEndian.PutUint64(dst, binary.LittleEndian.Uint64(a)&binary.LittleEndian.Uint64(b))
	}
	for i := range dst {
		dst[i] = a[i] & b[i]
	}
}

func orBytes(dst, a, b []byte) {
	for ; len(dst) >= 8; dst, a, b = dst[8:], a[8:], b[8:] {
		binary.LittleEndian.PutUint64(dst, binary.LittleEndian.Uint64(a)|binary.LittleEndian.Uint64(b))
	}
	for i := range dst {
		dst[i] = a[i] | b[i]
	}
}

func xorBytes(dst, a, b []byte) {
	for ; len(dst) >= 8; dst, a, b = dst[8:], a[8:], b[8:] {
		binary.LittleEndian.PutUint64(dst, binary.LittleEndian.Uint64(a)^binary.LittleEndian.Uint64(b))
	}
	for i := range dst {
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
