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
	"net"
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

	life context.Context // ended, with net.ErrClosed, by Close
	end  context.CancelCauseFunc

	regroups sync.WaitGroup // one per Regroup that runs; added to under mu while not closed

	mu       sync.Mutex
	closed   bool         // guarded by mu, like the next two
	children []*Transport // open sub-groups
	left     []time.Time  // by rank: when it was seen that the rank has left; zero: never
}

var (
	_ transport.Transport = (*Transport)(nil)
	_ transport.Subsetter = (*Transport)(nil)
	_ transport.Addresser = (*Transport)(nil)
	_ transport.Regrouper = (*Transport)(nil)
)

// Connect meets the other ranks and returns once every rank is connected with every other: on all ranks, or, with an
// error, on none. The ranks of one host need no network beyond loopback, a world of one opens no socket.
//
// Where a run with the same RunID, which is not empty, has begun already, Connect waits until its ranks admit this process by
// [Transport.Regroup]. The transport is of a later epoch then, and has another rank and size than cfg says.
func Connect(ctx context.Context, cfg Config) (*Transport, error) {
	var t *Transport
	m, err := join(ctx, cfg, func(ctx context.Context, m *mesh) (err error) {
		m.undo = func() {
			if t != nil {
				t.abandon()
				t = nil
			}
		}
		t, err = open(ctx, &opening{Transport: worldOf(m, cfg.Checksum), next: m.epoch > 0})
		return err
	})
	if err != nil && t != nil {
		t.abandon()
	}
	if err != nil {
		return nil, err
	}
	if t == nil || t.mesh != m {
		panic("BUG: tcp: joined without opening the mesh that was joined")
	}
	return t, nil
}

// abandon closes the connections of a transport that nobody uses yet.
func (t *Transport) abandon() {
	t.end(net.ErrClosed)
	t.table.Close()
}

// worldOf is the transport of a whole world, yet to be opened.
func worldOf(m *mesh, checksum bool) *Transport {
	ranks := make([]int, m.size)
	for i := range ranks {
		ranks[i] = i
	}
	return &Transport{mesh: m, ranks: ranks, checksum: checksum}
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
	t.end(net.ErrClosed)
	t.regroups.Wait()
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
