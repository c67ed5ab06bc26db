package ring

import (
	"context"
	"fmt"
	"testing"

	"github.com/goccl/goccl/dtype"
)

// TestScratchIsBounded: what an executor keeps does not grow with the count, in place or not.
func TestScratchIsBounded(t *testing.T) {
	const n, count, bound = 3, 60_000, 32 << 10
	for _, p := range pairs {
		if p.op == OpReduceScatter && p.a == Doubling {
			continue // keeps one partial result of everything
		}
		for _, inPlace := range []bool{false, true} {
			roomy.run(t, n, Options{Algorithm: p.a}, func(ctx context.Context, x *Executor) error {
				x.layout.piece, x.layout.stage, x.scratch = 256, 1024, 4096
				whole, src, part := newBuffer(dtype.F32, count), newBuffer(dtype.F32, count), newBuffer(dtype.F32, count/n)
				c := Call{Op: p.op, Dst: whole, Src: src, Reduce: dtype.Sum}
				switch p.op {
				case OpReduceScatter, OpScatter:
					c.Dst = part
				case OpAllGather, OpGather:
					c.Src = part
				case OpAllReduce:
					if inPlace {
						c.Src = whole
					}
				}
				for seq := range uint64(2) { // the second run has all it needs
					if err := x.Run(ctx, seq, &c); err != nil {
						return err
					}
				}
				if k := max(len(x.layout.mem), x.layout.used); k > bound {
					return fmt.Errorf("%v %v, in place %v: %d bytes of scratch for a buffer of %d", p.op, p.a, inPlace, k, whole.Nbytes())
				}
				return nil
			})
		}
	}
}
