package transporttest

import (
	"errors"

	"github.com/goccl/goccl/transport"
)

// A copySink takes a frame into memory, through windows of limited size.
type copySink struct {
	b     []byte
	got   int
	limit int // of a window
}

func newCopySink(size, limit int) *copySink { return &copySink{b: make([]byte, size), limit: limit} }

func (s *copySink) Window() []byte { return s.b[s.got:min(len(s.b), s.got+s.limit)] }
func (s *copySink) Final() int64   { return int64(s.got) }

func (s *copySink) Advance(n int) error {
	if n < 1 || n > len(s.Window()) {
		return errors.New("Advance past the window")
	}
	s.got += n
	return nil
}

// A followSink takes no more bytes than another sink has: the order of a fold.
type followSink struct {
	copySink
	leader *copySink
}

func (s *followSink) Window() []byte {
	return s.b[s.got:max(s.got, min(s.leader.got, s.got+s.limit))]
}

// A failingSink fails at a certain byte.
type failingSink struct {
	copySink
	at  int
	err error
}

func (s *failingSink) Advance(n int) error {
	if s.got += n; s.got >= s.at {
		return s.err
	}
	return nil
}

var (
	_ transport.Sink = (*copySink)(nil)
	_ transport.Sink = (*followSink)(nil)
	_ transport.Sink = (*failingSink)(nil)
)
