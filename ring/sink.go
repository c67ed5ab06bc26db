package ring

import "math"

// Sinks take in received bytes. A receive may end inside an element: a sink keeps the rest until the remainder is there.

// storeSink leaves bytes where they belong.
type storeSink struct {
	dst    []byte
	got    int
	whole  bool       // all or nothing is final
	behind *storeSink // nothing is final before that one is complete
}

func (s *storeSink) Window() []byte { return s.dst[s.got:] }

func (s *storeSink) Advance(n int) error {
	s.got += n
	return nil
}

func (s *storeSink) complete() bool {
	return s.got == len(s.dst) && (s.behind == nil || s.behind.complete())
}

func (s *storeSink) Final() int64 {
	switch {
	case !s.whole:
		return int64(s.got)
	case s.complete():
		return math.MaxInt64
	}
	return 0
}
