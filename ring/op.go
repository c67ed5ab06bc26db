package ring

import (
	"fmt"
	"strings"
)

// An Op is a collective operation. The zero Op is invalid. The values are part of the wire format.
type Op uint8

const (
	OpAllReduce Op = 1 + iota
	OpReduceScatter
	OpAllGather
	OpBroadcast
	OpReduce
	OpGather
	OpScatter
	OpAllToAll
	OpBarrier
)

var opNames = [...]string{
	OpAllReduce: "all-reduce", OpReduceScatter: "reduce-scatter", OpAllGather: "all-gather", OpBroadcast: "broadcast",
	OpReduce: "reduce", OpGather: "gather", OpScatter: "scatter", OpAllToAll: "all-to-all", OpBarrier: "barrier",
}

func (o Op) valid() bool { return OpAllReduce <= o && o <= OpBarrier }

// reduces reports whether o combines elements, hence needs a reduce operation.
func (o Op) reduces() bool { return o == OpAllReduce || o == OpReduceScatter || o == OpReduce }

// rooted reports whether one rank of o is special.
func (o Op) rooted() bool {
	return o == OpBroadcast || o == OpReduce || o == OpGather || o == OpScatter
}

// String returns the name that ParseOp accepts: "all-reduce", "reduce-scatter", ….
func (o Op) String() string {
	if !o.valid() {
		return fmt.Sprintf("invalid op %d", uint8(o))
	}
	return opNames[o]
}

// ParseOp is the inverse of String. It takes any case, with or without hyphens: "AllReduce", "allreduce".
func ParseOp(s string) (Op, error) {
	for o := OpAllReduce; o <= OpBarrier; o++ {
		if plainName(s) == plainName(opNames[o]) {
			return o, nil
		}
	}
	return 0, fmt.Errorf("ring: unknown operation %q: want one of %s", s, strings.Join(opNames[1:], ", "))
}

// An Algorithm is a way to run a collective. The zero Algorithm lets Choose decide. The values are part of the wire format.
type Algorithm uint8

const (
	Auto     Algorithm = iota
	Ring               // neighbours only, every rank forwards: all bytes balanced, one rounding per hop
	Direct             // every part straight to its owner: two steps, one rounding
	OneShot            // everything to everyone (reduce: to the root): one step, one rounding
	Doubling           // a logarithmic number of steps: recursive doubling and halving, Bruck, binomial tree, dissemination
	Chain              // from rank to rank, forwarded as it arrives
)

var algorithmNames = [...]string{Auto: "auto", Ring: "ring", Direct: "direct", OneShot: "one-shot", Doubling: "doubling", Chain: "chain"}

// String returns the name that ParseAlgorithm accepts: "auto", "ring", "direct", "one-shot", "doubling", "chain".
func (a Algorithm) String() string {
	if a > Chain {
		return fmt.Sprintf("invalid algorithm %d", uint8(a))
	}
	return algorithmNames[a]
}

// ParseAlgorithm is the inverse of String, as liberal as ParseOp.
func ParseAlgorithm(s string) (Algorithm, error) {
	for a := Auto; a <= Chain; a++ {
		if plainName(s) == plainName(algorithmNames[a]) {
			return a, nil
		}
	}
	return 0, fmt.Errorf("ring: unknown algorithm %q: want one of %s", s, strings.Join(algorithmNames[:], ", "))
}

func plainName(s string) string { return strings.ToLower(strings.ReplaceAll(s, "-", "")) }
