package ring

import "github.com/goccl/goccl/dtype"

// A window is where bytes land that cannot land in their final place. It is at least one element long.
type window struct{ dtype.Buffer }

// room is the space behind kept bytes of a split element, for at most left more bytes.
func (w window) room(kept, left int) []byte {
	return w.HostBytes()[kept:min(w.Nbytes(), kept+left)]
}

// keep moves the first n bytes of a split element, which lie behind the elements taken, to the front.
func (w window) keep(taken, n int) {
	if n > 0 {
		b := w.HostBytes()[taken*w.Type().Size():]
		copy(w.HostBytes(), b[:n])
	}
}

// combineSink reduces two operands as they land: dst = own op received. Received bytes land in dst itself, piece by piece
// so that they are still in the cache when they are reduced, or in a window where own is the same memory.
type combineSink struct {
	op       dtype.ReduceOp
	divide   int // the sum of a mean is complete: by the number of ranks; else 0
	dst, own dtype.Buffer
	win      window
	landing  int // not 0: in dst, so many bytes at a time
	got      int // bytes
	done     int // elements
}

func (s *combineSink) Window() []byte {
	begin := s.done * s.dst.Type().Size()
	kept, left := s.got-begin, s.dst.Nbytes()-s.got
	if s.landing > 0 {
		return s.dst.HostBytes()[s.got : s.got+min(left, max(s.landing-kept, 1))]
	}
	return s.win.room(kept, left)
}

func (s *combineSink) Advance(n int) error {
	s.got += n
	unit := s.dst.Type().Size()
	lo, hi := s.done, s.got/unit
	if lo == hi {
		return nil
	}
	dst := s.dst.Slice(lo, hi)
	received := dst
	if s.landing == 0 {
		received = s.win.Slice(0, hi-lo)
	}
	if err := dtype.Fold(s.op, dst, s.own.Slice(lo, hi), received); err != nil {
		return err
	}
	if s.divide > 0 {
		if err := dtype.Divide(dst, s.divide); err != nil {
			return err
		}
	}
	s.done = hi
	if s.landing == 0 {
		s.win.keep(hi-lo, s.got-hi*unit)
	}
	return nil
}

func (s *combineSink) Final() int64 { return int64(s.done) * int64(s.dst.Type().Size()) }
