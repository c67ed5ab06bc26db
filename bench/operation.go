package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/goccl/goccl"
	"github.com/goccl/goccl/dtype"
)

// An operation is what bench knows of one of goccl's.
type operation struct {
	name    string // as nccl-tests spell it
	plan    string // as ProcessGroup.Plan spells it; "": nothing to choose
	reduces bool
	rooted  bool
	parts   bool // size is the whole of size parts of count elements
	noData  bool
	bus     func(n float64) float64
	arrange func(c *cell) // sets inputs and outputs, and counts where parts are uneven
	run     func(ctx context.Context, c *cell) error
}

// A run of elements: those of a pattern from index start on.
type run struct {
	from  int // rank whose input it is; reduced: the reduction of all inputs
	start int
	count int
}

const reduced = -1

func one(float64) float64      { return 1 }
func others(n float64) float64 { return (n - 1) / n }
func twice(n float64) float64  { return 2 * others(n) }

// operations is the table of all. In each, c.in and c.out are this rank's input and expected output.
var operations = []*operation{
	{name: "all_reduce", plan: "all-reduce", reduces: true, bus: twice,
		arrange: func(c *cell) {
			c.inPlace = true
			c.in, c.out = []run{{c.rank, 0, c.count}}, []run{{reduced, 0, c.count}}
		},
		run: func(ctx context.Context, c *cell) error { return c.group.AllReduce(ctx, c.dst, c.reduction) }},
	{name: "all_gather", plan: "all-gather", parts: true, bus: others,
		arrange: func(c *cell) { c.in, c.out = []run{{c.rank, c.rank * c.count, c.count}}, c.gathered(c.equal()) },
		run:     func(ctx context.Context, c *cell) error { return c.group.AllGather(ctx, c.dst, c.src) }},
	{name: "all_gather_v", plan: "all-gather", bus: others,
		arrange: func(c *cell) {
			c.recvCounts = c.uneven(0)
			c.in, c.out = []run{{c.rank, sum(c.recvCounts[:c.rank]), c.recvCounts[c.rank]}}, c.gathered(c.recvCounts)
		},
		run: func(ctx context.Context, c *cell) error { return c.group.AllGatherV(ctx, c.dst, c.src, c.recvCounts) }},
	{name: "reduce_scatter", plan: "reduce-scatter", reduces: true, parts: true, bus: others,
		arrange: func(c *cell) {
			c.in, c.out = []run{{c.rank, 0, c.count * c.size}}, []run{{reduced, c.rank * c.count, c.count}}
		},
		run: func(ctx context.Context, c *cell) error { return c.group.ReduceScatter(ctx, c.dst, c.src, c.reduction) }},
	{name: "reduce_scatter_v", plan: "reduce-scatter", reduces: true, bus: others,
		arrange: func(c *cell) {
			c.recvCounts = c.uneven(0)
			c.in = []run{{c.rank, 0, c.count}}
			c.out = []run{{reduced, sum(c.recvCounts[:c.rank]), c.recvCounts[c.rank]}}
		},
		run: func(ctx context.Context, c *cell) error {
			return c.group.ReduceScatterV(ctx, c.dst, c.src, c.recvCounts, c.reduction)
		}},
	{name: "broadcast", plan: "broadcast", rooted: true, bus: one,
		arrange: func(c *cell) {
			c.inPlace = true
			c.out = []run{{c.root, 0, c.count}}
			if c.rank == c.root {
				c.in = c.out
			}
		},
		run: func(ctx context.Context, c *cell) error { return c.group.Broadcast(ctx, c.dst, c.root) }},
	{name: "reduce", plan: "reduce", reduces: true, rooted: true, bus: one,
		arrange: func(c *cell) {
			c.in = []run{{c.rank, 0, c.count}}
			if c.rank == c.root {
				c.out = []run{{reduced, 0, c.count}}
			}
		},
		run: func(ctx context.Context, c *cell) error {
			return c.group.Reduce(ctx, c.dst, c.src, c.reduction, c.root)
		}},
	{name: "gather", plan: "gather", rooted: true, parts: true, bus: others,
		arrange: func(c *cell) {
			c.in = []run{{c.rank, c.rank * c.count, c.count}}
			if c.rank == c.root {
				c.out = c.gathered(c.equal())
			}
		},
		run: func(ctx context.Context, c *cell) error { return c.group.Gather(ctx, c.dst, c.src, c.root) }},
	{name: "scatter", plan: "scatter", rooted: true, parts: true, bus: others,
		arrange: func(c *cell) {
			if c.rank == c.root {
				c.in = []run{{c.root, 0, c.count * c.size}}
			}
			c.out = []run{{c.root, c.rank * c.count, c.count}}
		},
		run: func(ctx context.Context, c *cell) error { return c.group.Scatter(ctx, c.dst, c.src, c.root) }},
	{name: "all_to_all", plan: "all-to-all", parts: true, bus: others,
		arrange: func(c *cell) {
			c.in = []run{{c.rank, 0, c.count * c.size}}
			for r := range c.size {
				c.out = append(c.out, run{r, c.rank * c.count, c.count})
			}
		},
		run: func(ctx context.Context, c *cell) error { return c.group.AllToAll(ctx, c.dst, c.src) }},
	{name: "all_to_all_v", plan: "all-to-all", bus: others,
		arrange: func(c *cell) {
			c.sendCounts, c.recvCounts = c.uneven(c.rank), c.uneven(c.rank) // rank i sends part i+j to rank j
			c.in = []run{{c.rank, 0, c.count}}
			for r := range c.size {
				c.out = append(c.out, run{r, sum(c.uneven(r)[:c.rank]), c.recvCounts[r]})
			}
		},
		run: func(ctx context.Context, c *cell) error {
			return c.group.AllToAllV(ctx, c.dst, c.recvCounts, c.src, c.sendCounts)
		}},
	{name: "sendrecv", bus: one,
		arrange: func(c *cell) {
			c.in, c.out = []run{{c.rank, 0, c.count}}, []run{{(c.rank + c.size - 1) % c.size, 0, c.count}}
		},
		run: sendToNext},
	{name: "barrier", plan: "barrier", noData: true, bus: one,
		arrange: func(*cell) {},
		run:     func(ctx context.Context, c *cell) error { return c.group.Barrier(ctx) }},
}

func sendToNext(ctx context.Context, c *cell) error {
	const tag = 1
	if err := c.group.Send(ctx, (c.rank+1)%c.size, tag, c.src); err != nil {
		return err
	}
	n, err := c.group.RecvInto(ctx, (c.rank+c.size-1)%c.size, tag, c.dst)
	if err == nil && n != c.dst.Count() {
		err = fmt.Errorf("bench: received %d elements, want %d", n, c.dst.Count())
	}
	return err
}

// A cell is one operation on one rank, with one type, size and reduction.
type cell struct {
	op         *operation
	group      *goccl.ProcessGroup
	rank, size int
	typ        dtype.Type
	reduction  dtype.ReduceOp
	root       int
	count      int // elements: of a part where the operation has parts, else of the buffer

	in, out                []run
	inPlace                bool // dst is src
	src, dst               dtype.Buffer
	sendCounts, recvCounts []int
}

// newCell lays out an operation on about nbytes bytes and makes its buffers.
func newCell(g *goccl.ProcessGroup, op *operation, t dtype.Type, reduction dtype.ReduceOp, root int, nbytes int64) (*cell, error) {
	c := &cell{op: op, group: g, rank: g.Rank(), size: g.Size(), typ: t, reduction: reduction, root: root}
	width := int64(t.Size())
	if op.parts {
		width *= int64(c.size)
	}
	if !op.noData {
		c.count = int((nbytes + width - 1) / width)
	}
	op.arrange(c)
	var err error
	if c.dst, err = newBuffer(t, max(elements(c.out), elements(c.in)*bit(c.inPlace))); err != nil {
		return nil, err
	}
	if c.src = c.dst; !c.inPlace {
		c.src, err = newBuffer(t, elements(c.in))
	}
	return c, err
}

func newBuffer(t dtype.Type, count int) (dtype.Buffer, error) {
	return dtype.Bytes(t, make([]byte, count*t.Size()))
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

func elements(runs []run) (n int) {
	for _, r := range runs {
		n += r.count
	}
	return n
}

// nbytes is the size that the bandwidth is computed from.
func (c *cell) nbytes() int64 {
	n := int64(c.count) * int64(c.typ.Size())
	if c.op.parts {
		n *= int64(c.size)
	}
	return n
}

// equal is the counts of parts of equal length.
func (c *cell) equal() []int { return slices.Repeat([]int{c.count}, c.size) }

// uneven divides count into a part for each rank, in the proportion of 1, 2, 3, 1, 2, 3, …, beginning with part shift.
func (c *cell) uneven(shift int) []int {
	weight := func(r int) int { return r/3*6 + []int{0, 1, 3}[r%3] } // of all parts before r
	counts := make([]int, c.size)
	for r := range counts {
		k := (r + shift) % c.size
		counts[r] = c.count*weight(k+1)/weight(c.size) - c.count*weight(k)/weight(c.size)
	}
	return counts
}

// gathered is what a gather gives.
func (c *cell) gathered(counts []int) (runs []run) {
	start := 0
	for r, n := range counts {
		runs = append(runs, run{r, start, n})
		start += n
	}
	return runs
}

func sum(counts []int) (n int) {
	for _, v := range counts {
		n += v
	}
	return n
}

func operationNames() string {
	names := make([]string, len(operations))
	for i, op := range operations {
		names[i] = op.name
	}
	return strings.Join(names, ", ")
}

// parseOperations takes names in any of the usual spellings: all_reduce, all-reduce, AllReduce, allreduce.
func parseOperations(s string) (ops []*operation, err error) {
	if s == "all" {
		return operations, nil
	}
	plain := strings.NewReplacer("_", "", "-", "")
	for name := range strings.SplitSeq(s, ",") {
		i := slices.IndexFunc(operations, func(op *operation) bool {
			return plain.Replace(op.name) == strings.ToLower(plain.Replace(name))
		})
		if i < 0 {
			return nil, fmt.Errorf("-op %s: want one of %s, or all", name, operationNames())
		}
		ops = append(ops, operations[i])
	}
	return ops, nil
}
