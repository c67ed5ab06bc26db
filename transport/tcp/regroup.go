package tcp

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/internal/link"
)

// Epoch implements [transport.Regrouper]. A sub-group is of its world's epoch.
func (t *Transport) Epoch() uint64 { return t.mesh.epoch }

// Waiting implements [transport.Regrouper].
func (t *Transport) Waiting() [][]byte { return nil }

// Regroup implements [transport.Regrouper]: it opens connections of the next epoch's own through the same listeners. The
// listeners are closed with the last transport that came from one Connect.
func (t *Transport) Regroup(ctx context.Context, next transport.Epoch) (transport.Transport, error) {
	if err := link.CheckEpoch(t.Rank(), t.Size(), t.Epoch(), next); err != nil {
		return nil, fmt.Errorf("tcp: %w", err)
	}
	if len(next.Newcomers) > 0 {
		return nil, fmt.Errorf("tcp: regroup with newcomers: %w", errors.ErrUnsupported)
	}
	if !t.beginRegroup() {
		return nil, net.ErrClosed
	}
	defer t.regroups.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(t.life, func() { cancel(net.ErrClosed) })()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	m := t.nextWorld(&next)
	if err := m.host.enter(m); err != nil {
		return nil, fmt.Errorf("tcp: regroup: %w", err)
	}
	child, err := open(ctx, &opening{Transport: worldOf(m, t.checksum), parent: t, former: next.Ranks, next: true})
	if err != nil {
		m.close()
		if errors.Is(err, net.ErrClosed) {
			return nil, net.ErrClosed
		}
		return nil, fmt.Errorf("tcp: epoch %d: %w", next.Number, err)
	}
	return child, nil
}

// beginRegroup makes Close wait for a Regroup; false: it is too late for one.
func (t *Transport) beginRegroup() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.regroups.Add(1)
	return true
}

// nextWorld is the world that next describes, in which this rank's place is that in next.Ranks.
func (t *Transport) nextWorld(next *transport.Epoch) *mesh {
	old := t.mesh
	ranks := make([]int, len(next.Ranks)) // of the old world
	list := &table{peers: make([]peerInfo, len(next.Ranks))}
	for i, r := range next.Ranks {
		ranks[i] = t.ranks[r]
		list.peers[i] = old.peers[ranks[i]]
	}
	list.world = worldName(old.world, t.id, next, ranks)
	return newMesh(old.host, slices.Index(next.Ranks, t.Rank()), next.Number, list, old.nearby, old.zone)
}

// worldName is what the members of the next epoch call it: the same on all, without a word between them, and different
// when anything in it does.
func worldName(old [16]byte, group uint64, next *transport.Epoch, ranks []int) (name [16]byte) {
	b := append([]byte("goccl next epoch\x00"), old[:]...)
	b = binary.LittleEndian.AppendUint64(b, group)
	b = binary.LittleEndian.AppendUint64(b, next.Number)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(ranks)))
	for _, r := range ranks {
		b = binary.LittleEndian.AppendUint32(b, uint32(r))
	}
	for _, n := range next.Newcomers {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(n)))
		b = append(b, n...)
	}
	sum := sha256.Sum256(b)
	copy(name[:], sum[:])
	return name
}
