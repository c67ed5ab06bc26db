package transporttest

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/goccl/goccl/transport"
)

var errClosed = net.ErrClosed

// closeBound is how long Close may take with peers that do not answer, and with room for a busy machine.
const closeBound = 5 * time.Second

func closeInTime(t *testing.T, tr transport.Transport) {
	t.Helper()
	begun := time.Now()
	if err := tr.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if d := time.Since(begun); d > closeBound {
		t.Errorf("Close took %v", d)
	}
}

// pending starts a Recv, a Send that nobody takes and, if there is Exchange, one that waits: of tr with peer.
func (s *suite) pending(ctx context.Context, tr transport.Transport, peer int) []<-chan error {
	var calls []<-chan error
	for _, c := range classes {
		calls = append(calls,
			start(func() error { return tr.Recv(ctx, peer, tagOf(c, 1), make([]byte, 9)) }),
			start(func() error { return tr.Recv(ctx, peer, tagOf(c, 2), make([]byte, 9)) }))
	}
	calls = append(calls, start(func() error {
		for {
			if err := tr.Send(ctx, peer, tagOf(transport.PointToPoint, 3), make([]byte, 1<<20)); err != nil {
				return err
			}
		}
	}))
	if ex, ok := tr.(transport.Exchanger); ok {
		calls = append(calls, start(func() error {
			return ex.Exchange(ctx, tagOf(transport.Collective, 4), []transport.Step{{Peer: peer, In: newCopySink(9, 9), InLen: 9}})
		}))
	}
	return calls
}

// Close ends every pending call of its own transport, and later calls fail the same way.
func (s *suite) closeHere(t *testing.T) {
	ctx, ts := s.world(t, 2)
	calls := s.pending(ctx, ts[0], 1)
	closeInTime(t, ts[0])
	for i, c := range calls {
		if err := ends(<-c, true, 0); err != nil {
			t.Errorf("pending call %d: %v", i, err)
		}
	}
	for i, c := range s.pending(ctx, ts[0], 1) {
		if err := ends(<-c, true, 0); err != nil {
			t.Errorf("later call %d: %v", i, err)
		}
	}
}

// The peers of a transport that closes learn of it in every call that waits for it, and only in those.
func (s *suite) closeThere(t *testing.T) {
	ctx, ts := s.world(t, 3)
	calls := s.pending(ctx, ts[0], 1)
	closeInTime(t, ts[1])
	for i, c := range calls {
		if err := ends(<-c, false, 1); err != nil {
			t.Errorf("pending call %d: %v", i, err)
		}
	}
	for i, c := range s.pending(ctx, ts[0], 1) {
		if err := ends(<-c, false, 1); err != nil {
			t.Errorf("later call %d: %v", i, err)
		}
	}
	sent := start(func() error { return ts[0].Send(ctx, 2, tagOf(transport.Collective, 1), []byte("on")) })
	if err := ts[2].Recv(ctx, 0, tagOf(transport.Collective, 1), make([]byte, 2)); err != nil {
		t.Error(err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// What was sent before Close arrives at a peer that reads, although bytes of the peer itself were never read.
func (s *suite) closeDelivers(t *testing.T) {
	ctx, ts := s.world(t, 2)
	const frames, size = 20, 50_000
	var unread []<-chan error
	for _, c := range classes {
		unread = append(unread, start(func() error { return ts[1].Send(ctx, 0, tagOf(c, 0), make([]byte, 100)) }))
	}
	closed := start(func() error {
		var sends []<-chan error
		for _, c := range classes {
			sends = append(sends, start(func() error {
				for i := range frames {
					if err := ts[0].Send(ctx, 1, tagOf(c, i), pattern(make([]byte, size), i)); err != nil {
						return err
					}
				}
				return nil
			}))
		}
		for _, c := range sends {
			if err := <-c; err != nil {
				return err
			}
		}
		return ts[0].Close()
	})
	var recvs []<-chan error
	for _, c := range classes {
		recvs = append(recvs, start(func() error {
			for i := range frames {
				got := make([]byte, size)
				if err := ts[1].Recv(ctx, 0, tagOf(c, i), got); err != nil {
					return err
				}
				if err := firstDifference(got, pattern(make([]byte, size), i)); err != nil {
					return err
				}
			}
			return ends(ts[1].Recv(ctx, 0, tagOf(c, frames), make([]byte, 1)), false, 0)
		}))
	}
	for i, c := range append(recvs, closed) {
		if err := <-c; err != nil {
			t.Errorf("call %d: %v", i, err)
		}
	}
	for _, c := range unread {
		<-c // sent, or ended by the closing
	}
}

// Close may be called again, and by several at once.
func (s *suite) closeTwice(t *testing.T) {
	_, ts := s.world(t, 2)
	var calls []<-chan error
	for range 4 {
		calls = append(calls, start(ts[0].Close))
	}
	for _, c := range calls {
		if err := <-c; err != nil {
			t.Error(err)
		}
	}
	closeInTime(t, ts[0])
	closeInTime(t, ts[1])
}
