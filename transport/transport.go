package transport

import "context"

// A Class separates the three kinds of traffic between two ranks. Each class of each group is its own first-in first-out
// stream, so that none of them can hold up another.
type Class uint8

const (
	Collective   Class = 1 + iota // steps of collectives, driven by the goroutine that runs the collective
	PointToPoint                  // user messages, drained by a reader
	Control                       // abort, failure, probe, goodbye; later heartbeats
)

func (c Class) String() string {
	switch c {
	case Collective:
		return "collective"
	case PointToPoint:
		return "point-to-point"
	case Control:
		return "control"
	}
	return "invalid class"
}

// A Tag names what a frame belongs to. Transports route by Class and Group and compare the rest; its meaning is the caller's.
type Tag struct {
	Class Class
	Group uint64 // 0: the group that spans the transport
	Match uint64 // sequence number of the call
	Call  uint64 // operation, type, reduce operation, algorithm, root: packed and unpacked by package ring
	Count uint64 // elements
}

// Transport moves frames between the ranks of a fixed world. All methods are safe for concurrent use.
//
// Per (peer, class, group) frames arrive in the order in which they were sent. Send and Recv of one stream take turns in
// the order of their calls.
type Transport interface {
	Rank() int
	Size() int

	// Send hands one frame to another rank. A rank that is this one or out of range, or a class that is none, is an error at
	// once, here as in Recv. It returns when p may be reused; it may block until the peer
	// receives. When ctx ends before the frame was begun it returns context.Cause(ctx) and nothing was sent; a frame that was
	// begun is completed from a copy and Send returns nil, so that a cancelled Send never leaves a torn frame behind.
	Send(ctx context.Context, to int, tag Tag, p []byte) error

	// Recv takes the next frame of that peer, class and group into p. The frame must carry exactly this tag and length, else
	// Recv returns a *TagError and the stream is unusable from then on. When ctx ends in the middle of a frame the stream is
	// unusable too; before a frame has begun to arrive, nothing is lost.
	Recv(ctx context.Context, from int, tag Tag, p []byte) error

	// Close ends every pending call here with net.ErrClosed and, at the peers, with a *PeerError once they have read what was
	// sent before. It is idempotent and returns in bounded time.
	Close() error
}

// An Exchanger is a Transport that can run a whole list of steps to completion in the caller's goroutine: sending and
// receiving interleaved, without ever blocking on one peer while another could move.
type Exchanger interface {
	Exchange(ctx context.Context, tag Tag, steps []Step) error
}

// A Step is one frame, sent (In is nil) or received (In is not nil). Steps of one peer and direction run in list order;
// steps of different peers or directions run as they can.
//
// A sink never writes bytes that an Out not yet sent still covers, unless the arrival itself proves them sent.
type Step struct {
	Peer  int
	Out   []byte // what to send; may be empty: the frame's header still goes
	In    Sink   // where received bytes go
	InLen int64  // length of the frame to receive, in bytes
	After int    // 1 + index of the step whose In.Final() gates Out: only that many bytes of Out may leave yet; 0: all at once
}

// A Sink takes in the bytes of one received frame. Only the goroutine that runs the exchange calls it.
type Sink interface {
	// Window returns memory for the next bytes of the frame. Empty means not now: the transport stops reading this peer
	// until some other step of the exchange has moved.
	Window() []byte
	// Advance says that n bytes, at least one, were read into the front of the last Window.
	Advance(n int) error
	// Final returns how many bytes, from the front, of the Out that waits for this step are final and may leave.
	Final() int64
}

// A Subsetter is a Transport that can open separate connections for a sub-group. ranks lists the members in the order of
// their new ranks and contains this rank; id is the same on all members and unique within the transport's life. Every
// member calls Subset; a member that fails tells nobody (its caller does).
type Subsetter interface {
	Subset(ctx context.Context, id uint64, ranks []int) (Transport, error)
}

// An Addresser is a Transport that knows where its peers are.
type Addresser interface {
	Addr(rank int) string // for messages only; "" when unknown
}

// A Regrouper is a Transport whose ranks can go on in a next epoch: a new world of some of them and of newcomers, with
// connections of its own.
type Regrouper interface {
	// Epoch is 0 in the world that the ranks started as, and grows with each Regroup.
	Epoch() uint64

	// Waiting returns the newcomers that wait at this rank to be admitted, each in an encoding of the transport's own.
	Waiting() [][]byte

	// Regroup opens the next epoch's connections and returns when this rank has them all. Every rank in next.Ranks calls it with
	// the same argument; it works although peers outside of next.Ranks are dead, and when collectives of this transport have
	// failed. It fails when a member leaves or a newcomer gives up meanwhile; a PeerError names a rank of the new epoch. The
	// new transport does not depend on this one, which the caller closes, before or after.
	Regroup(ctx context.Context, next Epoch) (Transport, error)
}

// An Epoch is the next world of a Regrouper.
type Epoch struct {
	Number    uint64   // greater than Regrouper.Epoch, and never tried before
	Ranks     []int    // who stays, in the order of their new ranks
	Newcomers [][]byte // from Waiting of any of the ranks; their new ranks follow
}
