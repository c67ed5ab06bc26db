package transporttest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/goccl/goccl/transport"
)

var errCause = errors.New("the test's own cause")

// A call with a context that has ended does nothing and returns the cause.
func (s *suite) endedContext(t *testing.T) {
	ctx, ts := s.world(t, 2)
	for _, c := range classes {
		ended, cancel := context.WithCancelCause(ctx)
		cancel(errCause)
		if err := ts[0].Send(ended, 1, tagOf(c, 1), []byte("lost")); !errors.Is(err, errCause) {
			t.Errorf("%v Send: %v", c, err)
		}
		if err := ts[1].Recv(ended, 0, tagOf(c, 1), make([]byte, 4)); !errors.Is(err, errCause) {
			t.Errorf("%v Recv: %v", c, err)
		}
		together(t, ts, func(tr transport.Transport) error { return ringOnce(ctx, tr, c) })
	}
}

// A Recv that was cancelled before its frame began to arrive has lost nothing, whether it waited or was in line.
func (s *suite) cancelRecv(t *testing.T) {
	ctx, ts := s.world(t, 2)
	for _, c := range classes {
		for _, after := range []time.Duration{0, 20 * time.Millisecond} {
			var waiting []<-chan error
			short, cancel := context.WithTimeoutCause(ctx, after, errCause)
			for range 3 {
				waiting = append(waiting, start(func() error { return ts[1].Recv(short, 0, tagOf(c, 1), make([]byte, 3)) }))
			}
			for _, w := range waiting {
				if err := <-w; !errors.Is(err, errCause) {
					t.Errorf("%v: %v", c, err)
				}
			}
			cancel()
			together(t, ts, func(tr transport.Transport) error { return ringOnce(ctx, tr, c) })
		}
	}
}

// A Send that is cancelled has sent all of its frame or nothing, and no longer reads the caller's memory.
func (s *suite) cancelSend(t *testing.T) {
	ctx, ts := s.world(t, 2)
	for _, c := range classes {
		for i, after := range []time.Duration{0, 100 * time.Microsecond, 20 * time.Millisecond} {
			short, cancel := context.WithTimeoutCause(ctx, after, errCause)
			p := pattern(make([]byte, s.large/2), i)
			err := ts[0].Send(short, 1, tagOf(c, 1), p)
			cancel()
			clear(p)
			if err != nil && !errors.Is(err, errCause) {
				t.Fatalf("%v: Send: %v", c, err)
			}
			behind := start(func() error { return ts[0].Send(ctx, 1, tagOf(c, 2), []byte("behind")) })
			if err == nil {
				got := make([]byte, s.large/2)
				if err := errors.Join(ts[1].Recv(ctx, 0, tagOf(c, 1), got), firstDifference(got, pattern(p, i))); err != nil {
					t.Fatalf("%v: completed frame: %v", c, err)
				}
			}
			got := make([]byte, 6)
			if err := errors.Join(ts[1].Recv(ctx, 0, tagOf(c, 2), got), <-behind); err != nil || string(got) != "behind" {
				t.Fatalf("%v: frame behind: %q, %v", c, got, err)
			}
		}
	}
}

// ends checks an error of a call that the closing of a transport has ended.
func ends(err error, here bool, culprit int) error {
	var peer *transport.PeerError
	switch {
	case here && !errors.Is(err, errClosed):
		return fmt.Errorf("%v, expected net.ErrClosed", err)
	case !here && (!errors.As(err, &peer) || peer.Rank != culprit):
		return fmt.Errorf("%v, expected a PeerError of rank %d", err, culprit)
	}
	return nil
}
