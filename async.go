package goccl

import (
	"context"

	"github.com/goccl/goccl/dtype"
	"github.com/goccl/goccl/ring"
)

// Work is an asynchronous call. Its buffers belong to the call until Done.
type Work struct {
	done chan struct{} // closed when err is final
	err  error
}

// Wait returns the call's error when it is done. The end of ctx ends only the wait: the operation goes on under its own
// context, whose end breaks the group.
func (w *Work) Wait(ctx context.Context) error {
	select {
	case <-w.done:
		return w.err
	default:
	}
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Done returns a channel that is closed when the call is done.
func (w *Work) Done() <-chan struct{} { return w.done }

// Err returns the call's error once it is done, nil before.
func (w *Work) Err() error {
	select {
	case <-w.done:
		return w.err
	default:
		return nil
	}
}

// submit gives a call its place in the order and returns at once.
func (g *ProcessGroup) submit(ctx context.Context, c ring.Call) *Work {
	w := &Work{done: make(chan struct{})}
	if w.err = c.Check(g.rank, g.size); w.err != nil {
		close(w.done)
		return w
	}
	stop := context.AfterFunc(ctx, func() { g.endedInLine(ctx, c.Op) }) // the operation's context counts before its turn too
	g.order.submit(func() {
		stop()
		_, w.err = g.runInTurn(ctx, c)
		close(w.done)
	})
	return w
}

// AllReduceAsync is AllReduce that returns at once.
func (g *ProcessGroup) AllReduceAsync(ctx context.Context, buf dtype.Buffer, op ReduceOp) *Work {
	return g.submit(ctx, ring.Call{Op: ring.OpAllReduce, Dst: buf, Src: buf, Reduce: op})
}

// ReduceScatterAsync is ReduceScatter that returns at once.
func (g *ProcessGroup) ReduceScatterAsync(ctx context.Context, dst, src dtype.Buffer, op ReduceOp) *Work {
	return g.submit(ctx, ring.Call{Op: ring.OpReduceScatter, Dst: dst, Src: src, Reduce: op})
}

// AllGatherAsync is AllGather that returns at once.
func (g *ProcessGroup) AllGatherAsync(ctx context.Context, dst, src dtype.Buffer) *Work {
	return g.submit(ctx, ring.Call{Op: ring.OpAllGather, Dst: dst, Src: src})
}

// BroadcastAsync is Broadcast that returns at once.
func (g *ProcessGroup) BroadcastAsync(ctx context.Context, buf dtype.Buffer, root int) *Work {
	return g.submit(ctx, ring.Call{Op: ring.OpBroadcast, Dst: buf, Root: root})
}

// AllReduceAsync is AllReduce that returns at once.
func AllReduceAsync[T dtype.Element](ctx context.Context, g *ProcessGroup, buf []T, op ReduceOp) *Work {
	return g.AllReduceAsync(ctx, dtype.Of(buf), op)
}

// ReduceScatterAsync is ReduceScatter that returns at once.
func ReduceScatterAsync[T dtype.Element](ctx context.Context, g *ProcessGroup, dst, src []T, op ReduceOp) *Work {
	return g.ReduceScatterAsync(ctx, dtype.Of(dst), dtype.Of(src), op)
}

// AllGatherAsync is AllGather that returns at once.
func AllGatherAsync[T dtype.Element](ctx context.Context, g *ProcessGroup, dst, src []T) *Work {
	return g.AllGatherAsync(ctx, dtype.Of(dst), dtype.Of(src))
}

// BroadcastAsync is Broadcast that returns at once.
func BroadcastAsync[T dtype.Element](ctx context.Context, g *ProcessGroup, buf []T, root int) *Work {
	return g.BroadcastAsync(ctx, dtype.Of(buf), root)
}
