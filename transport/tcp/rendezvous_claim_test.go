package tcp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
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
		inUse(t, cfgs[1].Coordinator, "this run has begun already: rank 0 is at "+cfgs[1].Coordinator)
	})
}

// TestTwoRanks0: the second one, on the coordinator's host or on another, hears what is wrong at once, without going on to a second
// address; the first tells of it when a rank is missing in the end.
func TestTwoRanks0(t *testing.T) {
	t.Parallel()
	for _, elsewhere := range []bool{false, true} {
		for _, runID := range []string{"", "a run"} {
			cfgs := world(t, 2)
			cfgs[0].RunID = runID
			second := Config{Rank: 0, Size: 2, Coordinator: cfgs[1].Coordinator, RunID: runID, Timeout: time.Minute}
			if elsewhere {
				second.net = machine()
				second.net.listen = func(context.Context, string, string) (net.Listener, error) { return nil, syscall.EADDRNOTAVAIL }
			}
			first := make(chan error, 1)
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				_, err := join(ctx, cfgs[0], fullMesh)
				first <- err
			}()
			_, err := join(t.Context(), second, fullMesh)
			wantAll(t, []error{err}, "tcp: join at "+second.Coordinator+": two processes say they are rank 0: this one and the one at "+second.Coordinator)
			if hint := strings.Contains(err.Error(), "run ids that differ"); hint != (runID == "") {
				t.Errorf("run id %q: %v", runID, err)
			}
			second.Coordinator += ", " + freePort(t)
			_, err = join(t.Context(), second, fullMesh)
			wantAll(t, []error{err}, ": two processes say they are rank 0: this one and the one at "+cfgs[1].Coordinator)
			cancel(context.DeadlineExceeded)
			wantAll(t, []error{<-first}, "missing: rank 1; a caller from 127.0.0.1:", " was refused: two processes say they are rank 0")
		}
	}
}

// TestNobodyCoordinates: rank 0 on the wrong host says what it tried, names the address twice at most, and does not miss itself.
func TestNobodyCoordinates(t *testing.T) {
	t.Parallel()
	at := freePort(t)
	cfg := Config{Rank: 0, Size: 2, Coordinator: at, Timeout: 300 * time.Millisecond, net: machine()}
	cfg.net.listen = func(context.Context, string, string) (net.Listener, error) { return nil, syscall.EADDRNOTAVAIL }
	_, err := join(t.Context(), cfg, fullMesh)
	wantAll(t, []error{err}, "cannot listen there: ", "and nobody coordinates there: ")
	if n := strings.Count(err.Error(), at); n != 2 || strings.Contains(err.Error(), "missing: rank 0") {
		t.Errorf("%d times the address: %v", n, err)
	}
}

// TestForeignRunHint: that a caller of another run was refused may be why a rank is missing.
func TestForeignRunHint(t *testing.T) {
	t.Parallel()
	cfgs := world(t, 3)
	for r := range cfgs {
		cfgs[r].RunID, cfgs[r].Timeout = "a run", 700*time.Millisecond
	}
	cfgs[2].RunID, cfgs[1].Timeout = "b run", time.Minute // all hear of rank 0's deadline
	_, errs := startAll(t, cfgs)
	const why = `run id differs: rank 2 belongs to "b run", the coordinator to "a run"`
	wantAll(t, errs[2:], "tcp: join at "+cfgs[2].Coordinator+": refused: "+why)
	wantAll(t, errs[:2], "deadline passed at rank 0 ("+cfgs[2].Coordinator+") after ", "missing: rank 2; a caller from 127.0.0.1:", "that said it was rank 2 was refused: "+why)
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
