package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
)

const (
	askPatience      = time.Second     // for an address where a run may be on
	redirectPatience = 2 * time.Second // for a rank that a redirect names
)

// errIdle is what is found where no run is on.
var errIdle = errors.New("no run is on there")

// lookForRun returns a connection to a rank of a run that has begun, where there is reason to look for one. An error is one
// that may pass; neither: there is no such run.
func (s *start) lookForRun(ctx context.Context) (net.Conn, error) {
	if to := s.redirected; to != nil {
		s.redirected = nil
		conn, err := s.follow(ctx, to)
		if s.reg.alone = conn == nil && err == nil; !s.reg.alone {
			return conn, err
		}
	}
	if s.Rank == 0 && len(s.coordinators) > 1 {
		return s.askAround(ctx)
	}
	return nil, nil
}

// follow tries the ranks that a redirect names, in turn; neither connection nor error: none of them is there any more.
func (s *start) follow(ctx context.Context, to []string) (net.Conn, error) {
	var passing error
	for _, address := range to {
		conn, err := s.tryRun(ctx, address, redirectPatience)
		switch {
		case err == nil:
			return conn, nil
		case ctx.Err() != nil:
			return nil, err
		case !deserted(err):
			passing = fmt.Errorf("sent to %s: %w", address, err)
		}
	}
	return nil, passing
}

// deserted tells whether an address, where a rank of the run listened as long as it lived, is no such place any more.
func deserted(err error) bool {
	var r *rejection
	var v *versionError
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, errIdle) || errors.Is(err, errStranger) || errors.As(err, &v) ||
		errors.As(err, &r) && r.code != rejectBusy
}

// askAround asks at all addresses of the list whether a run is on there: its ranks listen where they met, and one of them may
// have died and come back as this process.
func (s *start) askAround(ctx context.Context) (net.Conn, error) {
	for _, e := range s.coordinators {
		conn, err := s.tryRun(ctx, e.String(), askPatience)
		var r *rejection
		switch {
		case err == nil:
			return conn, nil
		case errors.As(err, &r) && r.code == rejectBusy:
			return nil, err
		}
	}
	return nil, nil
}

func (s *start) tryRun(ctx context.Context, address string, patience time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	list, err := parseEndpoints(address)
	if err != nil {
		return nil, err
	}
	addrs, err := s.addresses(ctx, list[0])
	if err != nil {
		return nil, err
	}
	if s.conn != nil { // it is closed, but knows its way
		for i := range addrs {
			addrs[i] = rezone(addrs[i], addrPort(s.conn.LocalAddr()).Addr())
		}
	}
	return s.callAny(ctx, list[0], addrs, func(r role) error {
		if r != roleRunning {
			return errIdle
		}
		return nil
	})
}
