package main

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/goccl/goccl/dtype"
)

// period is how many elements it takes for the test values to repeat. It is prime, so that no shift by a part of a buffer
// goes unnoticed.
const period = 251

// A pattern is an endless sequence of elements, each given by its index alone. It is computed here, without the library.
type pattern struct {
	width int    // bytes of an element
	tile  []byte // elements 0 to period-1, little-endian
}

func newPattern(t dtype.Type, value func(j int) []byte) pattern {
	p := pattern{width: t.Size(), tile: make([]byte, 0, period*t.Size())}
	for j := range period {
		p.tile = append(p.tile, value(j)...)
	}
	return p
}

// inputPattern is what a rank contributes.
func inputPattern(t dtype.Type, op dtype.ReduceOp, rank int) pattern {
	return newPattern(t, func(j int) []byte {
		if t.Float() {
			return encodeFloat(t, inputFloat(op, rank, j))
		}
		return encodeInt(t, inputInt(t, rank, j))
	})
}

// reducedPattern is what the ranks' contributions reduce to.
func reducedPattern(t dtype.Type, op dtype.ReduceOp, size int) pattern {
	return newPattern(t, func(j int) []byte {
		if t.Float() {
			v := inputFloat(op, 0, j)
			for r := 1; r < size; r++ {
				v = combineFloat(op, v, inputFloat(op, r, j))
			}
			if op == dtype.Mean {
				v /= float64(size)
			}
			return encodeFloat(t, v)
		}
		v := inputInt(t, 0, j)
		for r := 1; r < size; r++ {
			v = combineInt(op, v, inputInt(t, r, j))
		}
		if op == dtype.Mean {
			v = int64(math.Round(float64(v) / float64(size))) // halves away from zero; the sums are small
		}
		return encodeInt(t, v)
	})
}

// inputFloat gives values that 16 bits hold, and whose sums and products float64 holds, exactly. A product is a power of two near
// 1 in whatever order it is taken.
func inputFloat(op dtype.ReduceOp, rank, j int) float64 {
	if op == dtype.Prod {
		return math.Ldexp(1, (rank+j)%3-1)
	}
	return float64(rank%32+1+j%13) / 64
}

func inputInt(t dtype.Type, rank, j int) int64 {
	v := int64(rank+1)*37 + int64(j)*11
	switch t {
	case dtype.I8:
		return int64(int8(v))
	case dtype.U8:
		return int64(uint8(v))
	}
	return v
}

func combineFloat(op dtype.ReduceOp, a, b float64) float64 {
	switch op {
	case dtype.Prod:
		return a * b
	case dtype.Min:
		return math.Min(a, b)
	case dtype.Max:
		return math.Max(a, b)
	}
	return a + b
}

func combineInt(op dtype.ReduceOp, a, b int64) int64 {
	switch op {
	case dtype.Prod:
		return a * b
	case dtype.Min:
		return min(a, b)
	case dtype.Max:
		return max(a, b)
	case dtype.BitAnd:
		return a & b
	case dtype.BitOr:
		return a | b
	case dtype.BitXor:
		return a ^ b
	}
	return a + b
}

// encodeInt drops the high bits that t does not have.
func encodeInt(t dtype.Type, v int64) []byte {
	return binary.LittleEndian.AppendUint64(nil, uint64(v))[:t.Size()]
}

// encodeFloat rounds v to t, to nearest even.
func encodeFloat(t dtype.Type, v float64) []byte {
	switch t {
	case dtype.F64:
		return binary.LittleEndian.AppendUint64(nil, math.Float64bits(v))
	case dtype.F32:
		return binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(v)))
	case dtype.F16:
		return binary.LittleEndian.AppendUint16(nil, bits16(v, 10))
	}
	return binary.LittleEndian.AppendUint16(nil, bits16(v, 7))
}

// bits16 rounds a positive number in the normal range to a 16-bit format with so many bits of fraction.
func bits16(v float64, fraction int) uint16 {
	bias := 1<<(14-fraction) - 1
	f, exp := math.Frexp(v) // 1/2 <= f < 1
	mantissa := int(math.RoundToEven(math.Ldexp(f, fraction+1)))
	return uint16((exp-1+bias)<<fraction + mantissa - 1<<fraction) // a carry out of the mantissa raises the exponent
}

// fill writes the elements from index start on.
func (p pattern) fill(dst []byte, start int) {
	at := start % period * p.width
	for len(dst) > 0 {
		n := copyPart(dst, p.tile[at:])
		dst, at = dst[n:], 0
	}
}

// copyPart is copy, and like clearPart not part of its caller.
//
//go:noinline
func copyPart(dst, src []byte) int { return copy(dst, src) }

// wrong counts the elements of got that are not the pattern's from index start on.
func (p pattern) wrong(got []byte, start int) (count int64) {
	at := start % period * p.width
	for len(got) > 0 {
		n := min(len(got), len(p.tile)-at)
		want := p.tile[at : at+n]
		if !bytes.Equal(got[:n], want) {
			for i := 0; i < n; i += p.width {
				if !bytes.Equal(got[i:i+p.width], want[i:i+p.width]) {
					count++
				}
			}
		}
		got, at = got[n:], 0
	}
	return count
}
