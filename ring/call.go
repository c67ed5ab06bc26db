package ring

import (
	"errors"
	"fmt"
	"math"
	"reflect"

	"github.com/goccl/goccl/dtype"
)

// ErrArgument is wrapped by the error of a call that could not have been right on any rank's side. It is returned before
// any byte is sent, so the call has taken no place in the order of calls.
var ErrArgument = errors.New("bad argument")

// A Call is one rank's side of a collective. The buffers belong to the executor until Run returns. Src is never written,
// unless it is the same memory as the part of Dst named below.
//
//	OpAllReduce      Dst and Src of equal count, or the same memory
//	OpReduceScatter  Src of size × Dst, Dst part rank of the result; V: RecvCounts are the parts. Dst may be that part of Src
//	OpAllGather      Dst of size × Src, in rank order; V: RecvCounts are the parts. Src may be its own part of Dst
//	OpBroadcast      Dst: source on the root, result elsewhere
//	OpReduce         Dst, used on the root only, like Src, or the same memory
//	OpGather         Dst, used on the root only, of size × Src; V: RecvCounts. The root's Src may be its part of Dst
//	OpScatter        Src, used on the root only, of size × Dst; V: SendCounts. The root's Dst may be its part of Src
//	OpAllToAll       part j of Src goes to rank j, part i of Dst comes from rank i; V: SendCounts and RecvCounts
//	OpBarrier        nothing
//
// The counts of V forms have one entry per rank and must be the same on all ranks, except those of OpAllToAll, where
// SendCounts[j] here must equal RecvCounts[i] of rank j, i being this rank. Other overlaps of Dst and Src are errors.
type Call struct {
	Op                     Op
	Dst, Src               dtype.Buffer
	Reduce                 dtype.ReduceOp
	Root                   int
	SendCounts, RecvCounts []int
}

// Type returns the element type of the call, invalid for a barrier.
func (c *Call) Type() dtype.Type {
	switch c.Op {
	case OpBroadcast, OpScatter, OpAllGather:
		return c.Dst.Type()
	case OpBarrier:
		return 0
	}
	return c.Src.Type()
}

// agreedCounts are those that every rank knows; nil where parts are equal.
func (c *Call) agreedCounts() []int {
	switch c.Op {
	case OpReduceScatter, OpAllGather, OpGather:
		return c.RecvCounts
	case OpScatter:
		return c.SendCounts
	}
	return nil
}

// total is the count that all ranks can compute alike.
func (c *Call) total() int {
	if v := c.agreedCounts(); v != nil {
		return sum(v)
	}
	switch c.Op {
	case OpAllGather, OpBroadcast, OpScatter:
		return c.Dst.Count()
	case OpAllToAll:
		if c.SendCounts != nil {
			return 0
		}
	}
	return c.Src.Count()
}

// Check returns an error that wraps ErrArgument and names the argument, or errors.ErrUnsupported for device memory and for
// a reduce operation that the type does not have. nil: Run will not complain about the call.
func (c *Call) Check(rank, size int) error {
	if err := c.check(rank, size); err != nil {
		return fmt.Errorf("ring: %v: %w", c.Op, err)
	}
	return nil
}

func (c *Call) check(rank, size int) error {
	switch {
	case !c.Op.valid():
		return bad("no such operation")
	case c.Op == OpBarrier:
		return nil
	case c.Op.rooted() && (c.Root < 0 || c.Root >= size):
		return bad("root %d of %d ranks", c.Root, size)
	}
	if err := c.checkTypes(rank); err != nil {
		return err
	}
	if err := c.checkCounts(rank, size); err != nil {
		return err
	}
	return c.checkOverlap(rank, size)
}

// uses says which of the buffers mean something on this rank.
func (c *Call) uses(rank int) (dst, src bool) {
	switch c.Op {
	case OpBroadcast:
		return true, false
	case OpReduce, OpGather:
		return rank == c.Root, true
	case OpScatter:
		return true, rank == c.Root
	}
	return true, true
}

func (c *Call) checkTypes(rank int) error {
	t := c.Type()
	dst, src := c.uses(rank)
	switch {
	case dst && c.Dst.OnDevice() || src && c.Src.OnDevice():
		return fmt.Errorf("device memory over this transport: %w", errors.ErrUnsupported)
	case !t.Valid():
		return bad("buffer of %v", t)
	case dst && c.Dst.Type() != t:
		return bad("dst is %v, src %v", c.Dst.Type(), t)
	case src && c.Src.Type() != t:
		return bad("src is %v, dst %v", c.Src.Type(), t)
	}
	if !c.Op.reduces() {
		return nil
	}
	if !c.Reduce.Valid() {
		return bad("%v", c.Reduce)
	}
	return dtype.Supports(c.Reduce, t)
}

// checkCounts compares the buffers with each other or with the counts of a V form.
func (c *Call) checkCounts(rank, size int) error {
	dst, src := c.Dst.Count(), c.Src.Count()
	useDst, useSrc := c.uses(rank)
	if c.Op == OpAllToAll && (c.SendCounts == nil) != (c.RecvCounts == nil) {
		return bad("send counts and recv counts must be given together")
	}
	for _, v := range [...]struct {
		name   string
		counts []int
	}{{"send", c.SendCounts}, {"recv", c.RecvCounts}} {
		if err := checkVector(v.name, v.counts, size); err != nil {
			return err
		}
	}
	if n := max(dst, src); uint64(n) > maxCount {
		return bad("count %d is more than %d", n, uint64(maxCount))
	}
	switch {
	case c.Op == OpAllReduce || c.Op == OpReduce:
		if useDst && dst != src {
			return bad("dst has %d elements, src %d", dst, src)
		}
	case c.Op == OpAllToAll:
		return c.checkAllToAll(size)
	case c.Op == OpAllGather || c.Op == OpGather:
		return checkParts(useDst, useSrc, "dst", "src", dst, src, rank, size, c.RecvCounts)
	case c.Op == OpReduceScatter:
		return checkParts(useSrc, useDst, "src", "dst", src, dst, rank, size, c.RecvCounts)
	case c.Op == OpScatter:
		return checkParts(useSrc, useDst, "src", "dst", src, dst, rank, size, c.SendCounts)
	}
	return nil
}

// checkVector also bounds the sum, so that sum cannot overflow later.
func checkVector(name string, counts []int, size int) error {
	if counts == nil {
		return nil
	}
	if len(counts) != size {
		return bad("%d %s counts for %d ranks", len(counts), name, size)
	}
	total := uint64(0)
	for r, n := range counts {
		if n < 0 {
			return bad("%s count of rank %d is %d", name, r, n)
		}
		if total += uint64(n); total > min(maxCount, math.MaxInt) {
			return bad("%s counts add up to more than %d", name, uint64(min(maxCount, math.MaxInt)))
		}
	}
	return nil
}

// checkParts compares a buffer that holds all parts with the one that holds this rank's.
func checkParts(useAll, useOne bool, allName, oneName string, all, one, rank, size int, counts []int) error {
	if counts != nil {
		if useAll && all != sum(counts) {
			return bad("%s has %d elements, counts add up to %d", allName, all, sum(counts))
		}
		if useOne && one != counts[rank] {
			return bad("%s has %d elements, count of rank %d is %d", oneName, one, rank, counts[rank])
		}
		return nil
	}
	if uint64(one) > min(maxCount, math.MaxInt)/uint64(size) {
		return bad("%s of %d elements on %d ranks is too large", oneName, one, size)
	}
	if useAll && all != one*size {
		return bad("%s has %d elements, want %d ranks × %d of %s", allName, all, size, one, oneName)
	}
	return nil
}

func (c *Call) checkAllToAll(size int) error {
	dst, src := c.Dst.Count(), c.Src.Count()
	switch {
	case c.SendCounts != nil && src != sum(c.SendCounts):
		return bad("src has %d elements, send counts add up to %d", src, sum(c.SendCounts))
	case c.SendCounts != nil && dst != sum(c.RecvCounts):
		return bad("dst has %d elements, recv counts add up to %d", dst, sum(c.RecvCounts))
	case c.SendCounts == nil && dst != src:
		return bad("dst has %d elements, src %d", dst, src)
	case c.SendCounts == nil && src%size != 0:
		return bad("src has %d elements, not a multiple of %d ranks", src, size)
	}
	return nil
}

// checkOverlap lets Dst and Src share memory only where Call says so.
func (c *Call) checkOverlap(rank, size int) error {
	useDst, useSrc := c.uses(rank)
	if !useDst || !useSrc || !overlap(c.Dst, c.Src) {
		return nil
	}
	dst, src := c.Dst, c.Src
	switch c.Op {
	case OpAllGather, OpGather:
		dst = own(dst, src.Count(), rank, c.RecvCounts)
	case OpReduceScatter:
		src = own(src, dst.Count(), rank, c.RecvCounts)
	case OpScatter:
		src = own(src, dst.Count(), rank, c.SendCounts)
	}
	if c.Op != OpAllToAll && sameMemory(dst, src) {
		return nil
	}
	return bad("dst and src overlap")
}

// own is the part of rank in a buffer that holds all parts.
func own(all dtype.Buffer, count, rank int, counts []int) dtype.Buffer {
	lo := count * rank
	if counts != nil {
		lo = sum(counts[:rank])
	}
	return all.Slice(lo, lo+count)
}

// overlap reports whether two host buffers share any byte.
func overlap(a, b dtype.Buffer) bool {
	na, nb := uintptr(a.Nbytes()), uintptr(b.Nbytes())
	if na == 0 || nb == 0 {
		return false
	}
	pa, pb := address(a.HostBytes()), address(b.HostBytes())
	return pa < pb+nb && pb < pa+na
}

// sameMemory reports whether two host buffers are one.
func sameMemory(a, b dtype.Buffer) bool {
	return a.Nbytes() == b.Nbytes() && (a.Nbytes() == 0 || address(a.HostBytes()) == address(b.HostBytes()))
}

// address is for comparisons only, while p is alive.
func address(p []byte) uintptr { return reflect.ValueOf(&p[0]).Pointer() }

func sum(counts []int) int {
	n := 0
	for _, c := range counts {
		n += c
	}
	return n
}

func bad(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrArgument, fmt.Sprintf(format, args...))
}
