package goccl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/transport"
)

// control carries notices between the ranks: a reader for each peer, and senders that exist only while there is something
// to send. A peer that takes nothing holds up only its own queue.
type control struct {
	ctx     context.Context // ends the readers and senders
	cancel  context.CancelFunc
	readers sync.WaitGroup
	outbox  []outbox      // by rank
	news    chan struct{} // something was read; only Close listens
}

type outbox struct {
	mu      sync.Mutex
	queue   []notice
	sending bool
	idle    *sync.Cond // on mu: sending became false
}

var controlTag = transport.Tag{Class: transport.Control}

func (c *control) init(size int) {
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.outbox, c.news = make([]outbox, size), make(chan struct{}, 1)
	for r := range c.outbox {
		c.outbox[r].idle = sync.NewCond(&c.outbox[r].mu)
	}
}

func (c *control) start(g *ProcessGroup) {
	for r := range c.outbox {
		if r != g.rank {
			c.readers.Go(func() { c.read(g, r) })
		}
	}
}

// read hands every notice of one rank to the group until the stream ends.
func (c *control) read(g *ProcessGroup, from int) {
	frame := make([]byte, noticeBytes)
	for {
		err := g.t.Recv(c.ctx, from, controlTag, frame)
		if c.ctx.Err() != nil {
			return
		}
		if errors.Is(err, net.ErrClosed) { // our own transport: nobody else's fault
			g.transportClosed(err)
			return
		}
		var n notice
		if err == nil {
			if n, err = decodeNotice(frame, g.size); err == nil {
				err = g.noticed(from, &n)
			}
			if err != nil {
				err = fmt.Errorf("control: %w", err)
			}
		}
		if err != nil {
			g.lost(from, bare(err))
			return
		}
	}
}

// post queues notices; it never blocks.
func (c *control) post(g *ProcessGroup, out []outgoing) {
	for _, o := range out {
		box := &c.outbox[o.to]
		box.mu.Lock()
		if o.kind.supersedes() {
			box.queue = slices.DeleteFunc(box.queue, func(n notice) bool { return n.kind == o.kind })
		}
		box.queue = append(box.queue, o.notice)
		if !box.sending {
			box.sending = true
			go box.drain(c.ctx, g, o.to)
		}
		box.mu.Unlock()
	}
}

func (b *outbox) drain(ctx context.Context, g *ProcessGroup, to int) {
	for {
		b.mu.Lock()
		if len(b.queue) == 0 {
			b.sending, b.queue = false, nil
			b.idle.Broadcast()
			b.mu.Unlock()
			return
		}
		n := b.queue[0]
		b.queue = b.queue[1:]
		b.mu.Unlock()
		if g.t.Send(ctx, to, controlTag, n.encode()) != nil { // the reader learns of a dead peer too, and better
			b.mu.Lock()
			b.queue = nil
			b.mu.Unlock()
		}
	}
}

// handOver waits until every notice has been handed to the transport, or the bound has passed. A process may end at once
// after its call has failed, and the others should still learn why.
func (c *control) handOver(bound time.Duration) {
	var expired atomic.Bool
	timer := time.AfterFunc(bound, func() {
		expired.Store(true)
		for r := range c.outbox {
			c.outbox[r].mu.Lock() // so that no waiter is between its check and its wait
			c.outbox[r].idle.Broadcast()
			c.outbox[r].mu.Unlock()
		}
	})
	defer timer.Stop()
	for r := range c.outbox {
		b := &c.outbox[r]
		b.mu.Lock()
		for b.sending && !expired.Load() {
			b.idle.Wait()
		}
		b.mu.Unlock()
	}
}

// wait ends the readers and senders and waits for them. The transport must have been closed.
func (c *control) wait() {
	c.cancel()
	c.readers.Wait()
	for r := range c.outbox {
		b := &c.outbox[r]
		b.mu.Lock()
		for b.sending {
			b.idle.Wait()
		}
		b.mu.Unlock()
	}
}

// transportClosed takes the end of this rank's own transport, closed by somebody else than Close.
func (g *ProcessGroup) transportClosed(err error) {
	g.mu.Lock()
	g.torn = true
	g.health.closedUnder(err)
	g.settle()
	g.wakeShrink()
	g.control.tell(&g.watch)
}

// lost takes the end of a rank's control stream.
func (g *ProcessGroup) lost(rank int, err error) {
	g.mu.Lock()
	g.health.lost(time.Now(), rank, err)
	g.settle()
	g.p2p.lost(rank, err)
	g.control.tell(&g.watch)
}

// noticed takes one notice. An error says that it is malformed.
func (g *ProcessGroup) noticed(from int, n *notice) error {
	switch n.kind {
	case noticeMailboxFull, noticeMailboxOpen:
		g.p2p.held(from, n.kind == noticeMailboxFull)
		return nil
	case noticeChildFailed:
		g.childFailed(from, n)
		return nil
	case noticeAgreement:
		return g.noticedAgreement(from, n)
	case noticeGoodbye:
		g.p2p.left(from, n.value)
	}
	g.mu.Lock()
	g.health.noticed(time.Now(), from, n)
	g.settle()
	if n.kind == noticeHeartbeat {
		return nil // nobody waits for that
	}
	if n.kind == noticeFailure && n.cause == causeAbort {
		g.abortHere(&AbortError{Rank: n.rank, Text: n.b})
	}
	g.control.tell(&g.watch)
	return nil
}

// tell wakes those that wait for health to change.
func (c *control) tell(w *watch) {
	w.kick()
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// sayGoodbye tells every rank that this one leaves, and waits a moment for them to answer or to say goodbye themselves, so
// that a disagreement over the last call is found before it is too late.
func (g *ProcessGroup) sayGoodbye(bound time.Duration) {
	g.mu.Lock()
	g.health.goodbye(g.p2p.sentTo)
	g.settle()
	timer := time.NewTimer(bound)
	defer timer.Stop()
	for {
		g.mu.Lock()
		finished := g.health.bidden() || g.health.cause != nil
		g.mu.Unlock()
		if finished {
			return
		}
		select {
		case <-g.control.news:
		case <-timer.C:
			return
		}
	}
}

// bare strips the PeerError a transport wraps, whose rank the group adds again itself.
func bare(err error) error {
	if p, ok := err.(*PeerError); ok && p.Err != nil {
		return p.Err
	}
	return err
}
