package tcp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"
)

func TestMissingCoordinator(t *testing.T) {
	t.Parallel()
	cfgs := world(t, 3)
	cfgs[0].Listener.Close()
	at := freePort(t)
	for r := range cfgs {
		cfgs[r].Timeout = 300 * time.Millisecond
		cfgs[r].Coordinator = at
	}
	_, errs := startAll(t, cfgs[1:])
	wantAll(t, errs, "missing: rank 0", cfgs[1].Coordinator, "refused", "after 3")
	if !errors.Is(errs[0], context.DeadlineExceeded) {
		t.Errorf("%v", errs[0])
	}
}

func TestPeers37_PortInUse(t *testing.T) {
	t.Parallel()
	t.Run("by something silent", func(t *testing.T) {
		ln := listener(t)
		defer ln.Close()
		inUse(t, ln.Addr().String(), "held by something that is no coordinator")
	})
	t.Run("by something else", func(t *testing.T) {
		ln := listener(t)
		defer ln.Close()
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				c.Write([]byte("220 mail.example.org ready\r\n"))
				c.Close()
			}
		}()
		inUse(t, ln.Addr().String(), "held by something that is no coordinator")
	})
	t.Run("by another rank 0", func(t *testing.T) {
		cfgs := world(t, 2)
		_, errs := startAll(t, cfgs)
		noErrors(t, errs)
		inUse(t, cfgs[1].Coordinator, "rank 0 of a run is there already")
	})
}

func inUse(t *testing.T, at, why string) {
	t.Helper()
	began := time.Now()
	_, err := join(t.Context(), Config{Rank: 0, Size: 2, Coordinator: at, Timeout: time.Minute}, fullMesh)
	wantAll(t, []error{err}, "address in use: "+at, why)
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("%v does not wrap EADDRINUSE", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestNameResolvesLate(t *testing.T) {
	t.Parallel()
	cfgs := world(t, 3)
	cfgs[0].Listener.Close()
	cfgs[0].Listener = nil
	_, port, _ := net.SplitHostPort(freePort(t))
	for r := range cfgs {
		cfgs[r].Coordinator = "later.example:" + port
		fake := machine()
		tries := 0
		fake.resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
			if tries++; tries <= 3 {
				return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
			}
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}
		cfgs[r].net = fake
	}
	_, errs := startAll(t, cfgs)
	noErrors(t, errs)

	for r := range cfgs {
		cfgs[r].Timeout = 200 * time.Millisecond
		cfgs[r].net = machine()
		cfgs[r].net.resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
		}
	}
	_, errs = startAll(t, cfgs)
	wantAll(t, errs, "later.example", "no such host", "after 2")
}

func TestCoordinatorList(t *testing.T) {
	t.Parallel()
	cfgs := world(t, 3)
	for r := range cfgs {
		cfgs[r].Coordinator = "127.0.0.1:1, " + cfgs[r].Coordinator
	}
	_, errs := startAll(t, cfgs)
	noErrors(t, errs)
}

// TestLostCoordinator has a coordinator that dies with a registered rank.
func TestLostCoordinator(t *testing.T) {
	t.Parallel()
	for as, want := range map[role]string{
		roleRank:  "rank 0, the coordinator, was lost before all were connected",
		roleApart: "the coordinator was lost before all were connected",
	} {
		ln := listener(t)
		defer ln.Close()
		go func() {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			if g, err := (*credentials)(nil).answer(conn, as); err == nil && accept(conn, g) == nil {
				expect(conn, kindRegister)
			}
		}()
		_, err := join(t.Context(), Config{Rank: 1, Size: 2, Coordinator: ln.Addr().String(), Timeout: time.Minute}, fullMesh)
		wantAll(t, []error{err}, want)
	}
}
