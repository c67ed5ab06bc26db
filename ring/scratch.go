package ring

import "github.com/goccl/goccl/dtype"

const (
	cacheLine = 64
	// keptBytes is the most scratch an executor keeps from one call to the next.
	keptBytes = 64 << 20
)

// A scratch hands out memory for one exchange and reuses it for the next. What a first call needs beyond its size is
// allocated apart; from then on it is large enough.
type scratch struct {
	mem  []byte
	used int // bytes asked for since the last reset, whether they fitted or not
}

func (s *scratch) reset() {
	if s.used > len(s.mem) && s.used <= keptBytes {
		s.mem = make([]byte, s.used)
	}
	s.used = 0
}

// take returns count elements, aligned to a cache line. Their contents are arbitrary.
func (s *scratch) take(t dtype.Type, count int) dtype.Buffer {
	n := count * t.Size()
	begin := s.used
	s.used += (n + cacheLine - 1) / cacheLine * cacheLine
	var p []byte
	if s.used <= len(s.mem) {
		p = s.mem[begin : begin+n]
	} else {
		p = make([]byte, n+8)[:n] // 8 more: the allocator aligns large enough objects to 8 bytes
	}
	b, err := dtype.Bytes(t, p)
	if err != nil {
		panic("BUG: ring: scratch: " + err.Error())
	}
	return b
}
