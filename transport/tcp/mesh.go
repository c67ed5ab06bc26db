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

// A mesh is what start-up leaves behind: who the ranks are, where they listen, and this rank's own listeners, on which
// connections for sub-groups and point-to-point traffic keep coming.
type mesh struct {
	rank, size int
	runID      string
	link       string
	net        *network
	dialling   chan struct{} // limits how many connections are being opened
	life       context.Context
	end        context.CancelCauseFunc
	srv        *server

	// Written by begin before begun is closed, constant afterwards.
	begun  chan struct{}
	world  [16]byte
	peers  []peerInfo
	nearby netip.AddrPort // of the coordinator, where other ranks share its listener with rank 0; invalid on rank 0 itself
	zone   netip.Addr     // gives link-local addresses of others their zone

	mu     sync.Mutex
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

func newMesh(p *plan) *mesh {
	m := &mesh{
		rank: p.Rank, size: p.Size, runID: p.RunID, link: p.Link, net: p.net,
		dialling: make(chan struct{}, maxDialling),
		begun:    make(chan struct{}),
		slots:    make(map[streamKey]*slot),
		parked:   make(map[uint32]int),
	}
	m.life, m.end = context.WithCancelCause(context.Background())
	m.srv = newServer(roleRank, p.Logger, map[purpose]handler{purposeLink: m})
	return m
}

// serve begins to accept on the coordinator's listener, if this rank has one. fail hears when accepting does not work.
func (m *mesh) serve(c *coordinator, ln net.Listener, fail func(error)) {
	m.srv.fault = fail
	if c != nil {
		m.srv.handlers[purposeRegister] = c
		m.srv.serve(ln)
	}
}

// begin takes the table; connections of other ranks are looked at from now on. nearby is where this rank reached the
// coordinator, zone its own address on that way.
func (m *mesh) begin(t *table, nearby netip.AddrPort, zone netip.Addr) {
	m.world, m.peers, m.nearby, m.zone = t.world, t.peers, nearby, zone
	close(m.begun)
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

// check implements handler for connections of other ranks.
func (m *mesh) check(ctx context.Context, h *hello, conn net.Conn) *rejection {
	select {
	case <-m.begun: // a peer may have its table a moment earlier
	case <-ctx.Done():
		return &rejection{rejectBusy, fmt.Sprintf("rank %d does not know its peers yet", m.rank)}
	}
	switch {
	case h.runID != m.runID:
		return refuse("run id differs: you belong to %q, rank %d to %q", h.runID, m.rank, m.runID)
	case h.to != uint32(m.rank):
		return refuse("you look for rank %d, this is rank %d", h.to, m.rank)
	case h.size != uint32(m.size):
		return refuse("sizes disagree: you say %d, rank %d says %d", h.size, m.rank, m.size)
	case h.world != m.world:
		return refuse("you belong to another start of this run than rank %d", m.rank)
	case h.from >= uint32(m.size) || h.from == uint32(m.rank):
		return refuse("rank %d does not connect to rank %d of %d", h.from, m.rank, m.size)
	case h.epoch != 0:
		return refuse("epoch %d is not this one, 0", h.epoch)
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

// take implements handler: it parks the connection for await. A second one under the same key replaces a first that nobody
// has taken: the peer dials again only when it has given that one up.
func (m *mesh) take(conn net.Conn, h *hello, settled func()) error {
	settled()
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
		return nil
	case s.conn != nil:
		s.conn.Close()
	default:
		m.parked[key.peer]++
		s.arrived <- struct{}{}
	}
	s.conn = conn
	return nil
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

// skew implements handler: the stranger has been refused, and the mesh has no use for more.
func (m *mesh) skew(*hello, *versionError, string) {}

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

// close ends the listeners and every connection that nobody has taken, and waits for the goroutines. It is idempotent.
func (m *mesh) close() {
	m.mu.Lock()
	m.closed = true
	for key := range m.slots {
		m.drop(key)
	}
	m.mu.Unlock()
	m.end(net.ErrClosed)
	m.srv.close()
}

func (m *mesh) peerError(peer int, err error) error {
	return &transport.PeerError{Rank: peer, Addr: m.addr(peer), Err: err}
}
