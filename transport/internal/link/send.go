package link

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"net"

	"github.com/goccl/goccl/transport"
)

// Send writes one frame. It keeps the promises of [transport.Transport]: a frame is sent whole or not at all.
func (s *Stream) Send(ctx context.Context, tag transport.Tag, p []byte) error {
	if err := s.out.take(ctx); err != nil {
		return err
	}
	s.lay(tag, p)
	undo := s.out.cancelOn(ctx)
	n, err := s.writeRest()
	undo()
	switch {
	case err == nil:
	case isTimeout(err) && !s.out.isClosing():
		if n > 0 {
			s.completeLater() // keeps the turn
			return nil
		}
		err = context.Cause(ctx)
	default:
		err = s.out.fail(s.fault(&s.out, err))
	}
	s.iov = [3][]byte{} // p belongs to the caller again
	s.out.turn.release()
	return err
}

func (s *Stream) writeRest() (int64, error) {
	if w, ok := s.conn.(BuffersWriter); ok {
		return w.WriteBuffers(&s.rest)
	}
	return s.rest.WriteTo(s.conn)
}

// lay puts the parts of a frame into s.rest, to leave in one write.
func (s *Stream) lay(tag transport.Tag, p []byte) {
	Header{Tag: tag, Length: uint64(len(p)), Checksum: s.checksum}.Encode(&s.head)
	s.iov = [3][]byte{s.head[:], p}
	n := 2
	if s.checksum {
		binary.LittleEndian.PutUint32(s.tail[:], crc32.Checksum(p, castagnoli))
		s.iov[2] = s.tail[:]
		n = 3
	}
	s.rest = net.Buffers(s.iov[:n])
}

// completeLater writes the rest of a frame whose Send was cancelled from a copy of its own, so that the peer never sees a
// torn frame. The goroutine has the turn; closing bounds it and waits for it.
func (s *Stream) completeLater() {
	var size int
	for _, b := range s.rest {
		size += len(b)
	}
	rest := make([]byte, 0, size)
	for _, b := range s.rest {
		rest = append(rest, b...)
	}
	s.iov, s.rest = [3][]byte{}, nil
	s.out.finish()
	go func() {
		if _, err := s.conn.Write(rest); err != nil {
			s.out.fail(s.fault(&s.out, err))
		}
		s.out.finished()
		s.out.turn.release()
	}()
}
