package tcp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net"
	"slices"

	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/internal/link"
)

// Epoch implements [transport.Regrouper]. A sub-group is of its world's epoch.
func (t *Transport) Epoch() uint64 { return t.mesh.epoch }

// Waiting implements [transport.Regrouper]: the processes that came to one of this process's listeners after the start. One that
// has failed to come in more than once is passed over for a while, at most two minutes.
func (t *Transport) Waiting() [][]byte {
	if l := t.mesh.host.lobby; l != nil {
		return l.waiting()
	}
	return nil
}

// Regroup implements [transport.Regrouper]: it opens connections of the next epoch's own through the same listeners. The
// listeners are closed with the last transport that came from one Connect.
func (t *Transport) Regroup(ctx context.Context, next transport.Epoch) (transport.Transport, error) {
	if err := link.CheckEpoch(t.Rank(), t.Size(), t.Epoch(), next); err != nil {
		return nil, fmt.Errorf("tcp: %w", err)
	}
	list, err := t.nextTable(&next)
	if err != nil {
		return nil, fmt.Errorf("tcp: regroup: %w", err)
	}
	if !t.beginRegroup() {
		return nil, net.ErrClosed
	}
	defer t.regroups.Done()
	m := newMesh(t.mesh.host, slices.Index(next.Ranks, t.Rank()), next.Number, list, t.mesh.nearby, t.mesh.zone)
	if err := m.host.enter(m); err != nil {
		return nil, fmt.Errorf("tcp: regroup: %w", err)
	}
	child, err := t.openNext(ctx, m, &next)
	if err != nil {
		m.close()
		if t.life.Err() != nil {
			return nil, net.ErrClosed
		}
		if c := m.verdict(ctx, err, func(r int) bool { return r < len(next.Ranks) && t.hasLeft(next.Ranks[r]) }); c != nil {
			m.callOff(c)
		}
		return nil, fmt.Errorf("tcp: epoch %d: %w", next.Number, err)
	}
	return child, nil
}

// openNext brings in the newcomers that wait at this rank and opens the connections.
func (t *Transport) openNext(ctx context.Context, m *mesh, next *transport.Epoch) (*Transport, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(t.life, func() { cancel(net.ErrClosed) })()
	m.failing(cancel)
	defer m.failing(nil)
	former := slices.Clone(next.Ranks)
	for range next.Newcomers {
		former = append(former, -1)
	}
	var guests party
	if l := m.host.lobby; l != nil {
		guests = l.invite(m, next.Newcomers, func(rank int, err error) { cancel(m.peerError(rank, err)) })
	}
	child, err := open(ctx, &opening{Transport: worldOf(m, t.checksum), parent: t, former: former, next: true})
	guests.conclude(err == nil)
	return child, err
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

// nextTable lists the world that next describes.
func (t *Transport) nextTable(next *transport.Epoch) (*table, error) {
	ranks := make([]int, len(next.Ranks)) // of the old world
	list := &table{}
	for i, r := range next.Ranks {
		ranks[i] = t.ranks[r]
		list.peers = append(list.peers, t.mesh.peers[ranks[i]])
	}
	for i, n := range next.Newcomers {
		_, info, err := readTicket(n)
		if err != nil {
			return nil, fmt.Errorf("newcomer %d: %w", i, err)
		}
		if slices.ContainsFunc(next.Newcomers[:i], func(other []byte) bool { return bytes.Equal(n, other) }) {
			return nil, fmt.Errorf("newcomer %d (%s) is twice in the list", i, info.tcp)
		}
		list.peers = append(list.peers, info)
	}
	if len(list.peers) > MaxSize {
		return nil, fmt.Errorf("%d ranks, at most %d allowed", len(list.peers), MaxSize)
	}
	list.world = worldName(t.mesh.world, t.id, next, ranks)
	return list, nil
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
