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

// open opens the connections that a group has from the start, all at once. parent is what a sub-group is made from; errors
// are in its terms.
func open(ctx context.Context, t, parent *Transport) (*Transport, error) {
	self := slices.Index(t.ranks, t.mesh.rank)
	t.left = make([]time.Time, len(t.ranks))
	t.life, t.end = context.WithCancelCause(context.Background())
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	conns := make([][transport.Control + 1]link.Conn, len(t.ranks))
	errs := make([][transport.Control + 1]error, len(t.ranks))
	var wg sync.WaitGroup
	for peer := range t.ranks {
		for _, class := range eager {
			if peer == self {
				continue
			}
			wg.Go(func() {
				conn, err := t.connect(ctx, peer, class, parent)
				if err != nil {
					errs[peer][class] = err
					cancel(err)
					return
				}
				conns[peer][class] = conn
			})
		}
	}
	wg.Wait()
	err := context.Cause(ctx)
	if err != nil && !errors.As(err, new(*transport.PeerError)) && !errors.Is(err, net.ErrClosed) {
		err = nameOne(errs, err) // the context ended first
	}
	if err == nil {
		err = t.build(self, conns)
	}
	if err == nil {
		return t, nil
	}
	for _, c := range conns {
		for _, class := range eager {
			if c[class] != nil {
				c[class].Close()
			}
		}
	}
	return nil, err
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

// connect opens a connection that serves both directions: the higher rank of the world dials.
func (t *Transport) connect(ctx context.Context, peer int, class transport.Class, parent *Transport) (link.Conn, error) {
	rank := t.ranks[peer]
	as := func(err error) error { return t.opening(peer, class, err) }
	if parent != nil {
		peer := slices.Index(parent.ranks, rank)
		as = func(err error) error { return parent.opening(peer, class, err) }
		var stop func()
		ctx, stop = parent.whilePresent(ctx, peer, arrivalGrace)
		defer stop()
	}
	with := t.mesh.await
	if t.mesh.rank > rank {
		with = t.mesh.dial
	}
	conn, err := with(ctx, rank, class, t.id)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, as(context.Cause(ctx))
	case err != nil:
		return nil, as(err)
	case class == transport.Collective:
		return collectiveConn(conn)
	}
	return streamConn(conn)
}

// build puts the connections to use.
func (t *Transport) build(self int, conns [][transport.Control + 1]link.Conn) error {
	peers := make([]link.Endpoint, len(t.ranks))
	collective := make([]link.Conn, len(t.ranks))
	for i, r := range t.ranks {
		peers[i] = link.Endpoint{Rank: i, Addr: t.mesh.addr(r), Local: t.mesh.sameHost(r)}
		collective[i] = conns[i][transport.Collective]
	}
	var err error
	if t.waiter, err = newWaiter(collective); err != nil {
		return err
	}
	t.table = link.NewTable(link.Config{
		Rank: self, Size: len(t.ranks), Peers: peers, Checksum: t.checksum, Open: t.openLater,
		Release: func(conns []link.Conn) {
			t.waiter.close()
			release(conns)
		},
	})
	for peer := range conns {
		for _, class := range eager {
			if peer != self {
				t.table.Add(peer, class, conns[peer][class])
			}
		}
	}
	t.waiter.install(t.table)
	return nil
}

// opening names the peer of a connection that could not be opened, by its rank in this group.
func (t *Transport) opening(peer int, class transport.Class, err error) error {
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
