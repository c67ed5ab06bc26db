package tcp

import (
	"context"
	"errors"
	"net"

	"github.com/goccl/goccl/transport"
)

// A mesh is what start-up leaves behind: who the ranks are, where they listen, and this rank's own listener, on which
// connections for sub-groups and point-to-point traffic keep coming.
type mesh struct {
	rank, size int
}

// join meets the other ranks, calls open once the table of addresses is known, then tells the coordinator how that went and
// returns when every rank's verdict is in: nil on all ranks, or an error on all ranks.
func join(ctx context.Context, cfg Config, open func(ctx context.Context, m *mesh) error) (*mesh, error) {
	return nil, errors.New("tcp: join: under construction")
}

// dial opens and handshakes a new connection to peer for (class, group); it retries until ctx ends.
func (m *mesh) dial(ctx context.Context, peer int, class transport.Class, group uint64) (net.Conn, error) {
	return nil, net.ErrClosed
}

// await waits until peer has dialled us for (class, group) and returns that handshaked connection.
func (m *mesh) await(ctx context.Context, peer int, class transport.Class, group uint64) (net.Conn, error) {
	return nil, net.ErrClosed
}

// forget drops what is kept for a group that has ended: connections nobody awaited and the memory of those that were.
func (m *mesh) forget(group uint64) {}

// addr is where rank listens, for messages.
func (m *mesh) addr(rank int) string { return "" }

// sameHost tells whether rank shares this rank's kernel and network.
func (m *mesh) sameHost(rank int) bool { return false }

// close ends the listener and every connection that nobody has taken. It is idempotent and bounded.
func (m *mesh) close() {}
