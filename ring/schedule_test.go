package ring

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/goccl/goccl/transport"
)

// A cell is one element of a simulated world: which element of the logical operation it is, and whose contributions it
// holds.
type cell struct {
	pos  int
	from uint64 // set of ranks
}

// A frameInFlight is what a send has left on the way to a peer.
type frameInFlight struct {
	cells []cell
	wide  bool
	heard uint64
}

// simRank is one rank of a simulated world: its plan and its memory.
type simRank struct {
	plan    *plan
	areas   [4][]cell
	lanes   [][]int // by peer and direction: indexes of moves still to run
	done    []bool
	folded  int    // folds that have run
	heard   uint64 // ranks that began before any frame that came here was sent
	inPlace bool
}

// simWorld runs plans frame by frame, without I/O, in an order that a seed picks: receives as early and sends as late as
// they can be, or any other.
type simWorld struct {
	t     *testing.T
	ranks []*simRank
	wires map[[2]int][]frameInFlight
}

// memory returns the cells of a span. In place, Src is Dst.
func (r *simRank) memory(s span) []cell {
	if r.inPlace && s.area == inSrc {
		s.area = inDst
	}
	return r.areas[s.area][s.lo:s.hi]
}

// complete is a gate's, including the chain behind a store and all of a fold.
func (r *simRank) complete(i int) bool {
	if i == 0 {
		return true
	}
	m := &r.plan.moves[i-1]
	switch {
	case !r.done[i-1]:
		return false
	case m.verb == store && m.whole:
		return r.complete(m.after)
	case m.verb == fold:
		return r.folded == r.plan.size-1
	}
	return true
}

func (w *simWorld) canRun(rank, i int) bool {
	r := w.ranks[rank]
	m := &r.plan.moves[i]
	switch m.verb {
	case send:
		return r.complete(m.after)
	case accumulate:
		if !r.complete(m.after) {
			return false
		}
	}
	return len(w.wires[[2]int{m.peer, rank}]) > 0
}

func (w *simWorld) run(rank, i int) {
	r := w.ranks[rank]
	m := &r.plan.moves[i]
	r.done[i] = true
	if m.verb == send {
		key := [2]int{rank, m.peer}
		w.wires[key] = append(w.wires[key], frameInFlight{append([]cell(nil), r.memory(m.at)...), m.at.area == inAcc, r.heard})
		return
	}
	key := [2]int{m.peer, rank}
	f := w.wires[key][0]
	w.wires[key] = w.wires[key][1:]
	if len(f.cells) != m.at.count() || f.wide != m.wide {
		w.t.Fatalf("rank %d move %d: %d cells (wide %v) arrive, want %d (wide %v)", rank, i, len(f.cells), f.wide, m.at.count(), m.wide)
	}
	r.heard |= f.heard
	at, with := r.memory(m.at), r.memory(m.with)
	if m.verb == fold { // in order of arrival: sets do not mind
		if r.folded > 0 {
			with = at
		}
		r.folded++
	}
	for k, c := range f.cells {
		if m.verb != store {
			c = w.join(rank, i, with[k], c)
		}
		at[k] = c
	}
	if m.last && m.verb == accumulate {
		copy(r.memory(m.out), at)
	}
}

func (w *simWorld) join(rank, i int, a, b cell) cell {
	if a.pos != b.pos || a.from&b.from != 0 || a.from == 0 || b.from == 0 {
		w.t.Fatalf("rank %d move %d joins element %d of %b and %d of %b", rank, i, a.pos, a.from, b.pos, b.from)
	}
	return cell{a.pos, a.from | b.from}
}

// pass runs, in random order, the first move of every lane that wants says and that can run: all of them, or a quarter.
// It reports whether any could.
func (w *simWorld) pass(rng *rand.Rand, all bool, wants func(verb) bool) bool {
	type pick struct {
		r    *simRank
		lane int
	}
	var picks []pick
	for _, r := range w.ranks {
		for l, lane := range r.lanes {
			if len(lane) > 0 && wants(r.plan.moves[lane[0]].verb) && w.canRun(r.plan.rank, lane[0]) {
				picks = append(picks, pick{r, l})
			}
		}
	}
	rng.Shuffle(len(picks), func(i, j int) { picks[i], picks[j] = picks[j], picks[i] })
	n := len(picks)
	if !all {
		n = (n + 3) / 4
	}
	for _, p := range picks[:n] {
		w.run(p.r.plan.rank, p.r.lanes[p.lane][0])
		p.r.lanes[p.lane] = p.r.lanes[p.lane][1:]
	}
	return n > 0
}

// runAll runs all moves that can ever run. With lateSends nothing leaves while anything can be received.
func (w *simWorld) runAll(rng *rand.Rand, lateSends bool) {
	anything := func(verb) bool { return true }
	arrivals := func(v verb) bool { return v != send }
	for {
		if lateSends && w.pass(rng, true, arrivals) {
			continue
		}
		if !w.pass(rng, false, anything) {
			break
		}
	}
	for rank, r := range w.ranks {
		for i, d := range r.done {
			if !d {
				w.t.Fatalf("rank %d move %d of %+v never runs", rank, i, r.plan.moves)
			}
		}
	}
	for key, f := range w.wires {
		if len(f) > 0 {
			w.t.Fatalf("%d frames from %d to %d are left", len(f), key[0], key[1])
		}
	}
}

// A simCase is a collective for the simulation. Positions are those of the buffer that holds all parts.
type simCase struct {
	op      Op
	a       Algorithm
	size    int
	root    int
	counts  []int // parts; of all-to-all, rank i sends counts[(i+j)%size] to rank j
	inPlace bool
}

func (c simCase) total() int { return sum(c.counts) }

func (c simCase) sendCounts(rank int) []int {
	s := make([]int, c.size)
	for j := range s {
		s[j] = c.counts[(rank+j)%c.size]
	}
	return s
}

func (c simCase) plan(rank int) *plan {
	p := &plan{rank: rank, size: c.size, root: c.root, all: chunk{0, c.total()}}
	switch c.op {
	case OpAllReduce, OpReduce:
		p.parts = splitEvenly(nil, p.all, c.size)
	case OpAllToAll:
		p.parts, p.give = splitBy(nil, c.sendCounts(rank)), splitBy(nil, c.sendCounts(rank))
	default:
		p.parts = splitBy(nil, c.counts)
	}
	p.own = chunk{0, p.parts[rank].count()}
	if c.size == 1 {
		alone(p, c.op)
	} else {
		schedule(p, c.op, c.a)
	}
	return p
}

func lanesOf(moves []move) [][]int {
	steps := make([]transport.Step, len(moves))
	for i, m := range moves {
		if steps[i].Peer = m.peer; m.verb != send {
			steps[i].In = &storeSink{}
		}
	}
	return lanes(steps)
}

// cells are the numbered elements [lo, hi), contributed by from.
func cells(lo, hi int, from uint64) []cell {
	s := make([]cell, hi-lo)
	for i := range s {
		s[i] = cell{lo + i, from}
	}
	return s
}

// memory fills a rank's Src and Dst as the operation finds them, and gives it scratch.
func (c simCase) memory(r *simRank) {
	p, me := r.plan, uint64(1)<<r.plan.rank
	n := c.total()
	whole, mine := cells(0, n, me), cells(p.parts[p.rank].lo, p.parts[p.rank].hi, me)
	switch c.op {
	case OpAllReduce, OpReduce:
		r.areas[inSrc], r.areas[inDst] = whole, make([]cell, n)
		if c.inPlace {
			r.areas[inDst] = whole
		}
	case OpReduceScatter:
		r.areas[inSrc], r.areas[inDst] = whole, make([]cell, len(mine))
	case OpAllGather, OpGather:
		r.areas[inSrc], r.areas[inDst] = mine, make([]cell, n)
	case OpBroadcast:
		r.areas[inDst] = cells(0, n, me)
	case OpScatter:
		r.areas[inSrc], r.areas[inDst] = whole, make([]cell, len(mine))
	case OpAllToAll:
		for j, g := range p.give { // the position says for whom
			for i := range g.count() {
				r.areas[inSrc] = append(r.areas[inSrc], cell{j<<20 | i, me})
			}
		}
		r.areas[inDst] = make([]cell, n)
	}
	r.areas[inTmp], r.areas[inAcc] = make([]cell, p.tmp), make([]cell, p.acc)
	r.heard = me
	r.inPlace = c.inPlace
}

// want is what a rank's Dst must hold, nil where it must be as it was.
func (c simCase) want(rank int) []cell {
	p := c.plan(rank)
	n, everyone := c.total(), uint64(1)<<c.size-1
	switch c.op {
	case OpAllReduce:
		return cells(0, n, everyone)
	case OpReduce, OpGather:
		if rank != c.root {
			return nil
		}
		if c.op == OpReduce {
			return cells(0, n, everyone)
		}
		fallthrough
	case OpAllGather:
		var s []cell
		for i, part := range p.parts {
			s = append(s, cells(part.lo, part.hi, 1<<i)...)
		}
		return s
	case OpReduceScatter:
		return cells(p.parts[rank].lo, p.parts[rank].hi, everyone)
	case OpBroadcast:
		return cells(0, n, 1<<c.root)
	case OpScatter:
		return cells(p.parts[rank].lo, p.parts[rank].hi, 1<<c.root)
	case OpAllToAll:
		var s []cell
		for i := range c.size {
			for k := range c.sendCounts(i)[rank] {
				s = append(s, cell{rank<<20 | k, 1 << i})
			}
		}
		return s
	}
	return nil
}

func (c simCase) check(t *testing.T, seed uint64, lateSends bool) {
	defer func() {
		if t.Failed() {
			t.Logf("%+v", c)
		}
	}()
	w := &simWorld{t: t, wires: make(map[[2]int][]frameInFlight)}
	for rank := range c.size {
		r := &simRank{plan: c.plan(rank)}
		r.done, r.lanes = make([]bool, len(r.plan.moves)), lanesOf(r.plan.moves)
		c.memory(r)
		w.ranks = append(w.ranks, r)
		w.copies(r, false)
	}
	w.runAll(rand.New(rand.NewPCG(seed, uint64(c.size))), lateSends)
	for rank, r := range w.ranks {
		w.copies(r, true)
		want := c.want(rank)
		if c.op == OpBarrier && r.heard != uint64(1)<<c.size-1 {
			t.Fatalf("rank %d left the barrier and had heard of %b only", rank, r.heard)
		}
		for i := range want {
			if r.areas[inDst][i] != want[i] {
				t.Fatalf("rank %d element %d is %+v, want %+v", rank, i, r.areas[inDst][i], want[i])
			}
		}
		if want == nil && c.op != OpBarrier {
			for i, x := range r.areas[inDst] {
				if x != (cell{}) && !c.inPlace {
					t.Fatalf("rank %d element %d was written: %+v", rank, i, x)
				}
			}
		}
	}
}

func (w *simWorld) copies(r *simRank, late bool) {
	for _, c := range r.plan.copies {
		if c.late == late {
			copy(r.memory(c.to), r.memory(c.from))
		}
	}
}

// pairs are all combinations that Choose may give.
var pairs = []struct {
	op Op
	a  Algorithm
}{
	{OpAllReduce, Ring}, {OpAllReduce, Direct}, {OpAllReduce, OneShot}, {OpAllReduce, Doubling},
	{OpReduceScatter, Ring}, {OpReduceScatter, Direct}, {OpReduceScatter, Doubling},
	{OpAllGather, Ring}, {OpAllGather, Direct}, {OpAllGather, Doubling},
	{OpBroadcast, Chain}, {OpBroadcast, Direct}, {OpBroadcast, Doubling},
	{OpReduce, Chain}, {OpReduce, Direct}, {OpReduce, OneShot}, {OpReduce, Doubling},
	{OpGather, Direct}, {OpScatter, Direct}, {OpAllToAll, Direct}, {OpBarrier, Doubling},
}

// unevenParts has zeros and no two neighbours alike.
func unevenParts(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i % 3 * (1 + i%2)
	}
	return s
}

func evenParts(n, count int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = count
	}
	return s
}

// TestSchedules simulates worlds of 1 to 64 ranks: every frame finds a receive of its length, nobody waits for ever, every
// element ends where it belongs with every rank's contribution exactly once, and nothing that is still to be sent is
// overwritten.
func TestSchedules(t *testing.T) {
	for _, pair := range pairs {
		t.Run(fmt.Sprintf("%v/%v", pair.op, pair.a), func(t *testing.T) {
			t.Parallel()
			for n := 1; n <= 64; n++ {
				if testing.Short() && n > 17 && n%7 != 0 {
					continue
				}
				for _, c := range simCases(pair.op, pair.a, n) {
					c.check(t, 1, true)
					if n <= 17 {
						c.check(t, 2, false)
					}
				}
			}
		})
	}
}

func simCases(op Op, a Algorithm, n int) []simCase {
	roots := []int{0}
	parts := [][]int{evenParts(n, 0), evenParts(n, 1), unevenParts(n)}
	if op.rooted() && n > 1 {
		roots = []int{0, n - 1, n / 2}
	}
	if n > 17 { // large worlds take long to simulate
		roots, parts = roots[len(roots)-1:], parts[2:]
	}
	// Recursive doubling and one-shot run in place on a copy of Src.
	inPlace := op == OpAllReduce && (a == Ring || a == Direct) || op == OpReduce
	var s []simCase
	for _, root := range roots {
		for _, counts := range parts {
			s = append(s, simCase{op: op, a: a, size: n, root: root, counts: counts})
			if inPlace {
				s = append(s, simCase{op: op, a: a, size: n, root: root, counts: counts, inPlace: true})
			}
		}
	}
	return s
}
