package goccl

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goccl/goccl/dtype"
	"github.com/goccl/goccl/ring"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/mem"
)

// beside makes a group of rank 0 of two; rank 1 is a bare transport, which may say what it likes.
func beside(t *testing.T, cfg Config) (*ProcessGroup, transport.Transport) {
	t.Helper()
	ts := mem.NewWorld(2)
	g, err := New(ts[0], cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g, ts[1]
}

// Scenario 81: lengths from the wire are trusted, or capped loosely (sources of Gloo, KungFu and PCCL). A peer that has passed
// the hello announces more than any bound.
func TestPeers81_AnnouncedMessages(t *testing.T) {
	for _, nbytes := range []int64{1 << 40, 1<<62 - 1, -1 << 63} { // the last is 2⁶³ on the wire
		synctest.Test(t, func(t *testing.T) {
			g, stranger := beside(t, Config{MailboxBytes: 1 << 20})
			var head [envelopeBytes]byte
			envelope{tag: 1, typ: dtype.U8, nbytes: nbytes}.encode(head[:])
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if err := stranger.Send(t.Context(), 0, envelopeTag, head[:]); err != nil {
				t.Fatal(err)
			}
			_, err := Recv[uint8](t.Context(), g, 1, 1)
			var e *PeerError
			if !errors.Is(err, ErrArgument) && (!errors.As(err, &e) || e.Rank != 1 || !errors.Is(err, errBadEnvelope)) {
				t.Errorf("%d bytes announced: %v", nbytes, err)
			}
			runtime.ReadMemStats(&after)
			if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
				t.Errorf("%d bytes announced: %d allocated", nbytes, n)
			}
			stranger.Close()
			g.Close()
		})
	}
}

// The same in a collective, where the receiver knows what it expects.
func TestPeers81_MoreThanWasPosted(t *testing.T) {
	for _, extra := range []int{1, 1 << 20} {
		g, stranger := beside(t, Config{})
		call := ring.Call{Op: ring.OpAllReduce, Dst: dtype.Of([]float32{1}), Src: dtype.Of([]float32{1}), Reduce: Sum}
		tag := g.exec.Tag(&call, 1)
		go stranger.Send(t.Context(), 0, tag, make([]byte, 4+extra))
		buf := []float32{1}
		err := AllReduce(t.Context(), g, buf, Sum)
		var e *MismatchError
		if !errors.As(err, &e) || e.Rank != 1 || !strings.Contains(e.Got, fmt.Sprintf("%d bytes", 4+extra)) || buf[0] != 1 {
			t.Errorf("%d bytes too many: %v, buffer %v", extra, err, buf)
		}
		stranger.Close()
		g.Close()
	}
}

// And messages that nobody has asked for: they are held up to the mailbox's bound, and then the sender is held back.
func TestPeers81_UnexpectedMessagesAreCapped(t *testing.T) {
	const bound = 1 << 20
	synctest.Test(t, func(t *testing.T) {
		gs := groups(t, memWorld, 2, Config{MailboxBytes: bound, Timeout: 2 * time.Second})
		sent := 0
		var err error
		for ; err == nil && sent < 1000; sent++ {
			err = Send(t.Context(), gs[1], 0, uint32(sent), make([]byte, bound/10))
		}
		if err == nil || !strings.Contains(err.Error(), "mailbox full at rank 0") {
			t.Errorf("after %d messages: %v", sent, err)
		}
		box := gs[0].p2p.box
		box.mu.Lock()
		defer box.mu.Unlock()
		if box.used > bound {
			t.Errorf("%d bytes are held, the bound is %d", box.used, bound)
		}
	})
}
