package mem

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/internal/link"
)

// A rank is one member's transport in a world or sub-group.
type rank struct {
	world *world
	space *space
	table *link.Table
	gone  chan struct{} // closed by Close

	mu       sync.Mutex
	closed   bool
	children []*rank // guarded by mu
}

var (
	_ transport.Exchanger = (*rank)(nil)
	_ transport.Subsetter = (*rank)(nil)
	_ transport.Addresser = (*rank)(nil)
	_ transport.Regrouper = (*rank)(nil)
)

// newRank makes the transport of member i of a space.
func newRank(w *world, s *space, i int) *rank {
	r := &rank{world: w, space: s, gone: make(chan struct{})}
	peers := make([]link.Endpoint, len(s.ranks))
	for p := range peers {
		peers[p] = link.Endpoint{Rank: p, Addr: r.Addr(p), Local: true}
	}
	r.table = link.NewTable(link.Config{
		Rank: i, Size: len(s.ranks), Peers: peers, Checksum: w.options.Checksum,
		Open: func(_ context.Context, peer int, class transport.Class, group uint64, dir link.Direction) (link.Conn, error) {
			if dir == link.Outgoing {
				return &conn{out: s.pipe(w, pipeKey{i, peer, class, group})}, nil
			}
			return &conn{in: s.pipe(w, pipeKey{peer, i, class, group})}, nil
		},
		Release: func([]link.Conn) { s.leave(i) },
	})
	for p := range peers {
		for c := transport.Collective; p != i && c <= transport.Control; c++ {
			r.table.Add(p, c, s.conn(w, i, p, c))
		}
	}
	r.table.Ready(&waiter{changed: s.signals[i], woken: make(chan struct{})})
	return r
}

func (r *rank) Rank() int { return r.table.Rank() }
func (r *rank) Size() int { return r.table.Size() }

// Addr names a peer by its rank in the outermost world of the first epoch.
func (r *rank) Addr(peer int) string { return fmt.Sprintf("mem:%d", r.space.names[peer]) }

func (r *rank) Send(ctx context.Context, to int, tag transport.Tag, p []byte) error {
	return r.table.Send(ctx, to, tag, p)
}

func (r *rank) Recv(ctx context.Context, from int, tag transport.Tag, p []byte) error {
	return r.table.Recv(ctx, from, tag, p)
}

func (r *rank) Exchange(ctx context.Context, tag transport.Tag, steps []transport.Step) error {
	return r.table.Exchange(ctx, tag, steps)
}

// Subset enters the sub-group id without waiting for its other members.
func (r *rank) Subset(ctx context.Context, id uint64, ranks []int) (transport.Transport, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := link.CheckSubset(r.Rank(), r.Size(), id, ranks); err != nil {
		return nil, fmt.Errorf("mem: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, net.ErrClosed
	}
	s, err := r.world.enter(r.space, id, ranks, r.Rank())
	if err != nil {
		return nil, err
	}
	child := newRank(r.world, s, slices.Index(ranks, r.Rank()))
	r.children = append(r.children, child)
	return child, nil
}

// Close also closes the sub-groups that were made from this transport. The members of one that this rank has yet to enter
// see it as gone.
func (r *rank) Close() error {
	r.mu.Lock()
	if !r.closed {
		r.closed = true
		close(r.gone)
	}
	children := r.children
	r.children = nil
	r.mu.Unlock()
	for _, c := range children {
		c.Close()
	}
	r.table.Close()
	r.world.forgo(r.space, r.Rank())
	return nil
}
