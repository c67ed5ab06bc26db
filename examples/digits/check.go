package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/goccl/goccl"
	"github.com/goccl/goccl/dtype"
)

// requiredAccuracy holds for at least the default number of epochs.
const requiredAccuracy = 0.95

// bounds say how far, relative to its norm, the parameters may end from those of one process. Each rounding of a gradient
// under way moves them a little, and later steps move on from there; the bounds leave about a factor of ten to what was
// seen over many seeds and up to 17 ranks.
var bounds = map[dtype.Type]float64{dtype.F64: 1e-9, dtype.F32: 1e-3, dtype.F16: 0.2, dtype.BF16: 0.2}

// sameBits fails unless all ranks hold the same parameters, bit for bit. It returns their hash.
func sameBits(ctx context.Context, g *goccl.ProcessGroup, params []float64) (hash []byte, err error) {
	raw := make([]byte, 0, 8*len(params))
	for _, p := range params {
		raw = binary.LittleEndian.AppendUint64(raw, math.Float64bits(p))
	}
	sum := sha256.Sum256(raw)
	all := make([]byte, g.Size()*len(sum))
	if err := goccl.AllGather(ctx, g, all, sum[:]); err != nil {
		return nil, err
	}
	for r := range g.Size() {
		if other := all[r*len(sum) : (r+1)*len(sum)]; !bytes.Equal(other, sum[:]) {
			return nil, fmt.Errorf("digits: parameters differ: hash %x on rank %d, %x on rank %d", sum[:8], g.Rank(), other[:8], r)
		}
	}
	return sum[:], nil
}

// distance returns ‖a−b‖₂ / ‖b‖₂.
func distance(a, b []float64) float64 {
	var diff, norm float64
	for i := range b {
		diff += (a[i] - b[i]) * (a[i] - b[i])
		norm += b[i] * b[i]
	}
	return math.Sqrt(diff / norm)
}
