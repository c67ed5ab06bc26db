package goccl

import (
	"context"

	"github.com/goccl/goccl/dtype"
)

// The collectives. Every rank of the group calls the same ones in the same order, with the same counts, types, operation
// and root; buffers belong to the call until it returns. Errors: ErrArgument, errors.ErrUnsupported before any byte is sent;
// *MismatchError, *PeerError, *StallError, *AbortError, the cause of ctx, net.ErrClosed, and ErrBroken on a group that had
// failed before. Counts may be zero.

// AllReduce reduces buf over all ranks, in place: every rank ends with the result.
func AllReduce[T dtype.Element](ctx context.Context, g *ProcessGroup, buf []T, op ReduceOp) error {
	return g.AllReduce(ctx, dtype.Of(buf), op)
}

// AllReduceTo is AllReduce from src into dst, of equal count. src is not written.
func AllReduceTo[T dtype.Element](ctx context.Context, g *ProcessGroup, dst, src []T, op ReduceOp) error {
	return g.AllReduceTo(ctx, dtype.Of(dst), dtype.Of(src), op)
}

// ReduceScatter reduces src over all ranks; rank r gets part r of the result in dst. src has size × len(dst) elements and is not
// written, unless dst is this rank's part of it.
func ReduceScatter[T dtype.Element](ctx context.Context, g *ProcessGroup, dst, src []T, op ReduceOp) error {
	return g.ReduceScatter(ctx, dtype.Of(dst), dtype.Of(src), op)
}

// ReduceScatterV is ReduceScatter with parts of counts[r] elements. counts is the same on all ranks.
func ReduceScatterV[T dtype.Element](ctx context.Context, g *ProcessGroup, dst, src []T, counts []int, op ReduceOp) error {
	return g.ReduceScatterV(ctx, dtype.Of(dst), dtype.Of(src), counts, op)
}

// AllGather puts every rank's src into every rank's dst, in rank order. dst has size × len(src) elements; src may be this
// rank's part of it.
func AllGather[T dtype.Element](ctx context.Context, g *ProcessGroup, dst, src []T) error {
	return g.AllGather(ctx, dtype.Of(dst), dtype.Of(src))
}

// AllGatherV is AllGather with counts[r] elements from rank r. counts is the same on all ranks.
func AllGatherV[T dtype.Element](ctx context.Context, g *ProcessGroup, dst, src []T, counts []int) error {
	return g.AllGatherV(ctx, dtype.Of(dst), dtype.Of(src), counts)
}

// Broadcast copies buf of rank root to all ranks. buf has the same length everywhere.
func Broadcast[T dtype.Element](ctx context.Context, g *ProcessGroup, buf []T, root int) error {
	return g.Broadcast(ctx, dtype.Of(buf), root)
}

// Reduce reduces src over all ranks into dst on rank root, where both have the same length. Other ranks' dst is not used.
// src is not written.
func Reduce[T dtype.Element](ctx context.Context, g *ProcessGroup, dst, src []T, op ReduceOp, root int) error {
	return g.Reduce(ctx, dtype.Of(dst), dtype.Of(src), op, root)
}

// Gather puts every rank's src into dst on rank root, in rank order: size × len(src) elements. Other ranks' dst is not used.
func Gather[T dtype.Element](ctx context.Context, g *ProcessGroup, dst, src []T, root int) error {
	return g.Gather(ctx, dtype.Of(dst), dtype.Of(src), root)
}

// Scatter gives rank r part r of root's src, of size × len(dst) elements. Other ranks' src is not used.
func Scatter[T dtype.Element](ctx context.Context, g *ProcessGroup, dst, src []T, root int) error {
	return g.Scatter(ctx, dtype.Of(dst), dtype.Of(src), root)
}

// AllToAll sends part j of src to rank j and puts what rank i sends into part i of dst. Both have the same length, a multiple
// of the size, and do not overlap.
func AllToAll[T dtype.Element](ctx context.Context, g *ProcessGroup, dst, src []T) error {
	return g.AllToAll(ctx, dtype.Of(dst), dtype.Of(src))
}

// AllToAllV is AllToAll with sendCounts[j] elements to rank j and recvCounts[i] from rank i. What this rank sends to j must be
// what j receives from it.
func AllToAllV[T dtype.Element](ctx context.Context, g *ProcessGroup, dst []T, recvCounts []int, src []T, sendCounts []int) error {
	return g.AllToAllV(ctx, dtype.Of(dst), recvCounts, dtype.Of(src), sendCounts)
}
