//go:build !race

package ring

import (
	"context"
	"fmt"
	"testing"

	"github.com/goccl/goccl/dtype"
)

// The race detector allocates, hence the constraint.

// TestAllocations: once a call like it has run, a collective allocates nothing, on no rank.
func TestAllocations(t *testing.T) {
	const n, count, runs = 4, 1200, 20
	for _, p := range pairs {
		roomy.run(t, n, Options{Algorithm: p.a}, func(ctx context.Context, x *Executor) error {
			whole, src, part := newBuffer(dtype.F32, count), newBuffer(dtype.F32, count), newBuffer(dtype.F32, count/n)
			c := Call{Op: p.op, Dst: whole, Src: src, Reduce: dtype.Mean}
			switch p.op {
			case OpReduceScatter, OpScatter:
				c.Dst = part
			case OpAllGather, OpGather:
				c.Src = part
			case OpAllReduce:
				c.Src = whole
			}
			seq, err := uint64(0), error(nil)
			once := func() {
				if err == nil {
					err = x.Run(ctx, seq, &c)
				}
				seq++
			}
			once()
			once() // scratch has its size now; on all ranks:
			if err := x.Run(ctx, 1e6, &Call{Op: OpBarrier}); err != nil {
				return err
			}
			if x.plan.rank > 0 {
				for range runs + 1 { // AllocsPerRun warms up with one more
					once()
				}
				return err
			}
			if a := testing.AllocsPerRun(runs, once); a > 0 {
				return fmt.Errorf("%v %v: %v allocations per run", p.op, p.a, a)
			}
			return err
		})
	}
}
