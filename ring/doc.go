// Package ring runs collectives over any transport.Transport.
//
// A [Call] is one rank's side of a collective. [Choose] picks an algorithm, from nothing but what all ranks know alike; a
// schedule lays out the frames that this rank sends and receives, as data; an [Executor] gives them memory and has the
// transport run them, with all of them in progress at once (transport.Exchanger) or, if it has only Send and Recv, with a
// goroutine per peer and direction. Errors of the transport come back in the words of the call.
//
// # Words
//
// size ranks; count elements of S bytes together. A chunk is a contiguous range of elements, usually one rank's share of a
// buffer: chunk j has count/size elements, and one more for the first count mod size ranks. A step is one round of frames
// that wait for those of the round before. prev and next are the neighbours rank−1 and rank+1, round the world. A gate is a
// receive that a send waits for, byte by byte: what has become final may leave. The owner of a chunk is the rank that
// completes its reduction.
//
// # Algorithms
//
// Ring: every rank sends only to next and receives only from prev. A reduce-scatter passes partial results on, each rank
// adding its own, so that after size−1 steps each is complete at its owner; an all-gather then passes the results round.
// All links are busy all the time and no rank sends more than it must, which makes it the best for large counts [2]. The
// price is size−1 roundings, one per hop, and latency in proportion to size.
//
// Direct: chunk j goes straight from every rank to its owner j, who folds all contributions in rank order and rounds once;
// then straight to everyone. As few bytes as the ring in two steps, and exact; but many peers send to one at the same time.
//
// One-shot: everything goes to everyone, who folds it alone. One step.
//
// Doubling is the family whose steps are logarithmic in size: recursive doubling for all-reduce and halving for
// reduce-scatter [1], Bruck's all-gather [3], binomial trees for broadcast and reduce, dissemination for the barrier [4].
// Partial results travel as accumulators (float64 for floats, int64 for means of integers), so only the end rounds. Where
// size is no power of two, extra ranks hand their input to a neighbour first and get the result back.
//
// Chain: from rank to rank, passed on as it arrives. For broadcast it moves each byte once over each link; for reduce it is
// a ring cut open at the root.
//
// # Cost
//
// The most that one rank sends, in bytes without frame headers. P is the accumulators' size: 2 S for float32 sums, 4 S
// for 16-bit ones, S for float64 and most integers. ⌈S/n⌉ is the largest chunk; log is rounded down, and log⁺ up.
//
//	operation       algorithm  steps       bytes
//	all-reduce      ring       2 (n−1)     S + (n−2) ⌈S/n⌉, which is 2 (n−1)/n S if n divides count
//	                direct     2           the same
//	                one-shot   1           (n−1) S
//	                doubling   log n       S + (log n − 1) P; n no power of two: 2 + log n steps, S + (log n) P
//	reduce-scatter  ring       n−1         (n−1)/n S
//	                direct     1           the same
//	                doubling   log n       S/2 + (1/2 − 1/n) P; n no power of two: 2 + log n steps, ⌈S/n⌉ + P
//	all-gather      ring       n−1         (n−1)/n S, S being the whole result; here and above V forms: S less one part
//	                direct     1           the same
//	                doubling   log⁺ n      the same
//	broadcast       chain      n−1         S
//	                direct     1           (n−1) S
//	                doubling   log⁺ n      (log⁺ n) S
//	reduce          chain      n−1         S
//	                direct     2           S
//	                one-shot   1           S
//	                doubling   log⁺ n      P; a leaf of the tree S
//	gather, scatter direct     1           one part; the scatter's root all but its own
//	all-to-all      direct     1           all parts but its own
//	barrier         doubling   log⁺ n      log⁺ n bytes
//
// Scratch does not grow with count: folds stage about 1 MiB, partial results take at most 32 MiB (in place as much again for
// a copy of the input), larger calls run piece after piece. Only a doubling reduce-scatter keeps P, at most 16 MiB.
//
// # Numbers
//
// Every algorithm gives the same bits on all ranks, and the same bits again for the same call on as many ranks with the
// same table: the order of operations never depends on timing.
//
// Direct and one-shot give the rank-order fold in float64 (integer means: int64), rounded once: the rules of package dtype.
//
// Doubling rounds to the type once too, but adds in another order. For Sum and Mean of n inputs the float64 that is rounded
// is within n·2⁻⁵³ Σ|x| of the exact sum (Mean: both divided by n), for Prod within n·2⁻⁵³ |Πx|.
//
// Ring and chain round after each operand: a sum is within ((1+u)ⁿ⁻¹ − 1) Σ|x| of the exact one, u being 2⁻²⁴ for float32
// and 2⁻⁵³ for float64, a product within ((1+u)ⁿ⁻¹ − 1) |Πx|. A Mean is that sum, divided once by n: a partial sum beyond the
// range of the type is infinite, where direct would give a finite mean. F16 and BF16, and means of I8, U8 and I32, never
// take them. Integers, Min and Max are exact under every algorithm.
//
// # Sources
//
//  1. Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH, 2005.
//  2. Patarasuk, Yuan: Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations, 2009.
//  3. Bruck, Ho, Kipnis, Upfal, Weathersby: Efficient Algorithms for All-to-All Communications in Multiport
//     Message-Passing Systems, 1997.
//  4. Hensgen, Finkel, Manber: Two Algorithms for Barrier Synchronization, 1988.
package ring
