package mem

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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

// Whoever waits over pipes is idle in the eyes of testing/synctest, so that an hour passes at once.
func TestFakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ts := NewWorld(2)
		defer ts[0].Close()
		defer ts[1].Close()
		tag := transport.Tag{Class: transport.Collective}
		steps := []transport.Step{{Peer: 1, Out: make([]byte, 1<<20)}, {Peer: 1, In: &fill{b: make([]byte, 9)}, InLen: 9}}
		for i, call := range []func(ctx context.Context) error{
			func(ctx context.Context) error { return ts[0].Recv(ctx, 1, tag, make([]byte, 9)) },
			func(ctx context.Context) error { return ts[0].(transport.Exchanger).Exchange(ctx, tag, steps) },
		} {
			begun := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Hour {
				t.Errorf("call %d: %v after %v", i, err, time.Since(begun))
			}
			cancel()
		}
	})
}

// The streams of a group that is only named in tags know Send and Recv.
func TestExchangeUnsupported(t *testing.T) {
	ts := NewWorld(2)
	defer ts[0].Close()
	defer ts[1].Close()
	for _, tag := range []transport.Tag{{Class: transport.PointToPoint}, {Class: transport.Collective, Group: 1}} {
		err := ts[0].(transport.Exchanger).Exchange(t.Context(), tag, []transport.Step{{Peer: 1}})
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%+v: %v", tag, err)
		}
	}
}

// A world of one has nobody to talk to, and says so.
func TestSolo(t *testing.T) {
	s := Solo()
	if s.Rank() != 0 || s.Size() != 1 {
		t.Errorf("rank %d of %d", s.Rank(), s.Size())
	}
	if err := s.(transport.Exchanger).Exchange(t.Context(), transport.Tag{Class: transport.Collective}, nil); err != nil {
		t.Error(err)
	}
	if err := s.Send(t.Context(), 0, transport.Tag{Class: transport.Collective}, nil); err == nil {
		t.Error("a Send to itself did not fail")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
