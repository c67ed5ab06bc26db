// Package goccl is a collective communication library: a [ProcessGroup] of n ranks, on one host or several, averages
// gradients, gathers shards, broadcasts weights and exchanges messages.
//
// # Usage
//
// [Join] meets the other ranks of a job over TCP and returns the group; rank, size and coordinator come from the
// environment that goccl launch, torchrun, mpirun or srun set, or from [JoinConfig]. [New] wraps any transport, for instance
// package mem's goroutines in tests. The operations are functions such as [AllReduce], generic over the element type; each
// has an untyped twin, a method that takes a [dtype.Buffer]. NCCL and MPI call a ProcessGroup a communicator.
//
// # Order of calls
//
// A group runs one collective at a time. All ranks call the same collectives in the same order; a rank that differs in
// operation, type, count, root or reduce operation makes every rank fail with a [*MismatchError]. Asynchronous calls run in
// the order in which they were submitted, and a synchronous call waits for those before it. Goroutines with unrelated
// collectives use a sub-group each ([ProcessGroup.Split], [ProcessGroup.Subgroup]). [Send] and [Recv] are outside this order.
//
// # Numbers
//
// Every rank ends with the same bits, whatever the timing. Float sums are accumulated in float64 in rank order and rounded
// once. Small calls among three and more ranks combine float64 partial sums in a tree instead, and large f32, f64 and integer
// calls take a ring, which rounds at every hop. Package dtype states the rules for NaN, zeros, overflow and integer means.
//
// # Cancellation and failure
//
// Every call that can block takes a context. A collective that fails, is cancelled or passes its deadline breaks the group
// for good, on every rank: the pending call returns the first cause and later ones [ErrBroken] with it. The cause names the
// same culprit on all ranks; on the rank that was cancelled, or called Abort, it is that rank's own. A cancelled Send, Recv
// or [Work.Wait] breaks nothing.
//
// # Recovery
//
// After a failure the ranks that are left make their next group with [ProcessGroup.Shrink]; more than half of the last one are
// needed, so that two parts of a group that cannot reach each other never both go on. A process that is started again, and
// calls [Join] with the run id of the job, waits until the ranks take it in with [ProcessGroup.Admit]. Each such group is the
// next epoch ([ProcessGroup.Epoch]) and has connections of its own; the one before is retired.
//
// Each group records its last 256 collectives. Config.TraceDir has them written to a file when the group breaks,
// [ProcessGroup.WriteTrace] and [ProcessGroup.TraceOnSignal] at other times; "goccl trace-merge" compares the ranks' files.
//
// # Limitations
//
// Every rank has connections with every other, so a group of n ranks holds 2(n−1) of them on each. Ranks must have the same
// byte order (little-endian). Buffers are host memory. A group keeps up to 64 MiB of scratch between calls, a sub-group as
// much of its own.
package goccl
