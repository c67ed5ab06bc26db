package tcp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"
)

const (
	firstWait = 25 * time.Millisecond
	lastWait  = time.Second
)

// A backoff is the time between attempts: it doubles from firstWait to lastWait.
type backoff struct {
	wait time.Duration
}

// sleep waits for the next attempt, a little less or more so that ranks do not come in step, or until ctx ends.
func (b *backoff) sleep(ctx context.Context) error {
	b.wait = min(max(2*b.wait, firstWait), lastWait)
	t := time.NewTimer(b.wait*3/4 + rand.N(b.wait/2))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// lasting tells whether an error of a dial or handshake would be the same next time.
func lasting(err error) bool {
	var r *rejection
	if errors.As(err, &r) {
		return r.code != rejectBusy
	}
	var v *versionError
	var c *ConfigError
	var t *tlsError
	if errors.As(err, &t) || errors.As(err, &v) || errors.As(err, &c) || outOfDescriptors(err) ||
		errors.Is(err, errStranger) || errors.Is(err, errNoZone) {
		return true
	}
	return slices.ContainsFunc([]error{syscall.EADDRINUSE, syscall.EACCES, syscall.EPERM, syscall.EAFNOSUPPORT},
		func(e error) bool { return errors.Is(err, e) })
}

func outOfDescriptors(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// A descriptorError adds what the bare error of a full descriptor table leaves out.
type descriptorError struct{ err error }

func (e *descriptorError) Unwrap() error { return e.err }

func (e *descriptorError) Error() string {
	limit := "the limit of this process or system is reached"
	if n := descriptorLimit(); n > 0 {
		limit = fmt.Sprintf("the limit of this process is %d (ulimit -n)", n)
	}
	return fmt.Sprintf("%v: a rank needs about two descriptors per other rank; %s", e.err, limit)
}

func explain(err error) error {
	if known := (*descriptorError)(nil); !outOfDescriptors(err) || errors.As(err, &known) {
		return err
	}
	return &descriptorError{err}
}

// addrPort reads a TCP address; another kind gives an invalid one.
func addrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	p := t.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}
