package mem

import (
	"bytes"
	"context"
	"sync"
	"testing"

	"github.com/goccl/goccl/transport"
)

type fill struct {
	b   []byte
	got int
}

func (s *fill) Window() []byte      { return s.b[s.got:] }
func (s *fill) Advance(n int) error { s.got += n; return nil }
func (s *fill) Final() int64        { return int64(s.got) }

// A ring passes every rank's bytes once around, each hop forwarding what has arrived.
func TestExchangeForwards(t *testing.T) {
	for _, o := range []Options{{}, {Buffer: 7}, {Jitter: 3}, {Buffer: 100, Jitter: 1, Checksum: true}} {
		const n, size = 4, 10_000
		ts := NewWorldWith(n, o)
		var wg sync.WaitGroup
		for r, tr := range ts {
			wg.Go(func() {
				parts := make([]*fill, n)
				for i := range parts {
					parts[i] = &fill{b: make([]byte, size)}
				}
				copy(parts[r].b, bytes.Repeat([]byte{byte(r + 1)}, size))
				var steps []transport.Step
				for s := range n - 1 {
					after := 0
					if s > 0 {
						after = len(steps)
					}
					steps = append(steps,
						transport.Step{Peer: (r + 1) % n, Out: parts[(r-s+n)%n].b, After: after},
						transport.Step{Peer: (r - 1 + n) % n, In: parts[(r-s-1+n)%n], InLen: size})
				}
				if err := tr.(transport.Exchanger).Exchange(context.Background(), transport.Tag{Class: transport.Collective}, steps); err != nil {
					t.Errorf("rank %d: %v", r, err)
				}
				for i, p := range parts {
					if !bytes.Equal(p.b, bytes.Repeat([]byte{byte(i + 1)}, size)) {
						t.Errorf("rank %d: part %d is wrong", r, i)
					}
				}
			})
		}
		wg.Wait()
		for _, tr := range ts {
			tr.Close()
		}
	}
}
