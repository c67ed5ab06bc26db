package tcp

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"
)

// maxPending bounds the connections that have not proved themselves. A newcomer beyond it pushes out the oldest: a rank needs
// a few round trips and dials again when it was pushed out, a silent stranger would sit there for seconds.
const maxPending = 512

// pendingLimit is maxPending, or less where that would take a good part of the descriptors that this process may have.
func pendingLimit() int {
	if n := descriptorLimit(); n > 0 {
		return int(min(maxPending, max(n/8, 16)))
	}
	return maxPending
}

// A handler serves the connections of one purpose.
type handler interface {
	// check decides about a proved connection; it may wait until ctx ends.
	check(ctx context.Context, h *hello, conn net.Conn) *rejection
	// take owns an accepted connection. It runs in the connection's goroutine, and calls settled once it has heard enough to keep
	// the connection: until then it counts as pending, under the handshake's deadline. An error is logged as a stranger's.
	take(conn net.Conn, h *hello, settled func()) error
	// refused hears of a caller that was turned away before it had proved anything, for a reason that a rank might give. h is
	// what its hello said, up to the run id; nil: it did not get so far, and whoever serves registrations hears of it.
	refused(h *hello, why error, from string)
}

// A server accepts connections, takes each through the handshake under a deadline and hands it to the handler of its purpose.
// Nothing that a stranger does reaches a handler.
type server struct {
	cred      *credentials
	handlers  map[purpose]handler
	strangers *strangers
	most      int           // pending connections
	patience  time.Duration // with a connection that does not prove itself
	life      context.Context
	end       context.CancelFunc
	wg        sync.WaitGroup // one per listener and connection

	mu        sync.Mutex
	role      role
	fault     func(error) // hears of a failing accept; may be nil
	closed    bool
	listeners []net.Listener
	pending   list.List // of net.Conn, oldest first
}

func newServer(c *credentials, as role, log *slog.Logger, handlers map[purpose]handler) *server {
	s := &server{cred: c, role: as, handlers: handlers, strangers: &strangers{log: log}, most: pendingLimit(), patience: handshakeTimeout}
	s.life, s.end = context.WithCancel(context.Background())
	return s
}

// as is who this server is to those who call.
func (s *server) as() role {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.role
}

func (s *server) become(r role) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.role = r
}

func (s *server) hear(fault func(error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// serve accepts on ln, which it owns, until close.
func (s *server) serve(ln net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		ln.Close()
		return
	}
	s.listeners = append(s.listeners, ln)
	s.wg.Add(1)
	go s.accept(ln)
}

// close drops listeners and pending connections and waits for the goroutines. Handlers end the connections they took first.
func (s *server) close() {
	s.mu.Lock()
	s.closed = true
	for _, ln := range s.listeners {
		ln.Close()
	}
	s.listeners = nil
	for e := s.pending.Front(); e != nil; e = e.Next() {
		e.Value.(net.Conn).Close()
	}
	s.mu.Unlock()
	s.end()
	s.wg.Wait()
	s.strangers.flush()
}

func (s *server) accept(ln net.Listener) {
	defer s.wg.Done()
	var wait backoff
	for {
		conn, err := ln.Accept()
		if err == nil {
			wait = backoff{}
			s.admit(conn)
			continue
		}
		if errors.Is(err, net.ErrClosed) || s.life.Err() != nil {
			return
		}
		// Out of descriptors, most likely: when it is not strangers who hold them, there is nothing to do but to try again later.
		s.mu.Lock()
		fault := s.fault
		s.mu.Unlock()
		if fault != nil && !(outOfDescriptors(err) && s.shed()) {
			fault(fmt.Errorf("accept at %s: %w", ln.Addr(), explain(err)))
		}
		s.strangers.report(ln.Addr().String(), err)
		if wait.sleep(s.life) != nil {
			return
		}
	}
}

// admit starts the handshake of one connection.
func (s *server) admit(conn net.Conn) {
	conn.SetDeadline(time.Now().Add(s.patience))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		conn.Close()
		return
	}
	if s.pending.Len() >= s.most {
		s.pushOut()
	}
	e := s.pending.PushBack(conn)
	s.wg.Add(1)
	go s.handshake(conn, e)
}

// pushOut drops the oldest pending connection; s.mu is held.
func (s *server) pushOut() {
	s.pending.Front().Value.(net.Conn).Close()
	s.pending.Remove(s.pending.Front())
}

// shed drops half of the pending connections, at least one, to have their descriptors. It reports whether there was any.
func (s *server) shed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := (s.pending.Len() + 1) / 2
	for range n {
		s.pushOut()
	}
	return n > 0
}

func (s *server) handshake(conn net.Conn, e *list.Element) {
	defer s.wg.Done()
	ctx, cancel := context.WithTimeout(s.life, s.patience)
	defer cancel()
	from := peerName(conn)
	leave := func() {
		s.mu.Lock()
		s.pending.Remove(e)
		s.mu.Unlock()
	}
	var h *hello
	var serve handler
	secured, err := s.cred.welcome(conn)
	if err != nil {
		s.notify(nil, err, from)
	} else {
		h, serve, err = s.receive(ctx, secured, from)
	}
	if err == nil {
		err = serve.take(secured, h, func() {
			leave()
			conn.SetDeadline(time.Time{})
		})
	} else {
		conn.Close()
	}
	leave()
	if err != nil && s.life.Err() == nil {
		s.strangers.report(from, err)
	}
}

// receive is the acceptor's side of the handshake, up to the sent ACCEPT. ctx ends when the time for it is over.
func (s *server) receive(ctx context.Context, conn net.Conn, from string) (*hello, handler, error) {
	g, err := s.cred.answer(conn, s.as())
	if err != nil {
		return nil, nil, s.turnAway(conn, g.hello, err, from)
	}
	serve := s.handlers[g.purpose]
	if serve == nil {
		return nil, nil, reject(conn, refuse("nobody serves purpose %d here", g.purpose))
	}
	if r := serve.check(ctx, g.hello, conn); r != nil {
		return nil, nil, reject(conn, r)
	}
	return g.hello, serve, accept(conn, g)
}

// turnAway tells an unproved caller why it is refused, if there is a reason to tell, and lets the handler of its purpose know.
func (s *server) turnAway(conn net.Conn, h *hello, why error, from string) error {
	var r *rejection
	var skew *versionError
	switch {
	case errors.As(why, &skew):
		r = refuse("versions differ: you speak start-up protocol %d, this end %d", skew.theirs, version)
		r.code = rejectVersion
	case !errors.As(why, &r):
		return why
	}
	s.notify(h, why, from)
	return reject(conn, r)
}

// notify lets the handler of a refused caller know.
func (s *server) notify(h *hello, why error, from string) {
	p := purposeRegister
	if h != nil {
		p = h.purpose
	} else if !errors.As(why, new(*tlsError)) && !errors.As(why, new(*rejection)) {
		return // no rank is like that
	}
	if serve := s.handlers[p]; serve != nil {
		serve.refused(h, why, from)
	}
}

// peerName is the other end of a connection, for messages.
func peerName(conn net.Conn) string {
	if a := conn.RemoteAddr(); a != nil && a.String() != "" && a.String() != "@" {
		return a.String()
	}
	return "a process of this host"
}

// strangers logs dropped connections, the first at once and then one line per interval.
type strangers struct {
	log *slog.Logger

	mu     sync.Mutex
	last   time.Time
	hidden int
}

const strangerInterval = 10 * time.Second

func (s *strangers) report(from string, err error) {
	s.mu.Lock()
	now := time.Now()
	if !s.last.IsZero() && now.Sub(s.last) < strangerInterval {
		s.hidden++
		s.mu.Unlock()
		return
	}
	hidden := s.hidden
	s.last, s.hidden = now, 0
	s.mu.Unlock() // a logger that hangs must not gather strangers here
	args := []any{"from", from, "why", reason(err)}
	if hidden > 0 {
		args = append(args, "unreported", hidden)
	}
	s.log.Warn("tcp: dropped a connection", args...)
}

func (s *strangers) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hidden > 0 {
		s.log.Warn("tcp: dropped connections", "unreported", s.hidden)
		s.hidden = 0
	}
}

func reason(err error) string {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "no handshake in time"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "hung up during the handshake"
	case errors.Is(err, net.ErrClosed):
		return "pushed out by newer connections"
	}
	return err.Error()
}
