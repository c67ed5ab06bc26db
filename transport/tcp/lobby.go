package tcp

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"
)

const (
	maxLobby   = 64  // processes that wait at one rank
	maxGone    = 256 // tickets of those that have gone which are remembered
	setRunID   = "; set RunID to wait for admission"
	lobbyWrite = 5 * time.Second // for a newcomer to take a message
)

// A lobby is where processes wait that come to a run which has begun, until a Regroup takes them in.
type lobby struct {
	host    *host
	options []option
	own     peerInfo
	log     *slog.Logger

	mu     sync.Mutex
	closed bool // guarded by mu, like the rest, and the state of all newcomers
	inside []*newcomer
	gone   [][ticketSize]byte // those that hung up last, and were not admitted
}

// check tells whether one more may wait.
func (l *lobby) check(h *hello) *rejection {
	switch {
	case h.runID != l.host.runID:
		return refuse("run id differs: %s belongs to %q, the run at %s to %q", h.caller(), h.runID, l.own.tcp, l.host.runID)
	case l.host.runID == "":
		return refuse("%s", l.begun(h))
	}
	return l.room()
}

// begun tells a rank that cannot wait why it is not wanted.
func (l *lobby) begun(h *hello) string {
	m := l.host.latest()
	if m == nil {
		return "this rank is leaving"
	}
	if int64(h.from) < int64(m.size) {
		return fmt.Sprintf("this run has begun already: rank %d is at %s", h.from, m.addr(int(h.from))) + setRunID
	}
	return fmt.Sprintf("this run has begun already, with %d ranks", m.size) + setRunID
}

func (l *lobby) room() *rejection {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return &rejection{rejectBusy, "this rank is leaving"}
	case len(l.inside) >= maxLobby:
		return &rejection{rejectBusy, fmt.Sprintf("%d processes wait here already", maxLobby)}
	}
	return nil
}

// refusal says why a process that has registered cannot be admitted ever.
func (l *lobby) refusal(h *hello, reg *registration, addr string) *outcome {
	switch {
	case reg.problem != "":
		return failed(nil, "%s", reg.problem)
	case l.host.runID == "": // check was the coordinator's, and the run has begun since
		return failed(nil, "%s", l.begun(h))
	}
	if key, its, ours, differ := compareOptions(reg.options, l.options); differ {
		return failed(nil, "option %q differs: this process (%s) has %s, the run, which has begun, has %s (at %s)", key, addr, its, ours, l.own.tcp)
	}
	host, _, err := net.SplitHostPort(reg.info.tcp)
	switch {
	case err != nil || reg.info.shared:
		return failed(nil, "this process advertises %q, where nobody can dial it", reg.info.tcp)
	case loopback(host) && reg.info.host != l.own.host:
		return failed(nil, "this process advertises the loopback address %s, which the run's rank at %s on another host cannot reach: set Listen, Advertise or Interface",
			reg.info.tcp, l.own.tcp)
	}
	return nil
}

// take implements handler: it holds a newcomer until that hangs up.
func (l *lobby) take(conn net.Conn, h *hello, settled func()) error {
	defer conn.Close()
	reg, err := readRegistration(conn)
	if err != nil {
		return err
	}
	settled()
	dropUnanswered(conn, lobbyPatience) // it is reminded every second
	o := l.refusal(h, reg, peerName(conn))
	if o == nil {
		var nonce [ticketSize]byte
		rand.Read(nonce[:])
		n := &newcomer{lobby: l, conn: conn, nonce: nonce, ticket: newTicket(nonce, &reg.info), left: make(chan struct{})}
		if l.add(n) {
			l.log.Info("tcp: a process waits to be admitted", "from", peerName(conn), "as", h.caller())
			n.serve()
		}
		return nil // closed or filled up since check: who is hung up on tries again, elsewhere
	}
	sendOff(conn, kindVerdict, o.payload())
	return nil
}

// note is what those who wait hear.
func (l *lobby) note() []byte {
	var n lobbyNote
	if m := l.host.latest(); m != nil {
		n = lobbyNote{m.size, m.epoch}
	}
	return message(kindLobby, n.payload())
}

func (l *lobby) add(n *newcomer) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.inside) >= maxLobby {
		return false
	}
	l.inside = append(l.inside, n)
	return true
}

// remove ends what is known of a newcomer that has hung up.
func (l *lobby) remove(n *newcomer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inside = slices.DeleteFunc(l.inside, func(other *newcomer) bool { return other == n })
	if !n.admitted {
		l.gone = append(l.gone, n.nonce)
		l.gone = l.gone[max(0, len(l.gone)-maxGone):]
	}
}

// waiting returns the tickets of those who wait, in the order in which they came, but for who has lately failed to come in.
func (l *lobby) waiting() [][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	var list [][]byte
	for _, n := range l.inside {
		if n.invited == nil && !n.admitted && !now.Before(n.notAgain) {
			list = append(list, slices.Clone(n.ticket))
		}
	}
	return list
}

// find returns the newcomer of a ticket, or whether it was here and has gone.
func (l *lobby) find(nonce [ticketSize]byte) (n *newcomer, gone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.inside {
		if n.nonce == nonce {
			return n, false
		}
	}
	return nil, slices.Contains(l.gone, nonce)
}

// close sends everybody away. Those who are admitted have a moment to read so.
func (l *lobby) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, n := range l.inside {
		if n.admitted {
			n.conn.SetReadDeadline(time.Now().Add(verdictPatience))
		} else {
			n.conn.Close()
		}
	}
}

// A party is the newcomers of a next epoch that wait at this rank.
type party []*newcomer

// invite sends newcomers their places in m, in which they come last. fail hears of those who will not come.
func (l *lobby) invite(m *mesh, tickets [][]byte, fail func(rank int, err error)) (p party) {
	for i, t := range tickets {
		rank := m.size - len(tickets) + i
		nonce, _, _ := readTicket(t) // checked before
		n, gone := l.find(nonce)
		switch {
		case gone:
			fail(rank, errors.New("it has gone"))
		case n == nil: // it waits at another rank
		case n.invite(&admission{m.epoch, rank, m.tableFor(n.conn)}, func(err error) { fail(rank, err) }):
			p = append(p, n)
		default:
			fail(rank, errors.New("it is being admitted already"))
		}
	}
	return p
}

// conclude tells them how it went.
func (p party) conclude(in bool) {
	for _, n := range p {
		n.conclude(in)
	}
}
