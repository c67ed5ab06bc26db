package ring

import (
	"fmt"

	"github.com/goccl/goccl/dtype"
)

// A Table holds the sizes, in bytes, at which Choose changes its mind. It must be the same on all ranks.
type Table struct {
	// OneShotBytes: up to here (bytes of the buffer) a reduction among at most OneShotRanks ranks is one exchange.
	OneShotBytes, OneShotRanks int
	// DoublingBytes: up to here (bytes of a buffer of accumulators) a reduction takes logarithmically many steps.
	DoublingBytes int
	// DirectBytes: up to here (bytes of the buffer) a reduction goes straight to the owners; above it is forwarded from
	// neighbour to neighbour, if the type may.
	DirectBytes int
	// GatherBytes: up to here (bytes of the whole result) an all-gather takes logarithmically many steps; above a ring.
	GatherBytes int
	// TreeBytes: up to here a broadcast goes down a binomial tree; above along a chain.
	TreeBytes int
}

// defaultTable holds for ranks of one host and for networks alike; each line says what it was measured with (loopback TCP
// on 2 cores, and 4 hosts on rate-limited links).
var defaultTable = Table{
	// 2 ranks: 4 B to 16 KiB in 5 to 10 us, one step instead of two; at 64 KiB direct, which overlaps reducing with both
	// directions, takes 24 us and one-shot moves twice its bytes.
	OneShotBytes: 16 << 10, OneShotRanks: 2,
	// 4 ranks: at 1 KiB doubling 36-52 us, one-shot 75, ring 153-196; at 16 KiB of f32, 32 KiB of accumulators, on a busy host
	// 270-330 us, direct 390-530; at twice that they are equal, then direct is faster; in f16 they meet at 16 KiB.
	DoublingBytes: 32 << 10,
	// 4 hosts with 0.5 ms round trip: direct 1.7 times faster than the ring at 64 KiB, 6 % slower at 1 MiB. 4 ranks of one host
	// over TCP: as fast at 64 KiB, at half the speed at 1 MiB, where many senders meet at one receiver; over Unix-domain
	// sockets the two are equal.
	DirectBytes: 256 << 10,
	// 4 hosts, 0.5 ms round trip, 64 KiB: 0.9 ms in two steps against 1.5 ms in three; ring 5 to 20 % ahead at 16 MiB.
	GatherBytes: 64 << 10,
	// 4 hosts, 16 MiB: chain 141 ms, everything from the root 420, peers' trees 408; at 64 KiB a tree is no slower.
	TreeBytes: 16 << 10,
}

// DefaultTable returns the table that is used without another.
func DefaultTable() Table { return defaultTable }

// maxHalvingBytes bounds the accumulators that a recursive halving keeps.
const maxHalvingBytes = 16 << 20

// A why is a reason as data, so that choosing allocates nothing.
type why struct {
	text  string
	limit int // in bytes; 0: the text says it all
}

func (w why) String() string {
	if w.limit == 0 {
		return w.text
	}
	return fmt.Sprintf("%s %d bytes", w.text, w.limit)
}

// Choose says which algorithm runs c on size ranks, and why. It depends only on what all ranks know alike. forced is Auto
// or an override; one that the operation, the type or the reduce operation may not take is replaced by the nearest that it
// may. t nil means DefaultTable().
func Choose(c *Call, size int, forced Algorithm, t *Table) (Algorithm, string) {
	a, w := choose(c, size, forced, t)
	return a, w.String()
}

func choose(c *Call, size int, forced Algorithm, t *Table) (Algorithm, why) {
	if t == nil {
		t = &defaultTable
	}
	if size == 1 {
		return Direct, why{text: "one rank: a local copy"}
	}
	if forced != Auto {
		return override(c, forced)
	}
	switch c.Op {
	case OpAllReduce, OpReduce, OpReduceScatter:
		return chooseReduction(c, size, t)
	case OpAllGather:
		return chooseBySize(c, t.GatherBytes, Ring)
	case OpBroadcast:
		return chooseBySize(c, t.TreeBytes, Chain)
	}
	return only(c.Op)
}

// only is for operations that know one algorithm.
func only(o Op) (Algorithm, why) {
	if o == OpBarrier {
		return Doubling, why{text: "dissemination: the only algorithm of a barrier"}
	}
	return Direct, why{text: "every part straight to its rank: the only algorithm of the operation"}
}

func chooseBySize(c *Call, limit int, large Algorithm) (Algorithm, why) {
	if nbytes(c) <= uint64(limit) {
		return Doubling, why{"logarithmically many steps up to", limit}
	}
	return large, why{"all links busy at once above", limit}
}

func chooseReduction(c *Call, size int, t *Table) (Algorithm, why) {
	switch {
	case size <= t.OneShotRanks && nbytes(c) <= uint64(t.OneShotBytes):
		if c.Op == OpReduceScatter {
			return Direct, why{text: "few ranks, small: one step"}
		}
		return OneShot, why{"few ranks: one step up to", t.OneShotBytes}
	case size > t.OneShotRanks && accBytes(c) <= uint64(t.DoublingBytes):
		return Doubling, why{"logarithmically many steps while accumulators take up to", t.DoublingBytes}
	case size == 2 && c.Op == OpReduce:
		return OneShot, why{text: "two ranks: one step, one rounding"}
	case !mayRoundPerHop(c):
		return Direct, why{text: "one rounding: no forwarding of partial results in this type"}
	case size == 2:
		return Direct, why{text: "two ranks: two steps, one rounding"}
	case nbytes(c) <= uint64(t.DirectBytes):
		return Direct, why{"two steps, one rounding up to", t.DirectBytes}
	case c.Op == OpReduce:
		return Chain, why{"forwarded as it arrives above", t.DirectBytes}
	}
	return Ring, why{"neighbours only, all links busy at once above", t.DirectBytes}
}

// override maps a forced algorithm to the nearest one that the operation has and the type may take.
func override(c *Call, forced Algorithm) (Algorithm, why) {
	a := forced
	switch c.Op {
	case OpAllReduce:
		if a == Chain {
			a = Ring
		}
	case OpReduceScatter, OpAllGather:
		switch {
		case a == Chain:
			a = Ring
		case a == OneShot:
			a = Direct
		}
	case OpBroadcast:
		switch a {
		case Ring:
			a = Chain
		case OneShot:
			a = Direct
		}
	case OpReduce:
		if a == Ring {
			a = Chain
		}
	default:
		return only(c.Op)
	}
	switch {
	case a > Chain:
		return Direct, why{text: "no such algorithm: direct instead"}
	case c.Op.reduces() && (a == Ring || a == Chain) && !mayRoundPerHop(c):
		return Direct, why{text: "forced, but partial results of this type and operation are not forwarded: direct instead"}
	case c.Op == OpReduceScatter && a == Doubling && accBytes(c) > maxHalvingBytes:
		return Direct, why{"forced, but direct instead where accumulators take more than", maxHalvingBytes}
	case a != forced:
		return a, why{text: "forced; the nearest that the operation has"}
	}
	return a, why{text: "forced"}
}

// mayRoundPerHop says which reductions may forward rounded partial results.
func mayRoundPerHop(c *Call) bool {
	switch c.Type() {
	case dtype.F16, dtype.BF16:
		return false
	case dtype.I8, dtype.U8, dtype.I32:
		return c.Reduce != dtype.Mean
	}
	return true
}

func nbytes(c *Call) uint64 { return uint64(c.total()) * uint64(c.Type().Size()) }

func accBytes(c *Call) uint64 {
	return uint64(c.total()) * uint64(dtype.Accumulator(c.Reduce, c.Type()).Size())
}
