package ring

import (
	"strings"
	"testing"

	"github.com/goccl/goccl/dtype"
)

// TestChoose states the default choice at the borders.
func TestChoose(t *testing.T) {
	const k = 1 << 10
	for _, c := range []struct {
		op     Op
		t      dtype.Type
		reduce dtype.ReduceOp
		count  int // of the whole
		size   int
		want   Algorithm
	}{
		{OpAllReduce, dtype.F32, dtype.Sum, 4 * k, 1, Direct},
		{OpAllReduce, dtype.F32, dtype.Sum, 4 * k, 2, OneShot},
		{OpAllReduce, dtype.F32, dtype.Sum, 4*k + 1, 2, Direct},
		{OpAllReduce, dtype.F32, dtype.Sum, 1 << 27, 2, Direct},
		{OpAllReduce, dtype.F32, dtype.Sum, 4 * k, 4, Doubling}, // float64 partials
		{OpAllReduce, dtype.F32, dtype.Sum, 4*k + 1, 4, Direct},
		{OpAllReduce, dtype.I32, dtype.Sum, 8 * k, 4, Doubling},
		{OpAllReduce, dtype.I32, dtype.Sum, 8*k + 1, 4, Direct},
		{OpAllReduce, dtype.F32, dtype.Sum, 64 * k, 4, Direct},
		{OpAllReduce, dtype.F32, dtype.Sum, 64*k + 1, 4, Ring},
		{OpAllReduce, dtype.F16, dtype.Sum, 1 << 27, 4, Direct},
		{OpAllReduce, dtype.BF16, dtype.Max, 1 << 27, 64, Direct},
		{OpAllReduce, dtype.I32, dtype.Mean, 1 << 27, 4, Direct},
		{OpAllReduce, dtype.I64, dtype.Mean, 1 << 27, 4, Ring},
		{OpAllReduce, dtype.F64, dtype.Mean, 1 << 27, 4, Ring},
		{OpReduceScatter, dtype.F32, dtype.Sum, 8, 2, Direct},
		{OpReduceScatter, dtype.F32, dtype.Sum, 8, 4, Doubling},
		{OpReduceScatter, dtype.F32, dtype.Sum, 1 << 27, 4, Ring},
		{OpReduceScatter, dtype.F16, dtype.Sum, 1 << 27, 4, Direct},
		{OpReduce, dtype.F32, dtype.Sum, 8, 4, Doubling},
		{OpReduce, dtype.F32, dtype.Sum, 1 << 27, 2, OneShot},
		{OpReduce, dtype.F32, dtype.Sum, 1 << 27, 4, Chain},
		{OpReduce, dtype.BF16, dtype.Sum, 1 << 27, 4, Direct},
		{OpAllGather, dtype.F32, 0, 16 * k, 4, Doubling},
		{OpAllGather, dtype.F32, 0, 16*k + 4, 4, Ring},
		{OpBroadcast, dtype.F32, 0, 4 * k, 4, Doubling},
		{OpBroadcast, dtype.F16, 0, 8*k + 1, 4, Chain},
		{OpGather, dtype.F32, 0, 1 << 27, 4, Direct},
		{OpAllToAll, dtype.F32, 0, 1 << 27, 4, Direct},
		{OpBarrier, 0, 0, 0, 4, Doubling},
	} {
		b := deviceBuffer(c.t, c.count)
		call := Call{Op: c.op, Dst: b, Src: b, Reduce: c.reduce}
		if a, why := Choose(&call, c.size, Auto, nil); a != c.want || why == "" {
			t.Errorf("%v %v %v of %d on %d ranks: %v (%s), want %v", c.op, c.t, c.reduce, c.count, c.size, a, why, c.want)
		}
	}
}

// deviceBuffer has a count and no memory.
func deviceBuffer(t dtype.Type, count int) dtype.Buffer {
	if !t.Valid() {
		return dtype.Buffer{}
	}
	return dtype.Device(t, 0, count, 0)
}

// TestOverride: a forced algorithm that may not be taken is replaced, and the reason says so.
func TestOverride(t *testing.T) {
	big, half := deviceBuffer(dtype.F32, 1<<27), deviceBuffer(dtype.F16, 8)
	for _, c := range []struct {
		call         Call
		forced, want Algorithm
		why          string
	}{
		{Call{Op: OpAllReduce, Src: big, Reduce: dtype.Sum}, Doubling, Doubling, "forced"},
		{Call{Op: OpAllReduce, Src: half, Reduce: dtype.Max}, Ring, Direct, "direct instead"},
		{Call{Op: OpAllReduce, Src: deviceBuffer(dtype.I8, 8), Reduce: dtype.Mean}, Ring, Direct, "direct instead"},
		{Call{Op: OpAllReduce, Src: deviceBuffer(dtype.I8, 8), Reduce: dtype.Sum}, Ring, Ring, "forced"},
		{Call{Op: OpReduce, Src: half, Reduce: dtype.Sum}, Chain, Direct, "direct instead"},
		{Call{Op: OpReduce, Src: big, Reduce: dtype.Sum}, Ring, Chain, "nearest"},
		{Call{Op: OpReduceScatter, Src: big, Reduce: dtype.Sum}, Doubling, Direct, "direct instead"},
		{Call{Op: OpReduceScatter, Src: half, Reduce: dtype.Sum}, OneShot, Direct, "nearest"},
		{Call{Op: OpAllGather, Dst: half}, Ring, Ring, "forced"},
		{Call{Op: OpAllGather, Dst: half}, OneShot, Direct, "nearest"},
		{Call{Op: OpBroadcast, Dst: half}, Ring, Chain, "nearest"},
		{Call{Op: OpScatter, Dst: half}, Ring, Direct, "only algorithm"},
		{Call{Op: OpBarrier}, Ring, Doubling, "only algorithm"},
		{Call{Op: OpAllReduce, Src: big, Reduce: dtype.Sum}, 99, Direct, "no such algorithm"},
	} {
		a, why := Choose(&c.call, 4, c.forced, nil)
		if a != c.want || !strings.Contains(why, c.why) {
			t.Errorf("%v forced to %v: %v (%s), want %v (%s)", c.call.Op, c.forced, a, why, c.want, c.why)
		}
	}
}

// TestEveryChoiceHasASchedule: whatever is forced, in any operation, can be run.
func TestEveryChoiceHasASchedule(t *testing.T) {
	for o := OpAllReduce; o <= OpBarrier; o++ {
		for forced := Auto; forced <= Chain+1; forced++ {
			for _, typ := range allTypes {
				for _, count := range []int{0, 12, 1 << 27} {
					b := deviceBuffer(typ, count)
					a, _ := Choose(&Call{Op: o, Dst: b, Src: b, Reduce: dtype.Mean}, 4, forced, nil)
					c := simCase{op: o, a: a, size: 4, counts: evenParts(4, 3)}
					c.plan(1) // panics if there is none
				}
			}
		}
	}
}
