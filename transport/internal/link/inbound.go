package link

import (
	"hash/crc32"

	"github.com/goccl/goccl/transport"
)

// An inbound is the receiving direction of a flow.
type inbound struct {
	queue    []int // indexes of the steps, in list order
	at       int   // the one under way
	begun    bool  // its header has come
	checksum bool  // a trailer follows the payload
	got      int64 // payload bytes received
	sum      uint32
	window   []byte // the sink's, not filled yet
	blocked  bool   // in the last pass
	taken    bool   // the stream's turn
}

func (in *inbound) reset() {
	in.queue, in.at, in.begun, in.window = in.queue[:0], 0, false, nil
}

// pull takes in what has arrived for the flow's steps, with at most one read.
func (e *Engine) pull(f *flow) (result, error) {
	r, progress, err := e.absorb(f)
	if err != nil || r != blocked {
		return orMoved(r, progress), err
	}
	n, err := e.read(f)
	if err != nil || n == 0 {
		return orMoved(r, progress), err
	}
	_, _, err = e.absorb(f)
	return moved, err
}

func orMoved(r result, progress bool) result {
	if progress {
		return moved
	}
	return r
}

// absorb uses up the bytes that were read ahead. It returns blocked when only a read can help, and says whether it got
// anywhere.
func (e *Engine) absorb(f *flow) (r result, progress bool, err error) {
	in, s := &f.in, f.stream
	for in.at < len(in.queue) {
		st := &e.steps[in.queue[in.at]]
		unread := len(s.ahead.unread())
		switch {
		case !in.begun:
			if unread < HeaderSize {
				return blocked, progress, nil
			}
			if err := e.open(in, s, uint64(st.InLen)); err != nil {
				return moved, true, err
			}
		case in.got < st.InLen:
			if in.window = st.In.Window(); len(in.window) == 0 {
				return held, progress, nil
			}
			in.window = in.window[:min(int64(len(in.window)), st.InLen-in.got, maxPiece)]
			if unread == 0 {
				return blocked, progress, nil
			}
			if err := e.advance(f, st.In, s.ahead.take(in.window)); err != nil {
				return moved, true, err
			}
		case in.checksum && unread < trailerSize:
			return blocked, progress, nil
		default:
			if err := e.close(in, s); err != nil {
				return moved, true, err
			}
		}
		progress = true
	}
	return done, progress, nil
}

// read reads once: into the sink's memory if there is room worth a read of its own, else ahead.
func (e *Engine) read(f *flow) (int, error) {
	in, s := &f.in, f.stream
	direct := in.begun && len(in.window) >= s.ahead.size
	into := in.window
	if !direct {
		into = s.ahead.space()
	}
	n, err := s.raw.TryRead(into)
	if err != nil {
		return 0, s.readFault(err, in.begun || len(s.ahead.unread()) > 0)
	}
	if !direct {
		s.ahead.w += n
		return n, nil
	}
	if n == 0 {
		return 0, nil
	}
	return n, e.advance(f, e.steps[in.queue[in.at]].In, n)
}

// open takes the header of the frame that is due.
func (e *Engine) open(in *inbound, s *Stream, length uint64) error {
	h, err := s.takeHeader()
	if err != nil {
		return err
	}
	in.begun, in.checksum, in.got, in.sum, in.window = true, h.Checksum, 0, 0, nil
	return s.check(h, e.tag, length)
}

// advance hands the sink n bytes that lie in the front of its window.
func (e *Engine) advance(f *flow, sink transport.Sink, n int) error {
	in := &f.in
	if in.checksum {
		in.sum = crc32.Update(in.sum, castagnoli, in.window[:n])
	}
	in.window = nil
	in.got += int64(n)
	if f.stream.peer.Local {
		e.ahead -= n
	}
	return sink.Advance(n)
}

// close ends a frame whose last byte is there.
func (e *Engine) close(in *inbound, s *Stream) error {
	if in.checksum {
		var tail [trailerSize]byte
		s.ahead.take(tail[:])
		if err := s.verify(in.sum, tail); err != nil {
			return err
		}
	}
	in.at++
	in.begun = false
	if s.peer.Local {
		e.toCome--
	}
	return nil
}
