package link

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/goccl/goccl/transport"
)

// Recv reads the next frame into p. Until the frame's header is complete a cancelled Recv loses nothing, because what has
// come of it stays in the read-ahead; from then on it leaves the stream unusable.
func (s *Stream) Recv(ctx context.Context, tag transport.Tag, p []byte) error {
	if err := s.in.takeToReceive(ctx); err != nil {
		return err
	}
	defer s.in.turn.release()
	undo := s.in.cancelOn(ctx)
	defer undo()

	h, err := s.recvHeader()
	if err != nil && isTimeout(err) && !s.in.isClosing() {
		return context.Cause(ctx)
	}
	if err != nil {
		return s.in.fail(err)
	}
	if err := s.check(h, tag, uint64(len(p))); err != nil {
		return s.in.fail(err)
	}
	err = s.recvPayload(h, p)
	switch {
	case err == nil:
		return nil
	case isTimeout(err) && !s.in.isClosing():
		return s.in.fail(fmt.Errorf("receiving from rank %d was cut off in mid-frame: %w", s.peer.Rank, context.Cause(ctx)))
	default:
		return s.in.fail(err)
	}
}

// recvHeader blocks until a header is there and takes it.
func (s *Stream) recvHeader() (Header, error) {
	for len(s.ahead.unread()) < HeaderSize {
		if err := s.fill(len(s.ahead.unread()) > 0); err != nil {
			return Header{}, err
		}
	}
	return s.takeHeader()
}

// takeHeader takes a header that has arrived.
func (s *Stream) takeHeader() (Header, error) {
	s.ahead.take(s.came[:])
	h, err := DecodeHeader(&s.came)
	if err != nil {
		err = &transport.PeerError{Rank: s.peer.Rank, Addr: s.peer.Addr, Err: err}
	}
	return h, err
}

func (s *Stream) recvPayload(h Header, p []byte) error {
	if err := s.recvBytes(p); err != nil {
		return err
	}
	if !h.Checksum {
		return nil
	}
	var tail [trailerSize]byte
	if err := s.recvBytes(tail[:]); err != nil {
		return err
	}
	return s.verify(crc32.Checksum(p, castagnoli), tail)
}

// verify compares the checksum of what arrived with what the peer says that it sent.
func (s *Stream) verify(sum uint32, tail [trailerSize]byte) error {
	if want := binary.LittleEndian.Uint32(tail[:]); sum != want {
		return &transport.PeerError{Rank: s.peer.Rank, Addr: s.peer.Addr,
			Err: fmt.Errorf("protocol error: payload has checksum %08x, expected %08x", sum, want)}
	}
	return nil
}

// recvBytes fills p with bytes of a frame that has begun. What is small goes through the read-ahead, which catches the
// next header too.
func (s *Stream) recvBytes(p []byte) error {
	for len(p) > 0 {
		if n := s.ahead.take(p); n > 0 {
			p = p[n:]
			continue
		}
		if len(p) < s.ahead.size {
			if err := s.fill(true); err != nil {
				return err
			}
			continue
		}
		n, err := s.conn.Read(p)
		p = p[n:]
		if n == 0 && err != nil {
			return s.readFault(err, true)
		}
	}
	return nil
}

// fill reads more bytes ahead, blocking until there are some. inFrame says that the stream may not end here.
func (s *Stream) fill(inFrame bool) error {
	n, err := s.conn.Read(s.ahead.space())
	s.ahead.w += n
	if n > 0 || err == nil {
		return nil
	}
	return s.readFault(err, inFrame)
}

// readFault leaves timeouts to the caller, who knows what they mean.
func (s *Stream) readFault(err error, inFrame bool) error {
	if isTimeout(err) && !s.in.isClosing() {
		return err
	}
	if err == io.EOF && inFrame {
		err = io.ErrUnexpectedEOF
	}
	return s.fault(&s.in, err)
}
