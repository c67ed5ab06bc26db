package ring

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/goccl/goccl/dtype"
	"github.com/goccl/goccl/transport/mem"
)

// A reduction is one call of a test script: what each rank gives and what must come out.
type reduction struct {
	op      Op
	t       dtype.Type
	reduce  dtype.ReduceOp
	count   int   // all-reduce, reduce: elements; reduce-scatter: all parts together
	counts  []int // reduce-scatter: its V form
	root    int
	inPlace bool
	special bool
}

func (r reduction) String() string {
	s := fmt.Sprintf("%v %v x %d %v", r.op, r.t, r.count, r.reduce)
	if r.counts != nil {
		s += fmt.Sprintf(" in parts %v", r.counts)
	}
	return fmt.Sprintf("%s, root %d, in place %v", s, r.root, r.inPlace)
}

// part is the range of elements that a rank ends with.
func (r reduction) part(rank, size int) chunk {
	switch {
	case r.op == OpReduceScatter && r.counts != nil:
		return splitBy(nil, r.counts)[rank]
	case r.op == OpReduceScatter:
		return chunkOf(chunk{0, r.count}, size, rank)
	case r.op == OpReduce && rank != r.root:
		return chunk{}
	}
	return chunk{0, r.count}
}

// input is what a rank gives.
func (r reduction) input(rank int) dtype.Buffer {
	b := newBuffer(r.t, r.count)
	fill(b, rank, r.reduce, r.special)
	return b
}

// call runs the reduction on one rank and returns its result. It fails if Src was written, or anything but the result.
func (r reduction) call(ctx context.Context, x *Executor, seq uint64) (dtype.Buffer, error) {
	rank, size := x.plan.rank, x.plan.size
	part := r.part(rank, size)
	src := r.input(rank)
	before := bytes.Clone(src.HostBytes())
	dst := newBuffer(r.t, part.count())
	if r.op == OpReduce {
		dst = newBuffer(r.t, r.count)
	}
	if r.inPlace {
		dst = src
		if r.op == OpReduceScatter {
			dst = src.Slice(part.lo, part.hi)
		}
	}
	untouched := bytes.Clone(dst.HostBytes())
	c := Call{Op: r.op, Dst: dst, Src: src, Reduce: r.reduce, Root: r.root, RecvCounts: r.counts}
	if err := x.Run(ctx, seq, &c); err != nil {
		return dst, fmt.Errorf("%v: %w", r, err)
	}
	if r.inPlace && (r.op != OpReduce || rank == r.root) { // what lies outside of the result
		copy(before[part.lo*r.t.Size():], dst.HostBytes())
	}
	if !bytes.Equal(before, src.HostBytes()) {
		return dst, fmt.Errorf("%v: src was written", r)
	}
	if r.op == OpReduce && rank != r.root && !bytes.Equal(untouched, dst.HostBytes()) {
		return dst, fmt.Errorf("%v: dst was written", r)
	}
	return dst, nil
}

// check compares what all ranks got with the oracle, and with each other.
func (r reduction) check(how exactness, got []dtype.Buffer) error {
	n := len(got)
	if n == 1 {
		how = exact
	}
	var intSrcs [][]int64
	var floatSrcs [][]float64
	for rank := range n {
		if in := r.input(rank); r.t.Float() {
			floatSrcs = append(floatSrcs, floats(in))
		} else {
			intSrcs = append(intSrcs, ints(in))
		}
	}
	for rank := range n {
		if r.op == OpAllReduce && rank > 0 {
			if !bytes.Equal(got[0].HostBytes(), got[rank].HostBytes()) {
				return fmt.Errorf("%v: ranks 0 and %d have different bits", r, rank)
			}
			continue
		}
		part := r.part(rank, n)
		result := got[rank].Slice(0, part.count())
		var err error
		if r.t.Float() {
			err = checkFloats(r.t, r.reduce, how, floats(result), cut(floatSrcs, part))
		} else {
			err = checkInts(r.t, r.reduce, ints(result), cut(intSrcs, part))
		}
		if err != nil {
			return fmt.Errorf("%v: rank %d: %w", r, rank, err)
		}
	}
	return nil
}

// cut leaves of each slice what lies in c.
func cut[T any](s [][]T, c chunk) [][]T {
	t := make([][]T, len(s))
	for i := range s {
		t[i] = s[i][c.lo:c.hi]
	}
	return t
}

// runScript runs all calls in one world and checks each.
func runScript(t *testing.T, w network, n int, o Options, script []reduction) {
	t.Helper()
	results := make([][]dtype.Buffer, len(script))
	for i := range results {
		results[i] = make([]dtype.Buffer, n)
	}
	ok := w.run(t, n, o, func(ctx context.Context, x *Executor) (err error) {
		for i, r := range script {
			if results[i][x.plan.rank], err = r.call(ctx, x, uint64(i)); err != nil {
				return err
			}
		}
		return nil
	})
	if !ok {
		return
	}
	for i, r := range script {
		c := Call{Op: r.op, Src: newBuffer(r.t, r.count), Reduce: r.reduce, RecvCounts: r.counts}
		a, _ := Choose(&c, n, o.Algorithm, o.Table)
		if err := r.check(exactnessOf(a), results[i]); err != nil {
			t.Fatalf("%s, %d ranks, %v: %v", w.name, n, a, err)
		}
	}
}

// awkward counts for n ranks.
func awkward(n int) []int { return []int{0, 1, n - 1, n, n + 1, 257, 4*n - 1, 4*n + 1} }

// scriptFor is every type, reduce operation and awkward count, in place and not, and for Reduce every root.
func scriptFor(op Op, n int, types []dtype.Type) []reduction {
	var s []reduction
	for _, t := range types {
		for _, reduce := range opsOf(t) {
			for _, count := range awkward(n) {
				k := len(s)
				r := reduction{op: op, t: t, reduce: reduce, count: count, root: k % n, inPlace: k%2 == 1, special: k%3 == 0}
				if op == OpReduceScatter {
					if r.count = count / n * n; count%n != 0 {
						r.count, r.counts = count, unequal(count, n)
					}
				}
				s = append(s, r)
			}
		}
	}
	return s
}

// unequal splits count into n parts, some of them empty.
func unequal(count, n int) []int {
	parts := make([]int, n)
	for i := range count {
		parts[(i%n)*(i%n)%n]++
	}
	return parts
}

// reductions are the algorithms of each.
var reductions = map[Op][]Algorithm{
	OpAllReduce:     {Ring, Direct, OneShot, Doubling},
	OpReduceScatter: {Ring, Direct, Doubling},
	OpReduce:        {Chain, Direct, OneShot, Doubling},
}

// TestPeers27_ReductionsAgainstTheOracle is the matrix of operation, type, algorithm, world and count
// (rocm-systems PR#10322, ucc#585: avg is a plain sum on one algorithm, or fails for odd sizes).
func TestPeers27_ReductionsAgainstTheOracle(t *testing.T) {
	for op, algorithms := range reductions {
		for _, a := range algorithms {
			t.Run(fmt.Sprintf("%v/%v", op, a), func(t *testing.T) {
				t.Parallel()
				for n := 1; n <= 17; n++ {
					types := allTypes
					if testing.Short() && n > 4 {
						if n != 7 && n != 8 {
							continue
						}
						types = []dtype.Type{dtype.F16, dtype.F32, dtype.I8}
					}
					runScript(t, roomy, n, Options{Algorithm: a}, scriptFor(op, n, types))
				}
			})
		}
	}
}

// TestReductionsOverTCP is the same matrix over sockets.
func TestReductionsOverTCP(t *testing.T) {
	for op, algorithms := range reductions {
		for _, a := range algorithms {
			t.Run(fmt.Sprintf("%v/%v", op, a), func(t *testing.T) {
				t.Parallel()
				for n := 2; n <= 8; n++ {
					if testing.Short() && n != 3 {
						continue
					}
					runScript(t, sockets, n, Options{Algorithm: a}, scriptFor(op, n, allTypes))
				}
			})
		}
	}
}

// TestReductionsPieceByPiece has windows, blocks, scratch and pipes of a few elements, over Exchange and without it.
func TestReductionsPieceByPiece(t *testing.T) {
	for op, algorithms := range reductions {
		for _, a := range algorithms {
			for _, w := range []network{cramped, plainly, mixed} {
				t.Run(fmt.Sprintf("%v/%v/%s", op, a, w.name), func(t *testing.T) {
					t.Parallel()
					for _, n := range []int{1, 2, 3, 4, 7} {
						types := allTypes
						if testing.Short() || n == 7 {
							types = []dtype.Type{dtype.BF16, dtype.F64, dtype.I32}
						}
						runScript(t, w, n, Options{Algorithm: a}, scriptFor(op, n, types))
					}
				})
			}
		}
	}
}

// TestLargeReductions has counts of many blocks and windows at the sizes that are in use, with a remainder.
func TestLargeReductions(t *testing.T) {
	kinds := []reduction{
		{t: dtype.F16, reduce: dtype.Mean}, {t: dtype.BF16, reduce: dtype.Sum, inPlace: true},
		{t: dtype.F32, reduce: dtype.Sum, inPlace: true}, {t: dtype.F64, reduce: dtype.Max},
		{t: dtype.I32, reduce: dtype.Sum}, {t: dtype.U8, reduce: dtype.Mean, inPlace: true},
	}
	for op, algorithms := range reductions {
		for _, a := range algorithms {
			t.Run(fmt.Sprintf("%v/%v", op, a), func(t *testing.T) {
				t.Parallel()
				for _, n := range []int{2, 3, 4, 8, 17} {
					if testing.Short() && n != 3 {
						continue
					}
					var script []reduction
					for i, r := range kinds {
						if r.op, r.count, r.root = op, 65537, i%n; op == OpReduceScatter {
							r.counts = unequal(r.count, n)
						}
						script = append(script, r)
					}
					runScript(t, roomy, n, Options{Algorithm: a}, script)
				}
			})
		}
	}
}

// TestRepeatedReductions runs the same calls many times while bytes arrive differently each time.
func TestRepeatedReductions(t *testing.T) {
	repeats := 100
	if testing.Short() {
		repeats = 20
	}
	for _, a := range reductions[OpAllReduce] {
		t.Run(a.String(), func(t *testing.T) {
			t.Parallel()
			r := reduction{op: OpAllReduce, t: dtype.F32, reduce: dtype.Sum, count: 1003}
			var script []reduction
			for range 10 {
				script = append(script, r)
			}
			var first []byte
			for seed := range uint64(repeats / len(script)) {
				w := network{name: "jitter", make: overMem(mem.Options{Buffer: 500, Jitter: seed + 1}), small: true}
				w.run(t, 5, Options{Algorithm: a}, func(ctx context.Context, x *Executor) error {
					for i, r := range script {
						got, err := r.call(ctx, x, uint64(i))
						if err != nil {
							return err
						}
						if x.plan.rank != 3 {
							continue
						}
						if first == nil {
							first = bytes.Clone(got.HostBytes())
						}
						if !bytes.Equal(first, got.HostBytes()) {
							return fmt.Errorf("call %d with seed %d has other bits than the first", i, seed)
						}
					}
					return nil
				})
			}
		})
	}
}
