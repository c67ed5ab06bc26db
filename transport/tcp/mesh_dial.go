package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/goccl/goccl/transport"
)

// refusedPatience is how long a peer may refuse connections: it listened before it was in the table, so it has gone.
const refusedPatience = 2 * time.Second

// dial opens and handshakes a new connection to peer for (class, group). What may pass (resets, a full queue) is tried again
// until ctx ends.
func (m *mesh) dial(ctx context.Context, peer int, class transport.Class, group uint64) (net.Conn, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(m.life, func() { cancel(net.ErrClosed) })()
	began := time.Now()
	var wait backoff
	var last error
	for {
		conn, err := m.tryDial(ctx, peer, class, group)
		if err == nil {
			return conn, nil
		}
		gone := errors.Is(err, syscall.ECONNREFUSED) && time.Since(began) > refusedPatience
		strangers := outOfDescriptors(err) && m.host.srv.shed() // they had what was wanted here
		if lasting(err) && !strangers || gone {
			return nil, m.peerError(peer, fmt.Errorf("%v connection: %w", class, explain(err)))
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		if ended := wait.sleep(ctx); ended != nil {
			if errors.Is(ended, net.ErrClosed) {
				return nil, net.ErrClosed
			}
			return nil, m.peerError(peer, fmt.Errorf("%v connection: %w (last: %v)", class, ended, last))
		}
	}
}

func (m *mesh) tryDial(ctx context.Context, peer int, class transport.Class, group uint64) (net.Conn, error) {
	select {
	case m.host.dialling <- struct{}{}:
		defer func() { <-m.host.dialling }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	network, address, err := m.way(peer, class)
	if err != nil {
		return nil, err
	}
	conn, err := m.host.net.dial(ctx, network, address)
	if network == "unix" && m.host.link != "unix" && lacking(err) {
		conn, err = m.host.net.dial(ctx, "tcp", m.tcpAddress(peer))
	}
	if err != nil {
		return nil, err
	}
	if conn, err = m.introduceOn(ctx, conn, peer, &hello{purpose: purposeLink, class: class, group: group}); err != nil {
		return nil, err
	}
	tune(conn, class, m.sameHost(peer))
	return conn, nil
}

// introduceOn says what a dialled connection to peer is for: h is filled with what this world's ranks say to each other.
func (m *mesh) introduceOn(ctx context.Context, conn net.Conn, peer int, h *hello) (net.Conn, error) {
	h.world, h.epoch, h.runID = m.world, m.epoch, m.host.runID
	h.from, h.to, h.size = uint32(m.rank), uint32(peer), uint32(m.size)
	return m.host.cred.introduce(ctx, conn, m.name(peer), h, nil)
}

// way is how to reach peer for a class.
func (m *mesh) way(peer int, class transport.Class) (network, address string, err error) {
	p := &m.peers[peer]
	if class == transport.Collective && m.host.link != "tcp" {
		if m.sameHost(peer) && p.unix != "" && m.peers[m.rank].unix != "" {
			return "unix", p.unix, nil
		}
		if m.host.link == "unix" {
			return "", "", &ConfigError{Field: "Link", Value: m.host.link,
				Reason: fmt.Sprintf("rank %d (%s) and rank %d (%s) share no Unix-domain sockets", m.rank, m.addr(m.rank), peer, m.addr(peer))}
		}
	}
	address = m.tcpAddress(peer)
	if at, err := netip.ParseAddrPort(address); err == nil && at.Addr().Is6() && at.Addr().IsLinkLocalUnicast() && at.Addr().Zone() == "" {
		return "", "", fmt.Errorf("%w %s, and this rank, which met the coordinator from %v, cannot tell by which interface: set Listen, Advertise or Interface there",
			errNoZone, address, m.zone)
	}
	return "tcp", address, nil
}

// errNoZone is the fault of an address that names an interface only together with a zone, for a rank that has none to give it.
var errNoZone = errors.New("it advertises the link-local address")

// lacking tells whether a Unix-domain socket cannot be reached from here although the host looks the same: a sandbox forbids
// it, or the host is a clone of a running one.
func lacking(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM)
}

// name is what peer's certificate must be for, whichever way it is reached.
func (m *mesh) name(peer int) string {
	p := &m.peers[peer]
	if p.shared && m.host.met != "" {
		return m.host.met
	}
	host, _, _ := net.SplitHostPort(m.tcpAddress(peer))
	return host
}

func (m *mesh) tcpAddress(peer int) string {
	p := &m.peers[peer]
	if p.shared {
		return m.nearby.String()
	}
	if at, err := netip.ParseAddrPort(p.tcp); err == nil {
		return netip.AddrPortFrom(rezone(at.Addr(), m.zone), at.Port()).String()
	}
	return p.tcp // a name
}
