package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/goccl/goccl/transport"
)

// A callOff says why a next epoch comes to nothing. What one rank alone has seen, it tells to the others: those that wait for
// its connections would wait for ever, and blame the wrong rank.
type callOff struct {
	rank int // at fault, in the next epoch
	text string
}

// callOffBound is how long telling the others may take.
const callOffBound = time.Second

// A toldError is a failure that another rank has told of, so that it needs no telling.
type toldError struct{ error }

func (e toldError) Unwrap() error { return e.error }

// of is the failure of a world's opening.
func (c *callOff) of(m *mesh) error {
	if c.rank < 0 || c.rank >= m.size {
		return toldError{fmt.Errorf("it was called off: %s", c.text)}
	}
	return toldError{m.peerError(c.rank, errors.New(c.text))}
}

// callOff tells the other ranks of a world, but for the one at fault, that it comes to nothing.
func (m *mesh) callOff(c *callOff) {
	ctx, cancel := context.WithTimeout(context.Background(), callOffBound)
	defer cancel()
	o := message(kindResult, failed([]int{c.rank}, "%s", c.text).payload())
	var wg sync.WaitGroup
	for peer := range m.size {
		if peer == m.rank || peer == c.rank {
			continue
		}
		wg.Go(func() {
			conn, err := m.host.net.dial(ctx, "tcp", m.tcpAddress(peer))
			if err == nil {
				conn, err = m.introduceOn(ctx, conn, peer, &hello{purpose: purposeCallOff})
			}
			if err != nil {
				return // it will find out in its own time
			}
			defer conn.Close()
			stop := interruptible(ctx, conn, 0)
			defer stop()
			conn.Write(o)
			conn.Read(make([]byte, 1)) // the other end closes once it has read
		})
	}
	wg.Wait()
}

// callOffs is the handler of what other ranks tell.
type callOffs struct{ host *host }

func (c callOffs) check(_ context.Context, h *hello, _ net.Conn) *rejection {
	switch {
	case h.runID != c.host.runID:
		return refuse("run id differs: you belong to %q, this rank to %q", h.runID, c.host.runID)
	case h.epoch == 0:
		return refuse("epoch 0 cannot be called off")
	}
	return nil
}

func (c callOffs) take(conn net.Conn, h *hello, settled func()) error {
	defer conn.Close()
	p, err := expect(conn, kindResult)
	if err != nil {
		return err
	}
	o, err := decodeOutcome(p)
	if err != nil {
		return err
	}
	settled()
	if o.code != outcomeFine && len(o.ranks) == 1 {
		c.host.calledOff(h.world, &callOff{o.ranks[0], o.text})
	}
	return nil
}

func (callOffs) refused(*hello, error, string) {}

// calledOff ends the opening of a world, now or when it comes to it.
func (h *host) calledOff(world [16]byte, c *callOff) {
	h.mu.Lock()
	m := h.worlds[world]
	if m == nil && h.hasEnded(world) == nil {
		h.note(endedWorld{world, c})
	}
	h.mu.Unlock()
	if m != nil {
		m.calledOff(c)
	}
}

// verdict is what a rank whose opening of a next epoch has failed tells the others; nil: nothing that they do not see themselves.
// left tells whether a rank has left the epoch before, which all see.
func (m *mesh) verdict(ctx context.Context, err error, left func(rank int) bool) *callOff {
	var peer *transport.PeerError
	switch {
	case errors.As(err, new(toldError)) || errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return nil
	case ctx.Err() != nil:
		return &callOff{m.rank, fmt.Sprintf("it gave up: %v", context.Cause(ctx))}
	case !errors.As(err, &peer):
		return &callOff{m.rank, err.Error()}
	case !left(peer.Rank):
		return &callOff{peer.Rank, peer.Err.Error()}
	}
	return nil
}
