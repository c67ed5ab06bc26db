package link

import (
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/goccl/goccl/transport"
)

// A Conn is a byte stream with a peer, as *net.TCPConn and *net.UnixConn are.
type Conn interface {
	io.ReadWriteCloser
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// Nonblocking is the other way to use a Conn, which the engine needs. Both methods return 0, nil when they would block.
type Nonblocking interface {
	TryRead(head, body []byte) (int, error)  // fills head, then body, as one read; io.EOF at the end
	TryWrite(head, body []byte) (int, error) // writes head, then body, as one write
}

// A BuffersWriter is a Conn that wants all parts of a frame at once, as the sockets of package net do, which [net.Buffers] knows.
// It takes from the buffers what it has written.
type BuffersWriter interface {
	WriteBuffers(*net.Buffers) (int64, error)
}

// readAheadSize is how many bytes a receiver takes in at once when it does not know yet what comes, so that a small frame
// costs one read. Control frames are tiny and every pair of ranks has such a stream all the time.
const (
	readAheadSize        = 16 << 10
	readAheadSizeControl = 1 << 10
)

// An Endpoint describes the peer of a stream.
type Endpoint struct {
	Rank  int    // for messages: the peer's rank in the group
	Addr  string // for messages
	Local bool   // the peer runs on this host
}

// A Stream is one framed connection with one peer. Each direction has its own turn, which Send, Recv and the engine take.
type Stream struct {
	peer     Endpoint
	conn     Conn
	raw      Nonblocking // conn, if it can
	checksum bool        // send payload checksums

	out  half
	head [HeaderSize]byte  // out's, like the next three
	tail [trailerSize]byte // checksum of the payload
	iov  [3][]byte
	rest net.Buffers // what a Send still has to write

	in    half
	ahead readAhead        // in's: bytes that have arrived but belong to nobody yet
	came  [HeaderSize]byte // in's: the header being decoded, here because checksumming makes it escape
}

func newStream(conn Conn, peer Endpoint, class transport.Class, checksum bool, closed <-chan struct{}) *Stream {
	s := &Stream{peer: peer, conn: conn, checksum: checksum}
	s.raw, _ = conn.(Nonblocking)
	s.out = half{turn: newTurn(), closed: closed, setDeadline: conn.SetWriteDeadline}
	s.in = half{turn: newTurn(), closed: closed, setDeadline: conn.SetReadDeadline}
	s.ahead.size = readAheadSize
	if class == transport.Control {
		s.ahead.size = readAheadSizeControl
	}
	return s
}

// interrupt ends whatever runs on the stream; join waits until it has ended. Together they leave the stream closed and
// its connection to the caller.
func (s *Stream) interrupt() {
	s.out.close()
	s.in.close()
}

func (s *Stream) join() {
	s.out.turn <- struct{}{}
	s.in.turn <- struct{}{}
	s.out.fail(net.ErrClosed)
	s.in.fail(net.ErrClosed)
	s.out.turn.release()
	s.in.turn.release()
}

// fault turns an error of the connection into the transport's.
func (s *Stream) fault(h *half, err error) error {
	if h.isClosing() || errors.Is(err, net.ErrClosed) {
		return net.ErrClosed
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err // the addresses stand in the PeerError
	}
	return &transport.PeerError{Rank: s.peer.Rank, Addr: s.peer.Addr, Err: err}
}

// check compares the header that came with the frame that was expected.
func (s *Stream) check(h Header, tag transport.Tag, length uint64) error {
	if h.Tag == tag && h.Length == length {
		return nil
	}
	return &transport.TagError{Rank: s.peer.Rank, Want: tag, Got: h.Tag, WantBytes: length, GotBytes: h.Length}
}

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// A readAhead holds bytes that were read before anybody asked for them.
type readAhead struct {
	size int
	buf  []byte // made at first use: most streams of a large world stay unused
	r, w int
}

func (b *readAhead) unread() []byte { return b.buf[b.r:b.w] }

// space returns room to read into. It is empty only when size bytes are unread.
func (b *readAhead) space() []byte {
	if b.buf == nil {
		b.buf = make([]byte, b.size)
	}
	if b.r > 0 {
		b.w = copy(b.buf, b.buf[b.r:b.w])
		b.r = 0
	}
	return b.buf[b.w:]
}

// take moves unread bytes into p.
func (b *readAhead) take(p []byte) int {
	n := copy(p, b.buf[b.r:b.w])
	b.r += n
	return n
}
