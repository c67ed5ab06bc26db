package ring

import (
	"context"

	"github.com/goccl/goccl/dtype"
	"github.com/goccl/goccl/transport"
)

// The functions below run one collective over a transport that nothing else uses for collectives, in group 0. All ranks
// make the same calls in the same order. The calls bear no numbers: frames are matched by their order alone, so two equal
// calls that are confused stay unnoticed, and each call allocates. Programs that call often number their calls and use one
// Executor. What the buffers must be like: see Call. Errors: see Executor.Run.

func run(ctx context.Context, t transport.Transport, c Call) error {
	return NewExecutor(t, 0, Options{}).Run(ctx, 0, &c)
}

// AllReduce leaves on all ranks, in place, the reduction of all ranks' buffers.
func AllReduce(ctx context.Context, t transport.Transport, buf dtype.Buffer, op dtype.ReduceOp) error {
	return run(ctx, t, Call{Op: OpAllReduce, Dst: buf, Src: buf, Reduce: op})
}

// AllReduceTo is AllReduce with a result apart from the input.
func AllReduceTo(ctx context.Context, t transport.Transport, dst, src dtype.Buffer, op dtype.ReduceOp) error {
	return run(ctx, t, Call{Op: OpAllReduce, Dst: dst, Src: src, Reduce: op})
}

// ReduceScatter leaves part r of the reduction of all ranks' src in rank r's dst. src holds size × dst elements.
func ReduceScatter(ctx context.Context, t transport.Transport, dst, src dtype.Buffer, op dtype.ReduceOp) error {
	return run(ctx, t, Call{Op: OpReduceScatter, Dst: dst, Src: src, Reduce: op})
}

// ReduceScatterV is ReduceScatter with parts of the given counts, the same on all ranks.
func ReduceScatterV(ctx context.Context, t transport.Transport, dst, src dtype.Buffer, counts []int, op dtype.ReduceOp) error {
	return run(ctx, t, Call{Op: OpReduceScatter, Dst: dst, Src: src, RecvCounts: counts, Reduce: op})
}

// AllGather leaves all ranks' src, in rank order, in every dst. dst holds size × src elements.
func AllGather(ctx context.Context, t transport.Transport, dst, src dtype.Buffer) error {
	return run(ctx, t, Call{Op: OpAllGather, Dst: dst, Src: src})
}

// AllGatherV is AllGather of parts of the given counts, the same on all ranks.
func AllGatherV(ctx context.Context, t transport.Transport, dst, src dtype.Buffer, counts []int) error {
	return run(ctx, t, Call{Op: OpAllGather, Dst: dst, Src: src, RecvCounts: counts})
}

// Broadcast overwrites buf on all ranks with the root's.
func Broadcast(ctx context.Context, t transport.Transport, buf dtype.Buffer, root int) error {
	return run(ctx, t, Call{Op: OpBroadcast, Dst: buf, Root: root})
}

// Reduce leaves the reduction of all ranks' src in the root's dst. Other ranks' dst is neither read nor written.
func Reduce(ctx context.Context, t transport.Transport, dst, src dtype.Buffer, op dtype.ReduceOp, root int) error {
	return run(ctx, t, Call{Op: OpReduce, Dst: dst, Src: src, Reduce: op, Root: root})
}

// Gather leaves all ranks' src, in rank order, in the root's dst of size × src elements.
func Gather(ctx context.Context, t transport.Transport, dst, src dtype.Buffer, root int) error {
	return run(ctx, t, Call{Op: OpGather, Dst: dst, Src: src, Root: root})
}

// GatherV is Gather of parts of the given counts, the same on all ranks.
func GatherV(ctx context.Context, t transport.Transport, dst, src dtype.Buffer, counts []int, root int) error {
	return run(ctx, t, Call{Op: OpGather, Dst: dst, Src: src, RecvCounts: counts, Root: root})
}

// Scatter leaves part r of the root's src, which holds size × dst elements, in rank r's dst.
func Scatter(ctx context.Context, t transport.Transport, dst, src dtype.Buffer, root int) error {
	return run(ctx, t, Call{Op: OpScatter, Dst: dst, Src: src, Root: root})
}

// ScatterV is Scatter of parts of the given counts, the same on all ranks.
func ScatterV(ctx context.Context, t transport.Transport, dst, src dtype.Buffer, counts []int, root int) error {
	return run(ctx, t, Call{Op: OpScatter, Dst: dst, Src: src, SendCounts: counts, Root: root})
}

// AllToAll sends part j of src to rank j, whose part i of dst is this rank i's. All parts are equal.
func AllToAll(ctx context.Context, t transport.Transport, dst, src dtype.Buffer) error {
	return run(ctx, t, Call{Op: OpAllToAll, Dst: dst, Src: src})
}

// AllToAllV is AllToAll with parts of any counts: sendCounts[j] here must equal recvCounts[i] of rank j, i being this rank.
func AllToAllV(ctx context.Context, t transport.Transport, dst dtype.Buffer, recvCounts []int, src dtype.Buffer, sendCounts []int) error {
	return run(ctx, t, Call{Op: OpAllToAll, Dst: dst, RecvCounts: recvCounts, Src: src, SendCounts: sendCounts})
}

// Barrier returns when all ranks have called it.
func Barrier(ctx context.Context, t transport.Transport) error {
	return run(ctx, t, Call{Op: OpBarrier})
}
