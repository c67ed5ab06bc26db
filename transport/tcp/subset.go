package tcp

import (
	"context"
	"fmt"
	"net"
	"slices"

	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/internal/link"
)

// Subset opens the connections of a sub-group through the same mesh and returns when this rank has them all. It fails when
// a member leaves meanwhile; PeerErrors name ranks of this transport.
func (t *Transport) Subset(ctx context.Context, id uint64, ranks []int) (transport.Transport, error) {
	if err := link.CheckSubset(t.Rank(), t.Size(), id, ranks); err != nil {
		return nil, fmt.Errorf("tcp: %w", err)
	}
	if err := context.Cause(t.life); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(t.life, func() { cancel(net.ErrClosed) })()
	world := make([]int, len(ranks))
	for i, r := range ranks {
		world[i] = t.ranks[r]
	}
	child, err := open(ctx, &opening{
		Transport: &Transport{mesh: t.mesh, id: id, ranks: world, checksum: t.checksum}, parent: t, former: ranks,
	})
	if err != nil {
		t.mesh.forget(id)
		return nil, fmt.Errorf("tcp: sub-group %#x: %w", id, err)
	}
	if !t.adopt(child) {
		child.Close()
		return nil, net.ErrClosed
	}
	return child, nil
}

// adopt makes Close close a sub-group too; false: it is too late.
func (t *Transport) adopt(child *Transport) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.children = slices.DeleteFunc(t.children, func(c *Transport) bool { return c.life.Err() != nil }) // those closed already
	t.children = append(t.children, child)
	return true
}
