package link

import "hash/crc32"

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
			if in.window = clip(st.In.Window(), st.InLen-in.got); len(in.window) == 0 {
				return held, progress, nil
			}
			if unread == 0 {
				return blocked, progress, nil
			}
			if err := e.advance(f, s.ahead.take(in.window)); err != nil {
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

// read reads once: into the sink's memory where there is room worth it, else ahead.
func (e *Engine) read(f *flow) (int, error) {
	in, s := &f.in, f.stream
	switch {
	case in.begun && len(in.window) >= s.ahead.size:
		n, err := e.tryRead(f, nil, in.window)
		if n == 0 {
			return 0, err
		}
		return n, e.advance(f, n)
	case !in.begun && len(s.ahead.unread()) == 0 && e.steps[in.queue[in.at]].InLen >= int64(s.ahead.size):
		return e.readFrame(f)
	}
	n, err := e.tryRead(f, s.ahead.space(), nil)
	s.ahead.w += n
	return n, err
}

// readFrame reads the header of a large frame together with its first bytes, which need no copy this way.
func (e *Engine) readFrame(f *flow) (int, error) {
	in, s := &f.in, f.stream
	st := &e.steps[in.queue[in.at]]
	w := clip(st.In.Window(), st.InLen)
	n, err := e.tryRead(f, s.ahead.space()[:HeaderSize], w)
	s.ahead.w += min(n, HeaderSize)
	if n < HeaderSize || err != nil {
		return n, err
	}
	if err := e.open(in, s, uint64(st.InLen)); err != nil || n == HeaderSize {
		return n, err
	}
	in.window = w
	return n, e.advance(f, n-HeaderSize)
}

func (e *Engine) tryRead(f *flow, head, body []byte) (int, error) {
	s := f.stream
	n, err := s.raw.TryRead(head, body)
	if err != nil {
		return 0, s.readFault(err, f.in.begun || len(s.ahead.unread()) > 0)
	}
	return n, nil
}

// clip limits a window to what is left of the frame and to what one read should take.
func clip(w []byte, left int64) []byte { return w[:min(int64(len(w)), left, maxPiece)] }

// open takes the header of the frame that is due.
func (e *Engine) open(in *inbound, s *Stream, length uint64) error {
	h, err := s.takeHeader()
	if err != nil {
		return err
	}
	in.begun, in.checksum, in.got, in.sum, in.window = true, h.Checksum, 0, 0, nil
	return s.check(h, e.tag, length)
}

// advance tells the sink of n bytes that lie in the front of its window.
func (e *Engine) advance(f *flow, n int) error {
	in := &f.in
	if in.checksum {
		in.sum = crc32.Update(in.sum, castagnoli, in.window[:n])
	}
	in.window = nil
	in.got += int64(n)
	if f.stream.peer.Local {
		e.ahead -= n
	}
	return e.steps[in.queue[in.at]].In.Advance(n)
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
