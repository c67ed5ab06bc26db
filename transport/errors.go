package transport

import "fmt"

// A PeerError is a failure that has a culprit.
type PeerError struct {
	Rank int    // the peer at fault
	Addr string // its address, "" when unknown
	Op   string // the call that met the failure, "" below the collectives
	Seq  uint64 // its sequence number in the group
	Err  error
}

func (e *PeerError) Error() string {
	s := fmt.Sprintf("rank %d", e.Rank)
	if e.Addr != "" {
		s += " (" + e.Addr + ")"
	}
	if e.Op != "" {
		s += " in " + e.Op
	}
	if e.Seq != 0 {
		s += fmt.Sprintf(" #%d", e.Seq)
	}
	return fmt.Sprintf("%s: %v", s, e.Err)
}

func (e *PeerError) Unwrap() error { return e.Err }

// A TagError says that the next frame from a peer is not the one that was expected: the two ranks do not agree on what
// they are doing.
type TagError struct {
	Rank                int
	Want, Got           Tag
	WantBytes, GotBytes uint64
}

func (e *TagError) Error() string {
	return fmt.Sprintf("rank %d sent frame %+v of %d bytes, expected %+v of %d bytes", e.Rank, e.Got, e.GotBytes, e.Want, e.WantBytes)
}
