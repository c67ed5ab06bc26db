package goccl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/goccl/goccl/transport"
)

// A plainBase is a transport that can open no connections for the next epoch, shared by the groups that follow each other
// over it. The last one closes it.
type plainBase struct {
	transport.Transport
	users atomic.Int64
}

// regroup opens the transport of the next epoch.
func (g *ProcessGroup) regroup(ctx context.Context, next transport.Epoch) (transport.Transport, error) {
	if r, ok := g.t.(transport.Regrouper); ok {
		return r.Regroup(ctx, next)
	}
	return newView(g.t, g.nextID(next.Number), next.Ranks), nil
}

// A nextOpening is the opening of the next group's transport.
type nextOpening struct {
	instance uint32
	ranks    []int
	cancel   context.CancelFunc
	done     chan struct{} // closed when it is over; then the next two are valid
	t        transport.Transport
	err      error
}

// openNext starts to open an attempt, after the last one has been given up.
func (g *ProcessGroup) openNext(ctx context.Context, v proposal, last *nextOpening) *nextOpening {
	ctx, cancel := context.WithCancel(ctx)
	o := &nextOpening{ranks: v.ranks, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(o.done)
		last.discard()
		o.t, o.err = g.regroup(ctx, transport.Epoch{Number: v.epoch, Ranks: v.ranks})
	}()
	return o
}

// discard ends an opening and closes what has come of it.
func (o *nextOpening) discard() {
	if o == nil {
		return
	}
	o.cancel()
	<-o.done
	if o.t != nil {
		o.t.Close()
	}
}

// succeed makes the group that follows this one, of a transport that regroup has returned. What follows a sub-group has the
// same parent. It sends heartbeats of its own, though, as something has gone wrong: a parent misses nobody whose
// connection it has lost.
func (g *ProcessGroup) succeed(t transport.Transport, epoch uint64, ranks []int) *ProcessGroup {
	next := newGroup(t, g.cfg, g.cfg.heartbeat())
	next.ranks, next.epoch, next.tried = ranks, epoch, epoch
	v, isView := t.(*view)
	switch {
	case isView:
		next.id = v.id
	case g.id != 0:
		next.id = g.nextID(epoch)
	}
	if g.parent != nil {
		next.parent, next.base = g.parent, g.base
		for _, r := range ranks {
			next.inside = append(next.inside, g.inside[r])
		}
	} else if isView {
		next.share(g.base)
	}
	next.start()
	return next
}

// nextID names the next epoch of a sub-group, or over a plain transport.
func (g *ProcessGroup) nextID(epoch uint64) uint64 { return childID(g.id, "epoch", epoch) }

// handDown gives this group's place under its parent, if it has one, to the next. That ends if the parent has.
func (g *ProcessGroup) handDown(next *ProcessGroup) error {
	if g.parent == nil {
		return nil
	}
	over := g.parent.children.opened(next.id, next)
	if over == nil {
		return nil
	}
	if !errors.Is(over, net.ErrClosed) {
		next.Abort(over)
	}
	next.Close()
	return orphaned(over)
}

// orphaned is the error of a Shrink whose group's parent has ended.
func orphaned(over error) error { return fmt.Errorf("goccl: shrink: the parent has ended: %w", over) }

// followedBy says that the group is over, except for what retire ends, and which one comes next. The caller holds g.mu.
func (g *ProcessGroup) followedBy(next *ProcessGroup) { g.closed, g.dumps.heir = true, next }

// share makes this group one of those that keep a plain transport open.
func (g *ProcessGroup) share(b *plainBase) {
	b.users.Add(1)
	g.base, g.keepsBase = b, true
}

// closeTransport closes what is this group's own.
func (g *ProcessGroup) closeTransport() error {
	if g.base == nil {
		return g.t.Close()
	}
	if v, ok := g.t.(*view); ok {
		v.Close()
	}
	if g.keepsBase && g.base.users.Add(-1) == 0 {
		return g.base.Close()
	}
	return nil
}

// retire ends a group that another one follows: without a word, since the ranks that are left know and the others are gone.
// Close does nothing from then on.
func (g *ProcessGroup) retire() {
	if !g.closing.CompareAndSwap(false, true) {
		return // Close is at it
	}
	g.endCalls()
	var wg sync.WaitGroup
	for _, c := range g.children.endAll(net.ErrClosed) {
		wg.Go(c.retire)
	}
	wg.Wait()
	g.shut()
	close(g.closedc)
}
