package goccl

import (
	"context"

	"github.com/goccl/goccl/dtype"
	"github.com/goccl/goccl/ring"
)

// The untyped twins of the functions of the same names, for raw typed bytes.

// AllReduce is the untyped twin of the function AllReduce.
func (g *ProcessGroup) AllReduce(ctx context.Context, buf dtype.Buffer, op ReduceOp) error {
	return g.run(ctx, ring.Call{Op: ring.OpAllReduce, Dst: buf, Src: buf, Reduce: op})
}

// AllReduceTo is the untyped twin of the function AllReduceTo.
func (g *ProcessGroup) AllReduceTo(ctx context.Context, dst, src dtype.Buffer, op ReduceOp) error {
	return g.run(ctx, ring.Call{Op: ring.OpAllReduce, Dst: dst, Src: src, Reduce: op})
}

// ReduceScatter is the untyped twin of the function ReduceScatter.
func (g *ProcessGroup) ReduceScatter(ctx context.Context, dst, src dtype.Buffer, op ReduceOp) error {
	return g.run(ctx, ring.Call{Op: ring.OpReduceScatter, Dst: dst, Src: src, Reduce: op})
}

// ReduceScatterV is the untyped twin of the function ReduceScatterV.
func (g *ProcessGroup) ReduceScatterV(ctx context.Context, dst, src dtype.Buffer, counts []int, op ReduceOp) error {
	return g.run(ctx, ring.Call{Op: ring.OpReduceScatter, Dst: dst, Src: src, RecvCounts: counts, Reduce: op})
}

// AllGather is the untyped twin of the function AllGather.
func (g *ProcessGroup) AllGather(ctx context.Context, dst, src dtype.Buffer) error {
	return g.run(ctx, ring.Call{Op: ring.OpAllGather, Dst: dst, Src: src})
}

// AllGatherV is the untyped twin of the function AllGatherV.
func (g *ProcessGroup) AllGatherV(ctx context.Context, dst, src dtype.Buffer, counts []int) error {
	return g.run(ctx, ring.Call{Op: ring.OpAllGather, Dst: dst, Src: src, RecvCounts: counts})
}

// Broadcast is the untyped twin of the function Broadcast.
func (g *ProcessGroup) Broadcast(ctx context.Context, buf dtype.Buffer, root int) error {
	return g.run(ctx, ring.Call{Op: ring.OpBroadcast, Dst: buf, Root: root})
}

// Reduce is the untyped twin of the function Reduce.
func (g *ProcessGroup) Reduce(ctx context.Context, dst, src dtype.Buffer, op ReduceOp, root int) error {
	return g.run(ctx, ring.Call{Op: ring.OpReduce, Dst: dst, Src: src, Reduce: op, Root: root})
}

// Gather is the untyped twin of the function Gather.
func (g *ProcessGroup) Gather(ctx context.Context, dst, src dtype.Buffer, root int) error {
	return g.run(ctx, ring.Call{Op: ring.OpGather, Dst: dst, Src: src, Root: root})
}

// Scatter is the untyped twin of the function Scatter.
func (g *ProcessGroup) Scatter(ctx context.Context, dst, src dtype.Buffer, root int) error {
	return g.run(ctx, ring.Call{Op: ring.OpScatter, Dst: dst, Src: src, Root: root})
}

// AllToAll is the untyped twin of the function AllToAll.
func (g *ProcessGroup) AllToAll(ctx context.Context, dst, src dtype.Buffer) error {
	return g.run(ctx, ring.Call{Op: ring.OpAllToAll, Dst: dst, Src: src})
}

// AllToAllV is the untyped twin of the function AllToAllV.
func (g *ProcessGroup) AllToAllV(ctx context.Context, dst dtype.Buffer, recvCounts []int, src dtype.Buffer, sendCounts []int) error {
	return g.run(ctx, ring.Call{Op: ring.OpAllToAll, Dst: dst, Src: src, SendCounts: sendCounts, RecvCounts: recvCounts})
}

// Barrier returns when every rank has called it.
func (g *ProcessGroup) Barrier(ctx context.Context) error {
	return g.run(ctx, ring.Call{Op: ring.OpBarrier})
}
