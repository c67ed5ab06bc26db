package ring

import (
	"context"
	"fmt"
	"math/bits"
	"testing"

	"github.com/goccl/goccl/dtype"
	"github.com/goccl/goccl/transport"
)

// counting adds up the payload that an executor gives to its transport, over Exchange.
type counting struct {
	transport.Transport
	sent, calls int64
}

func (c *counting) Exchange(ctx context.Context, tag transport.Tag, steps []transport.Step) error {
	c.calls++
	for i := range steps {
		if steps[i].In == nil {
			c.sent += int64(len(steps[i].Out))
		}
	}
	return c.Transport.(transport.Exchanger).Exchange(ctx, tag, steps)
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }

// bound is the most elements, or accumulators, that any rank sends: what doc.go states. Parts are those of chunkOf.
func bound(op Op, a Algorithm, n, count int) (elements, accumulators int) {
	part := ceilDiv(count, n)
	log := bits.Len(uint(n)) - 1
	extra := n - 1<<log
	switch {
	case n == 1:
		return 0, 0
	case op == OpAllReduce && (a == Ring || a == Direct):
		return count + (n-2)*part, 0
	case op == OpReduceScatter && (a == Ring || a == Direct), op == OpAllGather:
		return (n - 1) * part, 0
	case op == OpAllReduce && a == OneShot, op == OpBroadcast && a == Direct:
		return (n - 1) * count, 0
	case op == OpAllReduce && a == Doubling && extra == 0:
		return count, (log - 1) * count
	case op == OpAllReduce && a == Doubling:
		return count, log * count
	case op == OpReduceScatter && a == Doubling:
		if extra == 0 {
			return n / 2 * part, (n/2 - 1) * part
		}
		return part, count
	case op == OpBroadcast && a == Chain, op == OpReduce && a != Doubling:
		return count, 0
	case op == OpReduce && a == Doubling:
		return 0, count // a leaf: elements, no more bytes than that
	case op == OpBroadcast && a == Doubling:
		return bits.Len(uint(n-1)) * count, 0
	}
	panic("no bound")
}

// TestPeers60_BytesSent: no rank sends more than the documentation says (gloo#169, PR#192: two ranks sent twice the bytes).
func TestPeers60_BytesSent(t *testing.T) {
	for _, op := range []Op{OpAllReduce, OpReduce} {
		testBytes(t, op, reductions[op])
	}
	testBytes(t, OpAllGather, []Algorithm{Ring, Direct, Doubling})
	testBytes(t, OpBroadcast, []Algorithm{Chain, Direct, Doubling})
}

// TestPeers61_BytesOfReduceScatter: nor does a reduce-scatter, which elsewhere was an all-reduce per rank (pytorch PR#149869).
func TestPeers61_BytesOfReduceScatter(t *testing.T) {
	testBytes(t, OpReduceScatter, reductions[OpReduceScatter])
}

func testBytes(t *testing.T, op Op, algorithms []Algorithm) {
	t.Helper()
	for n := 1; n <= 17; n++ {
		if testing.Short() && n > 8 {
			break
		}
		counts := append(awkward(n), 4*n)
		for _, a := range algorithms {
			roomy.run(t, n, Options{Algorithm: a}, func(ctx context.Context, x *Executor) error {
				c := &counting{Transport: x.t}
				x.ex = c
				for seq, count := range counts {
					if err := checkBytes(ctx, x, c, uint64(seq), op, a, count); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
}

func checkBytes(ctx context.Context, x *Executor, c *counting, seq uint64, op Op, a Algorithm, count int) error {
	n := x.plan.size
	if op == OpAllGather || op == OpReduceScatter {
		count = count / n * n
	}
	whole, part := newBuffer(dtype.F32, count), newBuffer(dtype.F32, count/n)
	call := Call{Op: op, Dst: whole, Src: newBuffer(dtype.F32, count), Reduce: dtype.Sum}
	switch op {
	case OpReduceScatter:
		call.Dst = part
	case OpAllGather:
		call.Src = part
	}
	c.sent = 0
	if err := x.Run(ctx, seq, &call); err != nil {
		return err
	}
	elements, accumulators := bound(op, a, n, count)
	if most := int64(elements*dtype.F32.Size() + accumulators*dtype.F64.Size()); c.sent > most {
		return fmt.Errorf("%v %v of %d on %d ranks: %d bytes sent, %d allowed", op, a, count, n, c.sent, most)
	}
	return nil
}
