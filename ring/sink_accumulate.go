package ring

import "github.com/goccl/goccl/dtype"

// accumulateSink keeps partial results in the accumulator type: at = own op received. It takes nothing that its own operand
// is not ready for.
type accumulateSink struct {
	op      dtype.ReduceOp // of the call
	size    int            // ranks, which a mean divides by
	at, own dtype.Buffer   // own is of the call's type or the accumulator's
	inPlace bool           // own is at
	win     window         // of the type that arrives
	wide    dtype.Buffer   // room to widen what arrived, as many elements as win
	out     dtype.Buffer   // where rounded results go; no type: this is not the end
	behind  *accumulateSink
	ahead   int // elements of behind's result before own's first
	skip    int // elements before the first of the Out that waits for this
	got     int // bytes
	done    int // elements
}

func (s *accumulateSink) Window() []byte {
	unit := s.win.Type().Size()
	ready := s.at.Count()
	if s.behind != nil {
		ready = min(ready, s.behind.done-s.ahead)
	}
	if left := ready*unit - s.got; left > 0 {
		return s.win.room(s.got-s.done*unit, left)
	}
	return nil
}

func (s *accumulateSink) Advance(n int) error {
	s.got += n
	unit := s.win.Type().Size()
	lo, hi := s.done, s.got/unit
	if lo == hi {
		return nil
	}
	if err := s.accumulate(lo, hi); err != nil {
		return err
	}
	s.done = hi
	s.win.keep(hi-lo, s.got-hi*unit)
	return nil
}

func (s *accumulateSink) accumulate(lo, hi int) error {
	at, received := s.at.Slice(lo, hi), s.win.Slice(0, hi-lo)
	if !s.inPlace {
		if err := dtype.Widen(at, s.own.Slice(lo, hi)); err != nil {
			return err
		}
	}
	if received.Type() != at.Type() {
		wide := s.wide.Slice(0, hi-lo)
		if err := dtype.Widen(wide, received); err != nil {
			return err
		}
		received = wide
	}
	op := s.op
	if op == dtype.Mean {
		op = dtype.Sum
	}
	if err := dtype.Reduce(op, at, received); err != nil || s.out.Count() == 0 {
		return err
	}
	return dtype.Finish(s.op, s.out.Slice(lo, hi), at, s.size)
}

func (s *accumulateSink) Final() int64 {
	unit := s.at.Type().Size()
	if s.out.Count() > 0 {
		unit = s.out.Type().Size()
	}
	return int64(max(0, s.done-s.skip)) * int64(unit)
}
