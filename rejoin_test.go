package goccl

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/goccl/goccl/transport"
)

// joinAll joins n ranks of a run at ln.
func joinAll(t *testing.T, ln net.Listener, n int, runID string) []*ProcessGroup {
	t.Helper()
	gs, errs := make([]*ProcessGroup, n), make([]error, n)
	var wg sync.WaitGroup
	for r := range gs {
		cfg := JoinConfig{Rank: r, Size: n, Coordinator: ln.Addr().String(), RunID: runID, Timeout: 30 * time.Second}
		if r == 0 {
			cfg.Listener = ln
		}
		wg.Go(func() { gs[r], errs[r] = Join(t.Context(), cfg) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeGroups(gs) })
	return gs
}

func closeGroups(gs []*ProcessGroup) {
	var wg sync.WaitGroup
	for _, g := range gs {
		if g != nil {
			wg.Go(func() { g.Close() })
		}
	}
	wg.Wait()
}

// A process that comes to a run is in when all ranks of the next group have met in two barriers, and not before.
func TestJoinARunThatRuns(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gs := joinAll(t, ln, 2, "r")
	for attempt, works := range []bool{false, true} {
		joined := make(chan error, 1)
		var came *ProcessGroup
		go func() {
			var err error
			came, err = Join(t.Context(), JoinConfig{Rank: 1, Size: 2, Coordinator: ln.Addr().String(), RunID: "r", Timeout: 30 * time.Second})
			joined <- err
		}()
		next := transport.Epoch{Number: uint64(attempt + 1), Ranks: []int{0, 1}}
		for deadline := time.Now().Add(20 * time.Second); len(next.Newcomers) == 0; time.Sleep(time.Millisecond) {
			if next.Newcomers = gs[0].Transport().(transport.Regrouper).Waiting(); time.Now().After(deadline) {
				t.Fatal("nobody waits")
			}
		}
		larger := make([]*ProcessGroup, 2)
		var wg sync.WaitGroup
		for r, g := range gs {
			wg.Go(func() {
				tr, err := g.Transport().(transport.Regrouper).Regroup(t.Context(), next)
				if err != nil {
					t.Error(err)
					return
				}
				if larger[r], err = New(tr, Config{}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
		if !works {
			larger[0].Close()
			larger[1].Close()
			if err := <-joined; err == nil || !errors.As(err, new(*PeerError)) {
				t.Errorf("a newcomer without ranks to meet: %v", err)
			}
			continue
		}
		for r := range larger {
			wg.Go(func() {
				for range 2 {
					if err := larger[r].Barrier(t.Context()); err != nil {
						t.Errorf("rank %d: %v", r, err)
					}
				}
			})
		}
		if err := <-joined; err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		all := append(larger, came)
		for r := range all {
			wg.Go(func() {
				sum := []int32{int32(all[r].Rank())}
				if err := AllReduce(t.Context(), all[r], sum, Sum); err != nil || sum[0] != 3 {
					t.Errorf("rank %d: %v, %v", r, sum, err)
				}
			})
		}
		wg.Wait()
		closeGroups(all)
	}
}

// At its deadline a process that nobody admits says who runs.
func TestJoinNotAdmitted(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	joinAll(t, ln, 2, "r")
	_, err = Join(t.Context(), JoinConfig{Rank: 1, Size: 2, Coordinator: ln.Addr().String(), RunID: "r", Timeout: 300 * time.Millisecond})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}
