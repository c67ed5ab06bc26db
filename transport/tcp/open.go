package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/internal/link"
)

var eager = []transport.Class{transport.Collective, transport.Control}

// An opening is a group on its way to its connections.
type opening struct {
	*Transport
	parent *Transport // what the group is made from: a member that leaves it will not come; nil for a world that starts
	former []int      // by rank in the group: its rank in the parent, -1 if it has none
	next   bool       // the group is the parent's next epoch, and errors are in its terms, not the parent's

	watch sync.WaitGroup
	mu    sync.Mutex
	conns [][transport.Control + 1]link.Conn // by rank; guarded by mu, like errs
	errs  [][transport.Control + 1]error
}

// open opens the connections that a group has from the start, all at once.
func open(ctx context.Context, o *opening) (*Transport, error) {
	t := o.Transport
	self := slices.Index(t.ranks, t.mesh.rank)
	t.left = make([]time.Time, len(t.ranks))
	t.life, t.end = context.WithCancelCause(context.Background())
	t.table = t.newTable(self)
	o.conns = make([][transport.Control + 1]link.Conn, len(t.ranks))
	o.errs = make([][transport.Control + 1]error, len(t.ranks))
	err := o.connectAll(ctx, self)
	if err == nil {
		err = o.build(ctx, self)
	}
	if err == nil {
		return t, nil
	}
	for _, c := range o.conns {
		if c[transport.Collective] != nil {
			c[transport.Collective].Close()
		}
	}
	t.abandon()
	return nil, err
}

// connectAll makes all connections or returns why one of them cannot be made.
func (o *opening) connectAll(ctx context.Context, self int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	for peer := range o.ranks {
		for _, class := range eager {
			if peer == self {
				continue
			}
			wg.Go(func() {
				conn, err := o.connect(ctx, peer, class)
				o.mu.Lock()
				o.conns[peer][class], o.errs[peer][class] = conn, err
				o.mu.Unlock()
				if err != nil {
					cancel(err)
					return
				}
				if class == transport.Control {
					o.table.Add(peer, class, conn)
					o.stay(ctx, peer, cancel)
				}
			})
		}
	}
	wg.Wait()
	err := context.Cause(ctx)
	cancel(nil)
	o.watch.Wait()
	if err != nil && !errors.As(err, new(*transport.PeerError)) && !errors.Is(err, net.ErrClosed) && !outOfDescriptors(err) {
		err = nameOne(o.errs, err) // the context ended first
	}
	return err
}

// nameOne returns the error of a rank that had not come, or else err.
func nameOne(errs [][transport.Control + 1]error, err error) error {
	for _, ofPeer := range errs {
		for _, class := range eager {
			if ofPeer[class] != nil {
				return ofPeer[class]
			}
		}
	}
	return err
}

// stay sees to it that the next epoch fails when a member that is connected already gives it up or dies: it may be what the
// others wait for.
func (o *opening) stay(ctx context.Context, peer int, fail func(error)) {
	if !o.next {
		return
	}
	o.watch.Go(func() {
		err := o.table.Hangup(ctx, peer)
		if known := (*transport.PeerError)(nil); errors.As(err, &known) {
			err = known.Err
		}
		if sleepUntil(ctx, time.Now().Add(hearsayGrace)); ctx.Err() != nil {
			return
		}
		// One that gives up because another has died is not the culprit.
		if other := o.absent(); other >= 0 {
			peer = other
		}
		fail(o.blame(peer, transport.Control, fmt.Errorf("it left before all were connected: %w", err)))
	})
}

// absent returns a member that has left the parent and has not come; -1: there is none.
func (o *opening) absent() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	for peer, rank := range o.former {
		if rank >= 0 && rank != o.parent.Rank() && o.conns[peer][transport.Control] == nil && o.parent.hasLeft(rank) {
			return peer
		}
	}
	return -1
}

// connect opens a connection that serves both directions: the higher rank of the world dials.
func (o *opening) connect(ctx context.Context, peer int, class transport.Class) (link.Conn, error) {
	rank := o.ranks[peer]
	if o.parent != nil && o.former[peer] >= 0 {
		var stop func()
		ctx, stop = o.parent.whilePresent(ctx, o.former[peer], arrivalGrace)
		defer stop()
	}
	with := o.mesh.await
	if o.mesh.rank > rank {
		with = o.mesh.dial
	}
	conn, err := with(ctx, rank, class, o.id)
	if r := (*rejection)(nil); o.next && errors.As(err, &r) && r.code == rejectLeft {
		sleepUntil(ctx, time.Now().Add(hearsayGrace)) // it says why, if it was not its own fault
	}
	switch {
	case err != nil && ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)): // else it says more than the cause
		return nil, o.blame(peer, class, context.Cause(ctx))
	case outOfDescriptors(err): // this rank's trouble, not the peer's
		return nil, fmt.Errorf("no way to rank %d: %w", peer, bare(err))
	case err != nil:
		return nil, o.blame(peer, class, err)
	case class == transport.Collective:
		return o.takeOver(ctx, conn)
	}
	return streamConn(conn)
}

// takeOver makes a collective's connection of one that has been opened.
func (o *opening) takeOver(ctx context.Context, conn net.Conn) (c link.Conn, err error) {
	err = o.mesh.host.despiteStrangers(ctx, func() (err error) {
		c, err = collectiveConn(conn)
		return err
	})
	if err != nil {
		conn.Close()
	}
	return c, err
}

// blame names the peer of a connection that could not be opened.
func (o *opening) blame(peer int, class transport.Class, err error) error {
	if o.parent == nil || o.next {
		return o.Transport.blame(peer, class, err)
	}
	return o.parent.blame(o.former[peer], class, err)
}

// newTable is the group's table, empty yet.
func (t *Transport) newTable(self int) *link.Table {
	peers := make([]link.Endpoint, len(t.ranks))
	for i, r := range t.ranks {
		peers[i] = link.Endpoint{Rank: i, Addr: t.mesh.addr(r), Local: t.mesh.sameHost(r)}
	}
	return link.NewTable(link.Config{
		Rank: self, Size: len(t.ranks), Peers: peers, Checksum: t.checksum, Open: t.openLater,
		Release: func(conns []link.Conn) {
			if t.waiter != nil { // it got so far
				t.waiter.close()
			}
			release(conns)
		},
	})
}

// build puts the connections to use.
func (o *opening) build(ctx context.Context, self int) error {
	collective := make([]link.Conn, len(o.ranks))
	for i := range o.conns {
		collective[i] = o.conns[i][transport.Collective]
	}
	err := o.mesh.host.despiteStrangers(ctx, func() (err error) {
		o.waiter, err = newWaiter(collective)
		return err
	})
	if err != nil {
		return err
	}
	for peer, conn := range collective {
		if peer != self {
			o.table.Add(peer, transport.Collective, conn)
		}
	}
	o.waiter.install(o.table)
	return nil
}

// blame names the peer of a connection that could not be opened, by its rank in this group.
func (t *Transport) blame(peer int, class transport.Class, err error) error {
	if errors.Is(err, net.ErrClosed) {
		return net.ErrClosed
	}
	var known *transport.PeerError // the mesh knows ranks of the world
	if errors.As(err, &known) {
		err = known.Err
	} else {
		err = fmt.Errorf("%v connection: %w", class, err)
	}
	return &transport.PeerError{Rank: peer, Addr: t.Addr(peer), Err: err}
}

// bare returns what a PeerError says happened, without the rank; another error as it is.
func bare(err error) error {
	if known := (*transport.PeerError)(nil); errors.As(err, &known) {
		return known.Err
	}
	return err
}
