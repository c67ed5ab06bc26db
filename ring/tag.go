package ring

import (
	"fmt"

	"github.com/goccl/goccl/dtype"
	"github.com/goccl/goccl/transport"
)

const (
	countBits = 48 // of Tag.Count; the rest is the digest of a counts vector
	maxCount  = 1<<countBits - 1
)

// Tag packs what all ranks must agree on. Call holds op | type<<8 | reduce op<<16 | algorithm<<24 | root<<32; Count the
// elements of the whole operation (gather and scatter: of one rank) and, for V forms with counts that every rank knows, a
// digest of those counts in its upper 16 bits. Fields without meaning for the operation are 0. The counts of an
// all-to-all V are not agreed: the length of each frame checks them pair by pair.
func Tag(c *Call, group, seq uint64, a Algorithm) transport.Tag {
	call := uint64(c.Op) | uint64(a)<<24
	if c.Op != OpBarrier {
		call |= uint64(c.Type()) << 8
	}
	if c.Op.reduces() {
		call |= uint64(c.Reduce) << 16
	}
	if c.Op.rooted() {
		call |= uint64(uint32(c.Root)) << 32
	}
	count := uint64(c.total())
	if v := c.agreedCounts(); v != nil {
		count |= digest(v) << countBits
	}
	return transport.Tag{Class: transport.Collective, Group: group, Match: seq, Call: call, Count: count}
}

// digest is never 0, so that a V form differs from its plain form.
func digest(counts []int) uint64 {
	h := uint64(14695981039346656037) // FNV-1a, a step per count
	for _, c := range counts {
		h = (h ^ uint64(c)) * 1099511628211
		h ^= h >> 29
	}
	return (h>>48^h>>32)&0xffff | 1
}

// Facts are what a Tag says of a call. Those without meaning for the operation are zero.
type Facts struct {
	Op        Op
	Type      dtype.Type
	Reduce    dtype.ReduceOp
	Algorithm Algorithm
	Root      int
	Rooted    bool   // Root has a meaning
	Count     uint64 // elements
	Counts    uint16 // digest of the counts of a V form, 0 for other calls
}

// Unpack is the inverse of Tag.
func Unpack(tag transport.Tag) Facts {
	f := Facts{Op: Op(tag.Call), Algorithm: Algorithm(tag.Call >> 24), Count: tag.Count & maxCount, Counts: uint16(tag.Count >> countBits)}
	if f.Op != OpBarrier {
		f.Type = dtype.Type(tag.Call >> 8)
	}
	if f.Op.reduces() {
		f.Reduce = dtype.ReduceOp(tag.Call >> 16)
	}
	if f.Op.rooted() {
		f.Root, f.Rooted = int(int32(tag.Call>>32)), true
	}
	return f
}

// Describe says in words which call a tag belongs to: "all-reduce f32 x 1024 sum, ring, #7".
func Describe(tag transport.Tag) string {
	f := Unpack(tag)
	s := f.Op.String()
	if f.Op != OpBarrier {
		s += fmt.Sprintf(" %v x %d", f.Type, f.Count)
		if f.Counts != 0 {
			s += fmt.Sprintf(" (counts %04x)", f.Counts)
		}
	}
	if f.Op.reduces() {
		s += " " + f.Reduce.String()
	}
	switch {
	case f.Op == OpBroadcast || f.Op == OpScatter:
		s += fmt.Sprintf(" from root %d", f.Root)
	case f.Rooted:
		s += fmt.Sprintf(" to root %d", f.Root)
	}
	return fmt.Sprintf("%s, %v, #%d", s, f.Algorithm, tag.Match)
}

// A MismatchError says that two ranks disagree on what they are doing: on operation, type, count, root, reduce operation
// or on the order of calls.
type MismatchError struct {
	Rank      int    // the other rank
	Want, Got string // this rank's call and the other's, in words
	// Told says that this rank was told, before it came to the call itself: Want is then the call of rank By.
	Told bool
	By   int
}

func (e *MismatchError) Error() string {
	if e.Told {
		return fmt.Sprintf("rank %d is in %s; rank %d in %s", e.Rank, e.Got, e.By, e.Want)
	}
	return fmt.Sprintf("rank %d is in %s; this rank in %s", e.Rank, e.Got, e.Want)
}

// mismatch puts a transport's finding into words. Frame lengths matter only where the tags agree.
func mismatch(e *transport.TagError) *MismatchError {
	m := &MismatchError{Rank: e.Rank, Want: Describe(e.Want), Got: Describe(e.Got)}
	if e.Want.Group != e.Got.Group {
		m.Want += fmt.Sprintf(" of group %#x", e.Want.Group)
		m.Got += fmt.Sprintf(" of group %#x", e.Got.Group)
	}
	if m.Want == m.Got {
		m.Want += fmt.Sprintf(" with %d bytes for this rank", e.WantBytes)
		m.Got += fmt.Sprintf(" with %d bytes for this rank", e.GotBytes)
	}
	return m
}
