package dtype

import (
	"bytes"
	"flag"
	"math"
	"testing"

	"github.com/x448/float16"
)

var exhaustive = flag.Bool("exhaustive", false, "convert every float32 to the 16-bit types, not only those around each tie; takes minutes")

// Scenario 30: one node's result differs (nccl#434), as when kernels do not agree. The tests named TestPeers30 hold every level
// of kernels against the oracle; this one takes float32 in blocks, all of them if told to.
func TestPeers30_BlocksOfFloat32(t *testing.T) {
	defer levels[0].set()
	const block = 1 << 20
	step := uint64(1 << 28)
	if *exhaustive {
		step = block
	}
	in := make([]float32, block)
	wantF16, wantBF16 := make([]Float16, block), make([]BFloat16, block)
	gotF16, gotBF16 := make([]Float16, block), make([]BFloat16, block)
	for first := uint64(0); first < 1<<32; first += step {
		for i := range in {
			bits := uint32(first) + uint32(i)
			in[i] = math.Float32frombits(bits)
			wantF16[i] = float16.Fromfloat32(in[i])
			wantBF16[i] = BFloat16(nearestBF16(bits))
		}
		for _, l := range levels {
			l.set()
			for _, c := range [][2]Buffer{{Of(gotF16), Of(wantF16)}, {Of(gotBF16), Of(wantBF16)}} {
				if err := Convert(c[0], Of(in)); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(c[0].HostBytes(), c[1].HostBytes()) {
					t.Fatalf("%s: f32 to %v differs among the %d values from %#x", l.name, c[0].Type(), block, first)
				}
			}
		}
	}
}

// nearestBF16 rounds by the definition: the upper half, one more if the lower is above the middle, or at it and the upper odd.
func nearestBF16(bits uint32) uint16 {
	up, low := uint16(bits>>16), bits&0xffff
	switch {
	case bits&0x7fffffff > 0x7f800000:
		return up | 0x40 // a NaN, made quiet
	case low > 0x8000 || low == 0x8000 && up&1 == 1:
		return up + 1
	}
	return up
}
