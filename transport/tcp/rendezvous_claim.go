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

// errTaken is rank 0's finding that another rank 0 coordinates at its address.
var errTaken = errors.New("rank 0 of a run is there already")

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
			return nil, nil, s.unmet(fmt.Sprintf("no coordinator answered %s, %d tries (missing: rank 0, or goccl rendezvous): %v",
				after(time.Since(began)), tries, last), ended)
		}
	}
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
		if err == nil {
			return ln, conn, false, nil
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
		ln, err := s.net.listen(ctx, "tcp", netip.AddrPortFrom(a, e.port).String())
		if err == nil {
			return ln, nil, nil
		}
		cause = fmt.Errorf("cannot listen at %s: %w", e, err)
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
	switch {
	case err == nil:
		return nil, conn, nil
	case lasting(err) && !errors.Is(err, errStranger):
		return nil, nil, fmt.Errorf("%w (%w)", err, cause)
	case inUse && errors.Is(err, errTaken):
		return nil, nil, fmt.Errorf("address in use: %s: %w (%w)", e, errTaken, cause)
	case inUse:
		return nil, nil, fmt.Errorf("address in use: %s is held by something that is no coordinator (%w)", e, cause)
	}
	return nil, nil, fmt.Errorf("%w, and nobody coordinates there: %w", cause, err)
}

// call dials the coordinator and takes the connection through the handshake.
func (s *start) call(ctx context.Context, e endpoint, addrs []netip.Addr) (net.Conn, error) {
	if len(s.coordinators) > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, listPatience)
		defer cancel()
	}
	return s.callAny(ctx, e, addrs, func(r role) error {
		if s.Rank == 0 && r == roleRank {
			return errTaken
		}
		return nil
	})
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
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, fmt.Errorf("%s takes the connection but does not answer", at)
		}
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	s.host.met = host
	s.role = is
	tune(conn, 0, addrPort(conn.RemoteAddr()).Addr().IsLoopback())
	return conn, nil
}
