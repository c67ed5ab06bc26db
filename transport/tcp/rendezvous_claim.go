package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

// apartPatience is how long rank 0, which cannot listen at the coordinator's address, waits for a coordinator to answer there.
const apartPatience = 2 * time.Second

// listPatience is how long each address of a list gets, in which the next may do.
const listPatience = 5 * time.Second

// A claimError says why rank 0 does not coordinate at its address, and keeps to itself why it could not listen there, which says less.
type claimError struct {
	text   string
	causes []error
}

func (e *claimError) Error() string   { return e.text }
func (e *claimError) Unwrap() []error { return e.causes }

// meet gives this rank its way to the coordinator: a listener when it is to be the coordinator itself, else a connection
// that the coordinator has accepted for registration.
func (s *start) meet(ctx context.Context) (net.Listener, net.Conn, error) {
	if s.Listener != nil {
		return s.Listener, nil, nil
	}
	began := time.Now()
	var last error
	for tries := 1; ; tries++ {
		ln, conn, final, err := s.attempt(ctx)
		if err == nil {
			return ln, conn, nil
		}
		if final {
			return nil, nil, s.unmet(explain(err).Error(), err)
		}
		if last == nil || ctx.Err() == nil { // an attempt that the deadline cut short knows less than the one before
			last = err
		}
		if ended := s.pause.sleep(ctx); ended != nil && s.role == roleRunning {
			return nil, nil, s.notAdmitted(ended, last)
		} else if ended != nil {
			return nil, nil, s.unmet(fmt.Sprintf("no coordinator answered %s, %d tries%s: %v", after(time.Since(began)), tries, s.whoCoordinates(), last), ended)
		}
	}
}

// whoCoordinates is who is missing when nobody answers, for the middle of a sentence.
func (s *start) whoCoordinates() string {
	if s.Rank == 0 {
		return ""
	}
	return " (missing: rank 0, or goccl rendezvous)"
}

func (s *start) unmet(reason string, err error) error {
	if e := (*ConfigError)(nil); errors.As(err, &e) {
		return err
	}
	return &JoinError{Coordinator: s.Coordinator, Reason: reason, Err: err}
}

// attempt tries the coordinator's addresses in turn; final tells that none of them will do better next time.
func (s *start) attempt(ctx context.Context) (ln net.Listener, conn net.Conn, final bool, err error) {
	if conn, err := s.lookForRun(ctx); conn != nil || err != nil {
		return nil, conn, false, err
	}
	final = true
	var errs []error
	for _, e := range s.coordinators {
		addrs, err := s.addresses(ctx, e)
		switch {
		case err != nil:
		case s.Rank == 0:
			ln, conn, err = s.claim(ctx, e, addrs)
		default:
			conn, err = s.call(ctx, e, addrs)
		}
		var r *rejection
		switch {
		case err == nil:
			return ln, conn, false, nil
		case errors.As(err, &r) && r.code == rejectTaken:
			return nil, nil, true, err // to coordinate at the next address would part the ranks
		}
		final = final && lasting(err)
		errs = append(errs, err)
	}
	return nil, nil, final, oneError(errs)
}

// oneError keeps a single error as it is and puts several on one line.
func oneError(errs []error) error {
	err := errs[0]
	for _, e := range errs[1:] {
		err = fmt.Errorf("%w; %w", err, e)
	}
	return err
}

func (s *start) addresses(ctx context.Context, e endpoint) ([]netip.Addr, error) {
	addrs, err := s.net.resolve(ctx, e.host)
	if err == nil && len(addrs) == 0 {
		err = fmt.Errorf("%s has no address", e.host)
	}
	return addrs, err
}

// claim listens at the coordinator's address, or calls the coordinator that is there.
func (s *start) claim(ctx context.Context, e endpoint, addrs []netip.Addr) (net.Listener, net.Conn, error) {
	binds := addrs
	if s.listen.wildcard() {
		binds = []netip.Addr{netip.MustParseAddr(s.listen.host)}
	}
	var cause error
	for _, a := range binds {
		if !a.IsLoopback() && !s.open() {
			return nil, nil, needInsecure("this rank", a.String())
		}
		at := netip.AddrPortFrom(a, e.port).String()
		ln, err := s.net.listen(ctx, "tcp", at)
		if err == nil {
			return ln, nil, nil
		}
		cause = cannotListen(s.there(at), err)
		if errors.Is(err, syscall.EADDRINUSE) {
			break // another of its addresses might be free, but the ranks would meet whoever holds this one
		}
	}
	inUse := errors.Is(cause, syscall.EADDRINUSE)
	if !inUse && !errors.Is(cause, syscall.EADDRNOTAVAIL) {
		return nil, nil, cause
	}
	near, cancel := context.WithTimeout(ctx, apartPatience)
	defer cancel()
	conn, err := s.call(near, e, addrs)
	var r *rejection
	switch {
	case err == nil:
		return nil, conn, nil
	case errors.As(err, &r) && r.code == rejectTaken:
		return nil, nil, &claimError{s.twice(e), []error{err, cause}}
	case inUse && lasting(err) && !errors.Is(err, errStranger):
		return nil, nil, &claimError{fmt.Sprintf("address in use: %s: %v", e, err), []error{err, cause}}
	case inUse:
		return nil, nil, &claimError{fmt.Sprintf("address in use: %s is held by something that is no coordinator", e), []error{err, cause}}
	case lasting(err) && !errors.Is(err, errStranger):
		return nil, nil, &claimError{err.Error(), []error{err, cause}}
	}
	return nil, nil, fmt.Errorf("%w, and nobody coordinates there: %w", cause, err)
}

// there says where an address is that stands in the error already, in a word.
func (s *start) there(at string) string {
	if at == s.Coordinator {
		return "there"
	}
	return "at " + at
}

// cannotListen puts the error of a listen without the address that it names again.
func cannotListen(where string, err error) error {
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		err = op.Err
	}
	return fmt.Errorf("cannot listen %s: %w", where, err)
}

// twice is what the second rank 0 says.
func (s *start) twice(e endpoint) string {
	text := fmt.Sprintf("two processes say they are rank 0: this one and the one at %s", e)
	if s.RunID == "" {
		text += " (two jobs at one address need run ids that differ)"
	}
	return text
}

// call dials the coordinator and takes the connection through the handshake.
func (s *start) call(ctx context.Context, e endpoint, addrs []netip.Addr) (net.Conn, error) {
	if len(s.coordinators) > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, listPatience)
		defer cancel()
	}
	return s.callAny(ctx, e, addrs, func(role) error { return nil })
}

// callAny is call at one of several addresses. meet looks at who answers.
func (s *start) callAny(ctx context.Context, e endpoint, addrs []netip.Addr, meet func(role) error) (net.Conn, error) {
	var errs []error
	for _, a := range addrs {
		conn, err := s.reach(ctx, e.host, netip.AddrPortFrom(a, e.port), meet)
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
		if lasting(err) {
			break
		}
	}
	return nil, oneError(errs)
}

func (s *start) reach(ctx context.Context, host string, at netip.AddrPort, meet func(role) error) (net.Conn, error) {
	conn, err := s.net.dial(ctx, "tcp", at.String())
	if err != nil {
		return nil, err
	}
	h := &hello{purpose: purposeRegister, from: uint32(s.Rank), to: nobody, size: uint32(s.Size), runID: s.RunID}
	var is role
	conn, err = s.cred.introduce(ctx, conn, host, h, func(r role) error {
		is = r
		return meet(r)
	})
	if err != nil {
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, fmt.Errorf("%s takes the connection but does not answer", at)
		case at.String() == s.Coordinator: // all errors of a start begin with it
			return nil, err
		}
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	s.host.met = host
	s.role = is
	tune(conn, 0, addrPort(conn.RemoteAddr()).Addr().IsLoopback())
	return conn, nil
}
