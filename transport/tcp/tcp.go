// Package tcp connects the ranks of a world over a network: one full mesh, met at a coordinator.
//
// [Connect] opens, between every two ranks, one connection for collectives and one for control; point-to-point traffic
// and groups that are named in tags get theirs when they are first used, and [Transport.Subset] opens a sub-group's own.
// Between ranks of one host collectives use Unix-domain sockets where there are abstract ones.
//
// On Linux a Transport is also a transport.Exchanger: a collective runs in the caller's goroutine on non-blocking
// sockets, and a rank that has nothing to do sleeps in Go's own poller, holding no thread.
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

// A Transport is one rank of a world, or of a sub-group, connected over sockets.
type Transport struct {
	mesh     *mesh
	id       uint64 // 0: the world
	ranks    []int  // of the world, by rank in this group
	checksum bool
	table    *link.Table
	waiter   *waiter // of the table's engine

	mu       sync.Mutex
	closed   bool         // guarded by mu, like the next two
	children []*Transport // open sub-groups
	left     []time.Time  // by rank: when it was seen that the rank has left; zero: never
}

var (
	_ transport.Transport = (*Transport)(nil)
	_ transport.Subsetter = (*Transport)(nil)
	_ transport.Addresser = (*Transport)(nil)
)

// Connect meets the other ranks and returns once every rank is connected with every other: on all ranks, or, with an
// error, on none. The ranks of one host need no network beyond loopback, a world of one opens no socket.
func Connect(ctx context.Context, cfg Config) (*Transport, error) {
	var t *Transport
	m, err := join(ctx, cfg, func(ctx context.Context, m *mesh) (err error) {
		ranks := make([]int, m.size)
		for i := range ranks {
			ranks[i] = i
		}
		t, err = open(ctx, &Transport{mesh: m, ranks: ranks, checksum: cfg.Checksum})
		return err
	})
	if err != nil && t != nil {
		t.table.Close()
	}
	if err != nil {
		return nil, err
	}
	if t == nil || t.mesh != m {
		panic("BUG: tcp: joined without opening the mesh that was joined")
	}
	return t, nil
}

func (t *Transport) Rank() int { return t.table.Rank() }
func (t *Transport) Size() int { return t.table.Size() }

// Addr returns where a rank of this group listens.
func (t *Transport) Addr(rank int) string { return t.mesh.addr(t.ranks[rank]) }

// Send implements [transport.Transport].
func (t *Transport) Send(ctx context.Context, to int, tag transport.Tag, p []byte) error {
	return t.table.Send(ctx, to, tag, p)
}

// Recv implements [transport.Transport].
func (t *Transport) Recv(ctx context.Context, from int, tag transport.Tag, p []byte) error {
	return t.table.Recv(ctx, from, tag, p)
}

// Close ends every pending call with net.ErrClosed, sees to it that the peers get what was sent before, as far as they
// take it within a second, and closes the sub-groups that were made from this transport.
func (t *Transport) Close() error {
	t.mu.Lock()
	t.closed = true
	children := t.children
	t.children = nil
	t.mu.Unlock()
	var wg sync.WaitGroup
	for _, c := range children {
		wg.Go(func() { c.Close() })
	}
	t.table.Close()
	wg.Wait()
	if t.id == 0 {
		t.mesh.close()
	} else {
		t.mesh.forget(t.id)
	}
	return nil
}

// Subset opens the connections of a sub-group through the same mesh and returns when this rank has them all.
func (t *Transport) Subset(ctx context.Context, id uint64, ranks []int) (transport.Transport, error) {
	if err := link.CheckSubset(t.Rank(), t.Size(), id, ranks); err != nil {
		return nil, fmt.Errorf("tcp: %w", err)
	}
	world := make([]int, len(ranks))
	for i, r := range ranks {
		world[i] = t.ranks[r]
	}
	child, err := open(ctx, &Transport{mesh: t.mesh, id: id, ranks: world, checksum: t.checksum})
	if err != nil {
		t.mesh.forget(id)
		return nil, fmt.Errorf("tcp: sub-group %#x: %w", id, err)
	}
	t.mu.Lock()
	if !t.closed {
		t.children = append(t.children, child)
		t.mu.Unlock()
		return child, nil
	}
	t.mu.Unlock()
	child.Close()
	return nil, net.ErrClosed
}

var eager = []transport.Class{transport.Collective, transport.Control}

// open opens the connections that a group has from the start, all at once: the higher rank of a pair dials.
func open(ctx context.Context, t *Transport) (*Transport, error) {
	self := slices.Index(t.ranks, t.mesh.rank)
	t.left = make([]time.Time, len(t.ranks))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	conns := make([][transport.Control + 1]link.Conn, len(t.ranks))
	var wg sync.WaitGroup
	for peer := range t.ranks {
		for _, class := range eager {
			if peer == self {
				continue
			}
			wg.Go(func() {
				conn, err := t.connect(ctx, peer, class)
				if err != nil {
					cancel(err)
					return
				}
				conns[peer][class] = conn
			})
		}
	}
	wg.Wait()
	err := context.Cause(ctx)
	if err == nil {
		err = t.build(self, conns)
	}
	if err != nil {
		for _, c := range conns {
			for _, class := range eager {
				if c[class] != nil {
					c[class].Close()
				}
			}
		}
		return nil, err
	}
	return t, nil
}

// connect opens a connection that serves both directions.
func (t *Transport) connect(ctx context.Context, peer int, class transport.Class) (link.Conn, error) {
	with := t.mesh.await
	if t.mesh.rank > t.ranks[peer] {
		with = t.mesh.dial
	}
	conn, err := with(ctx, t.ranks[peer], class, t.id)
	if err == nil && class == transport.Collective {
		return collectiveConn(conn)
	}
	if err != nil {
		return nil, t.opening(peer, class, err)
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

// opening names the peer of a connection that could not be opened.
func (t *Transport) opening(peer int, class transport.Class, err error) error {
	var known *transport.PeerError
	if errors.As(err, &known) || errors.Is(err, net.ErrClosed) {
		return err
	}
	return &transport.PeerError{Rank: peer, Addr: t.mesh.addr(t.ranks[peer]), Err: fmt.Errorf("opening the %v connection: %w", class, err)}
}
