package ring

import (
	"context"
	"errors"
	"fmt"
	"math/bits"

	"github.com/goccl/goccl/dtype"
	"github.com/goccl/goccl/transport"
)

// Options are how an Executor chooses. The zero value is fine. They must be the same on all ranks.
type Options struct {
	Algorithm Algorithm // an override; see Choose
	Table     *Table    // nil: DefaultTable()
}

// maxScratch bounds the partial results that a call keeps: a larger one runs piece after piece.
const maxScratch = 32 << 20

// An Executor runs collectives over a transport, one at a time. It keeps its memory from one call to the next, so that a
// call like an earlier one allocates nothing.
type Executor struct {
	t       transport.Transport
	ex      transport.Exchanger
	group   uint64
	options Options
	scratch int // bytes of partial results; a field so that tests reach the second piece

	plan   plan
	layout layout
	piece  Call // the piece that is under way, where it is a call of its own
}

// NewExecutor returns an executor for one group of a transport. If t is no transport.Exchanger, every step runs over Send
// and Recv.
func NewExecutor(t transport.Transport, group uint64, o Options) *Executor {
	x := &Executor{t: t, group: group, options: o, scratch: maxScratch}
	x.layout.piece, x.layout.stage = defaultPiece, defaultStage
	x.plan.rank, x.plan.size = t.Rank(), t.Size()
	x.ex, _ = t.(transport.Exchanger)
	if x.ex == nil {
		x.ex = &plain{t: t}
	}
	return x
}

// Run runs this rank's side of a collective. seq is its number in the group: all ranks run the same calls with the same
// numbers in the same order. One at a time; the buffers are the executor's until Run returns.
//
// Errors: what Call.Check says, before any byte is sent. Else *MismatchError if another rank runs a different call,
// *transport.PeerError with Op and Seq filled in, net.ErrClosed, or context.Cause(ctx), any of them wrapped. After these
// the connections may be cut inside a frame, so no further call can succeed.
func (x *Executor) Run(ctx context.Context, seq uint64, c *Call) error {
	p := &x.plan
	if err := c.Check(p.rank, p.size); err != nil {
		return err
	}
	a, _ := choose(c, p.size, x.options.Algorithm, x.options.Table)
	tag := Tag(c, x.group, seq, a)
	defer x.forget()
	n := x.length(c)
	step := x.pieceLength(c, a, n)
	for lo := 0; ; lo += step {
		err := x.runPiece(ctx, tag, c, a, chunk{lo, lo + min(step, n-lo)})
		if err != nil {
			return x.explain(c, seq, err)
		}
		if n-lo <= step {
			return nil
		}
	}
}

// Tag returns the tag under which Run sends the frames of call number seq.
func (x *Executor) Tag(c *Call, seq uint64) transport.Tag {
	a, _ := choose(c, x.plan.size, x.options.Algorithm, x.options.Table)
	return Tag(c, x.group, seq, a)
}

// forget drops all references to the caller's memory.
func (x *Executor) forget() {
	x.layout.forget()
	x.piece = Call{}
}

// length is what pieces are counted in: elements of the whole, for a reduce-scatter of the largest part.
func (x *Executor) length(c *Call) int {
	if c.Op != OpReduceScatter {
		return c.total()
	}
	if c.RecvCounts == nil {
		return c.Dst.Count()
	}
	n := 0
	for _, v := range c.RecvCounts {
		n = max(n, v)
	}
	return n
}

// pieceLength is how much of n fits into the scratch; it depends on nothing that ranks do not agree on.
func (x *Executor) pieceLength(c *Call, a Algorithm, n int) int {
	size, steps := x.plan.size, bits.Len(uint(x.plan.size))
	t := c.Type()
	fit := n
	switch {
	case size == 1 || !c.Op.reduces():
	case a == Doubling && c.Op == OpAllReduce:
		fit = x.scratch / ((steps + 1) * dtype.Accumulator(c.Reduce, t).Size())
	case a == Doubling && c.Op == OpReduce:
		fit = x.scratch / dtype.Accumulator(c.Reduce, t).Size()
	case a == OneShot && c.Op == OpAllReduce, a == Chain:
		fit = x.scratch / t.Size()
	case a == Direct && c.Op == OpReduce:
		fit = x.scratch / t.Size() * size
	case a == Ring && c.Op == OpReduceScatter && size > 2:
		fit = x.scratch / (t.Size() * (size - 2))
	}
	return max(1, min(n, fit))
}

func (x *Executor) runPiece(ctx context.Context, tag transport.Tag, c *Call, a Algorithm, piece chunk) error {
	p := &x.plan
	p.reset()
	copies := c.Op == OpAllReduce && (a == OneShot || a == Doubling) && p.size > 1 && sameMemory(c.Dst, c.Src)
	if copies { // as a call of its own, so that only the piece is copied
		x.piece = *c
		x.piece.Dst, x.piece.Src = c.Dst.Slice(piece.lo, piece.hi), c.Src.Slice(piece.lo, piece.hi)
		c, piece = &x.piece, chunk{0, piece.count()}
	}
	x.ranges(c, piece)
	if p.size > 1 {
		schedule(p, c.Op, a)
	} else {
		alone(p, c.Op)
	}
	x.layout.reset()
	src := c.Src
	if copies { // results are written while inputs may still have to leave
		src = x.layout.take(c.Type(), c.Src.Count())
		copyInPieces(src.HostBytes(), c.Src.HostBytes())
	}
	x.layout.build(p, c, src)
	x.copyLocal(false)
	if len(p.moves) > 0 {
		if err := x.ex.Exchange(ctx, tag, x.layout.steps); err != nil {
			return err
		}
	} else if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	x.copyLocal(true)
	return nil
}

func (x *Executor) copyLocal(late bool) {
	for _, c := range x.plan.copies {
		if to, from := x.layout.at(c.to), x.layout.at(c.from); c.late == late && !sameMemory(to, from) {
			copyInPieces(to.HostBytes(), from.HostBytes())
		}
	}
}

// copyAtOnce is how many bytes are copied at once. The runtime cannot interrupt a copy, and a garbage collection that waits for
// one stops the whole process, its heartbeats included: copying 3 GiB into fresh memory took longer than the others wait.
const copyAtOnce = 1 << 20

// copyInPieces copies between memories that do not overlap.
func copyInPieces(to, from []byte) {
	for len(from) > 0 {
		n := copyPiece(to, from[:min(len(from), copyAtOnce)])
		to, from = to[n:], from[n:]
	}
}

// copyPiece is a function of its own because the runtime stops a goroutine surely only where it enters a function.
//
//go:noinline
func copyPiece(to, from []byte) int { return copy(to, from) }

// explain puts an error of the transport into the words of the call.
func (x *Executor) explain(c *Call, seq uint64, err error) error {
	var tagErr *transport.TagError
	var peerErr *transport.PeerError
	switch {
	case errors.As(err, &tagErr):
		return fmt.Errorf("ring: %w", mismatch(tagErr))
	case errors.As(err, &peerErr):
		e := *peerErr // it may be the transport's own
		e.Op, e.Seq = c.Op.String(), seq
		return fmt.Errorf("ring: %w", &e)
	}
	return fmt.Errorf("ring: %v #%d: %w", c.Op, seq, err)
}
