package tcp

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/goccl/goccl/transport"
)

// A mesh is one world: who its ranks are, where they listen, and the connections for sub-groups and point-to-point traffic
// that keep coming through the host's listeners.
type mesh struct {
	host       *host
	rank, size int
	epoch      uint64
	world      [16]byte // its name, the same on all ranks
	peers      []peerInfo
	nearby     netip.AddrPort // of the coordinator, where other ranks share its listener with rank 0; invalid on rank 0 itself
	zone       netip.Addr     // gives link-local addresses of others their zone
	life       context.Context
	end        context.CancelCauseFunc
	undo       func() // ends what was opened in a world that comes to nothing; nil: nothing was

	mu     sync.Mutex
	fail   func(error) // while the world is opened: ends that; guarded by mu, like the rest
	off    *callOff    // of a world that was called off before there was a fail to tell
	closed bool
	slots  map[streamKey]*slot
	parked map[uint32]int // connections per peer that nobody has taken
	ended  []uint64       // groups that have ended last: a connection for them comes too late
}

// endedGroups is how many ended groups are remembered. A dial is late by a handshake at most, so few are needed.
const endedGroups = 1 << 10

// A streamKey names a connection that a peer dials.
type streamKey struct {
	peer  uint32
	class transport.Class
	group uint64
}

// A slot is where a connection and the one who awaits it meet, whichever comes first.
type slot struct {
	conn    net.Conn      // parked
	taken   bool          // by await; a second connection is refused
	arrived chan struct{} // holds one token while conn is parked
}

const (
	maxDialling = 64  // connections being opened at a time
	maxParked   = 256 // connections per peer that nobody has taken: sub-groups whose members come at different times
)

// newMesh is the world that t lists, in which this process is rank. nearby is where it reached the coordinator, zone its own
// address on that way.
func newMesh(h *host, rank int, epoch uint64, t *table, nearby netip.AddrPort, zone netip.Addr) *mesh {
	m := &mesh{
		host: h, rank: rank, size: len(t.peers), epoch: epoch, world: t.world, peers: t.peers, nearby: nearby, zone: zone,
		slots:  make(map[streamKey]*slot),
		parked: make(map[uint32]int),
	}
	m.life, m.end = context.WithCancelCause(context.Background())
	return m
}

// addr is where rank listens, for messages.
func (m *mesh) addr(rank int) string {
	if p := &m.peers[rank]; !p.shared || !m.nearby.IsValid() {
		return p.tcp
	}
	return m.nearby.String()
}

// sameHost tells whether rank shares this rank's kernel and network.
func (m *mesh) sameHost(rank int) bool { return m.peers[rank].host == m.peers[m.rank].host }

// check tells whether another rank may have the connection that it wants.
func (m *mesh) check(h *hello) *rejection {
	switch {
	case h.to != uint32(m.rank):
		return refuse("you look for rank %d, this is rank %d", h.to, m.rank)
	case h.size != uint32(m.size):
		return refuse("sizes disagree: you say %d, rank %d says %d", h.size, m.rank, m.size)
	case h.from >= uint32(m.size) || h.from == uint32(m.rank):
		return refuse("rank %d does not connect to rank %d of %d", h.from, m.rank, m.size)
	case h.epoch != m.epoch:
		return refuse("epoch %d is not this one, %d", h.epoch, m.epoch)
	case h.class < transport.Collective || h.class > transport.Control:
		return refuse("class %d unknown", h.class)
	}
	return m.room(streamKey{h.from, h.class, h.group})
}

// room tells whether another connection may be parked under key.
func (m *mesh) room(key streamKey) *rejection {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.slots[key]
	switch {
	case m.closed:
		return refuse("rank %d is leaving", m.rank)
	case s != nil && s.taken:
		return refuse("rank %d has a %v connection for group %#x with rank %d already", m.rank, key.class, key.group, key.peer)
	case (s == nil || s.conn == nil) && m.parked[key.peer] >= maxParked:
		return &rejection{rejectBusy, fmt.Sprintf("rank %d holds %d connections of rank %d that nobody has taken", m.rank, maxParked, key.peer)}
	}
	return nil
}

// park keeps an accepted connection for await. A second one under the same key replaces a first that nobody has taken: the
// peer dials again only when it has given that one up.
func (m *mesh) park(conn net.Conn, h *hello) {
	key := streamKey{h.from, h.class, h.group}
	tune(conn, h.class, m.sameHost(int(h.from)))
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.slot(key)
	switch {
	case m.closed || s.taken || slices.Contains(m.ended, key.group):
		if !s.taken {
			delete(m.slots, key)
		}
		conn.Close()
		return
	case s.conn != nil:
		s.conn.Close()
	default:
		m.parked[key.peer]++
		s.arrived <- struct{}{}
	}
	s.conn = conn
}

// slot returns the slot of key; m.mu is held.
func (m *mesh) slot(key streamKey) *slot {
	s := m.slots[key]
	if s == nil {
		s = &slot{arrived: make(chan struct{}, 1)}
		m.slots[key] = s
	}
	return s
}

// await waits until peer has dialled us for (class, group) and returns that handshaked connection.
func (m *mesh) await(ctx context.Context, peer int, class transport.Class, group uint64) (net.Conn, error) {
	key := streamKey{uint32(peer), class, group}
	m.mu.Lock()
	s := m.slot(key)
	m.mu.Unlock()
	select {
	case <-s.arrived:
	case <-ctx.Done():
		return nil, m.peerError(peer, fmt.Errorf("no %v connection came: %w", class, context.Cause(ctx)))
	case <-m.life.Done():
		return nil, context.Cause(m.life)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.conn == nil { // close was faster
		return nil, net.ErrClosed
	}
	conn := s.conn
	s.conn, s.taken = nil, true
	m.parked[key.peer]--
	return conn, nil
}

// forget drops what is kept for a group that has ended: connections that nobody has taken, and the memory of the others.
func (m *mesh) forget(group uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.slots {
		if key.group == group {
			m.drop(key)
		}
	}
	m.ended = append(m.ended, group)
	m.ended = m.ended[max(0, len(m.ended)-endedGroups):]
}

// drop removes a slot; m.mu is held.
func (m *mesh) drop(key streamKey) {
	if s := m.slots[key]; s.conn != nil {
		s.conn.Close()
		s.conn = nil
		m.parked[key.peer]--
	}
	delete(m.slots, key)
}

// close ends every connection that nobody has taken and, with the host's last world, its listeners, and waits for the
// goroutines. It is idempotent.
func (m *mesh) close() {
	m.mu.Lock()
	m.closed = true
	for key := range m.slots {
		m.drop(key)
	}
	m.mu.Unlock()
	m.end(net.ErrClosed)
	m.host.leave(m)
}

// failing sets who hears that a world which is being opened comes to nothing, at once if that has been said already; nil:
// nobody, it is open.
func (m *mesh) failing(f func(error)) {
	m.mu.Lock()
	m.fail = f
	off := m.off
	m.mu.Unlock()
	if f != nil && off != nil {
		f(off.of(m))
	}
}

// calledOff ends the opening of the world, now or when it comes to it.
func (m *mesh) calledOff(c *callOff) {
	m.mu.Lock()
	fail := m.fail
	if fail == nil {
		m.off = c
	}
	m.mu.Unlock()
	if fail != nil {
		fail(c.of(m))
	}
}

// tableFor is the table for a process that has no part in it yet and has reached this rank by conn: what is only known as the
// place where the ranks met gets its address.
func (m *mesh) tableFor(conn net.Conn) table {
	t := table{world: m.world, peers: slices.Clone(m.peers)}
	for rank := range t.peers {
		p := &t.peers[rank]
		if !p.shared {
			continue
		}
		p.shared = false
		if p.tcp = m.addr(rank); rank == m.rank {
			p.tcp = conn.LocalAddr().String()
		}
	}
	return t
}

func (m *mesh) peerError(peer int, err error) error {
	return &transport.PeerError{Rank: peer, Addr: m.addr(peer), Err: err}
}
