package goccl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/transporttest"
)

// Scenario 47: one rank dies in the middle of an all-reduce and the others hang or spin (mlx#3862, PR#4060). Here: all that is
// pending ends, with the dead rank's name.
func TestPeers47_PendingCallsEndWithTheDead(t *testing.T) {
	overWorlds(t, func(t *testing.T, w world) {
		gs := groups(t, w, 4, Config{})
		errs := each(gs, func(g *ProcessGroup) error {
			if g.Rank() == 2 {
				if err := AllReduce(t.Context(), g, make([]float32, 1000), Sum); err != nil {
					return err
				}
				return g.t.Close() // without goodbye, as a crash
			}
			works := []*Work{AllReduceAsync(t.Context(), g, make([]float32, 1000), Sum)}
			for range 5 {
				works = append(works, AllReduceAsync(t.Context(), g, make([]float32, 1<<20), Sum))
			}
			if err := works[0].Wait(t.Context()); err != nil {
				return fmt.Errorf("before the death: %w", err)
			}
			for i, work := range works[1:] {
				var e *PeerError
				if err := work.Wait(t.Context()); !errors.As(err, &e) || e.Rank != 2 || e.Op != "all-reduce" || e.Seq != 2 {
					return fmt.Errorf("pending call %d: %w, want rank 2 in all-reduce #2", i, err)
				}
			}
			return nil
		})
		for r, err := range errs {
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		}
	})
}

// Scenario 50: nobody knows the culprit, and blame goes in circles (nccl#1324, pytorch#83289). Rank 5 of 8 sleeps: all others
// name it, and the call that it has completed last.
func TestPeers50_TheSleeperIsNamed(t *testing.T) {
	for _, a := range everyAlgorithm {
		t.Run(a.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gs := groups(t, memWorld, 8, Config{Algorithm: a, Timeout: 5 * time.Second})
				for r, err := range each(gs, func(g *ProcessGroup) error {
					if err := Broadcast(t.Context(), g, make([]int32, 7), 3); err != nil {
						return err
					}
					if g.Rank() == 5 {
						return verdict(g)
					}
					return AllReduce(t.Context(), g, make([]float32, 10_000), Sum)
				}) {
					var e *StallError
					if !errors.As(err, &e) || !slices.Equal(e.Missing, []int{5}) || e.Op != "all-reduce" || e.Seq != 2 {
						t.Errorf("rank %d: %v, want rank 5 missing in all-reduce #2", r, err)
					} else if r != 5 && !strings.Contains(err.Error(), "rank 5 (mem:5; broadcast i32 x 7 from root 3") {
						t.Errorf("rank %d: %v, want the last call of rank 5", r, err)
					}
				}
			})
		})
	}
}

// The second half of scenario 50: the first cause is forwarded, and wins over the ends of streams that follow from it.
func TestPeers50_TheFirstCauseWins(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w world) {
		gs := groups(t, w, 4, Config{})
		why := errors.New("out of memory")
		errs := each(gs, func(g *ProcessGroup) error {
			if g.Rank() == 1 {
				g.Abort(why)
				g.t.Close()
				return why
			}
			err := AllReduce(t.Context(), g, make([]float32, 100_000), Sum)
			g.t.Close() // gone at once, as after log.Fatal: the next rank may see this end first
			return err
		})
		for r, err := range errs {
			var e *AbortError
			if r != 1 && (!errors.As(err, &e) || e.Rank != 1 || e.Text != why.Error()) {
				t.Errorf("rank %d: %v, want the abort of rank 1", r, err)
			}
		}
	})
}

// Scenario 51: others wait for a rank that aborted (pytorch#113281).
func TestPeers51_AbortWakesTheNeighbours(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w world) {
		gs := groups(t, w, 3, Config{})
		begin := time.Now()
		errs := each(gs, func(g *ProcessGroup) error {
			switch g.Rank() {
			case 0:
				return Broadcast(t.Context(), g, make([]float32, 10), 1)
			case 1:
				g.Abort(errors.New("bad sample"))
				return nil
			}
			_, err := Recv[float32](t.Context(), g, 1, 0)
			return err
		})
		for _, r := range []int{0, 2} {
			var e *AbortError
			if !errors.As(errs[r], &e) || e.Rank != 1 || e.Text != "bad sample" {
				t.Errorf("rank %d: %v, want the abort of rank 1 with its reason", r, errs[r])
			}
		}
		if d := time.Since(begin); d > 10*time.Second {
			t.Errorf("after %v", d)
		}
	})
}

// Scenario 54: rank 0 leaves first, and the others log resets (pytorch#123969, #69520, AReaL#1245, Paddle PR#44964). The ranks
// leave at random moments after the last collective: no error, nothing in the log.
func TestPeers54_StaggeredExits(t *testing.T) {
	leave := func(t *testing.T, w world, random *rand.Rand) {
		var log safeBuffer
		gs := groups(t, w, 4, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		delays := make([]time.Duration, len(gs))
		for r := range delays {
			if r > 0 || random.IntN(2) == 0 {
				delays[r] = time.Duration(random.IntN(3000)) * time.Microsecond
			}
		}
		errs := each(gs, func(g *ProcessGroup) error {
			if err := AllReduce(t.Context(), g, make([]float32, 100), Sum); err != nil {
				return err
			}
			<-time.After(delays[g.Rank()])
			return g.Close()
		})
		if err := errors.Join(errs...); err != nil || log.String() != "" {
			t.Errorf("leaving after %v: %v, log:\n%s", delays, errs, log.String())
		}
	}
	rounds := 1000
	if testing.Short() {
		rounds = 100
	}
	random := rand.New(rand.NewPCG(54, 54))
	for _, name := range []string{"mem", "plain"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for range rounds {
					leave(t, worlds[name], random)
				}
			})
		})
	}
	for _, name := range []string{"tcp", "unix"} {
		t.Run(name, func(t *testing.T) {
			for range rounds / 50 {
				leave(t, worlds[name], random)
			}
		})
	}
}

// safeBuffer is a log that several ranks write to.
type safeBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Scenario 57: nested time-outs clash (torchtitan#2899, pytorch#14376). The earliest wins, the error says which it was, and the
// group does not survive.
func TestPeers57_TheEarliestLimitWins(t *testing.T) {
	why := errors.New("the step's own second")
	for name, c := range map[string]struct {
		ctx, group time.Duration
		words      string
		after      time.Duration
	}{
		"context": {time.Second, 30 * time.Second, why.Error(), time.Second},
		"group":   {30 * time.Second, 2 * time.Second, "group timeout of 2s", 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(t *testing.T, w world) {
				gs := groups(t, w, 2, Config{Timeout: c.group})
				ctx, cancel := context.WithTimeoutCause(t.Context(), c.ctx, why)
				defer cancel()
				begin := time.Now()
				err := AllReduce(ctx, gs[0], []float32{1}, Sum)
				var e *StallError
				if !errors.As(err, &e) || !slices.Equal(e.Missing, []int{1}) || !strings.Contains(err.Error(), c.words) ||
					errors.Is(err, why) != (name == "context") {
					t.Errorf("got %v, want a stall for want of rank 1 by %q", err, c.words)
				}
				if d := time.Since(begin); d < c.after || d > c.after+5*time.Second {
					t.Errorf("after %v, want %v", d, c.after)
				}
				for _, g := range gs {
					verdict(g)
					if err := g.Barrier(t.Context()); !errors.Is(err, ErrBroken) || !errors.As(err, &e) {
						t.Errorf("rank %d, the group used again: %v, want ErrBroken and the stall", g.Rank(), err)
					}
				}
			})
		})
	}
}

// A hole is a network that can lose or hold what one rank sends and is sent. Ranks see no more of it than five methods.
type hole struct {
	victim int
	lossy  atomic.Bool
	held   atomic.Pointer[chan struct{}] // closed when what is held goes on; nil: nothing is held
}

type beyondHole struct {
	transport.Transport
	h *hole
}

func (b beyondHole) Send(ctx context.Context, to int, tag transport.Tag, p []byte) error {
	if to == b.h.victim || b.Rank() == b.h.victim {
		if b.h.lossy.Load() {
			return nil
		}
		if wait := b.h.held.Load(); wait != nil {
			select {
			case <-*wait:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return b.Transport.Send(ctx, to, tag, p)
}

func (h *hole) world(_ *testing.T, n int) []transport.Transport {
	ts := memWorld(nil, n)
	for i := range ts {
		ts[i] = beyondHole{transporttest.Plain(ts[i]), h}
	}
	return ts
}

// Scenario 49: a path is black-holed, and no reset ever comes (horovod#3611, nccl#706, #193). Without a deadline in sight the
// heartbeats tell, within their bound, and the same on all ranks.
func TestPeers49_BlackHole(t *testing.T) {
	const beat = time.Second
	synctest.Test(t, func(t *testing.T) {
		h := hole{victim: 2}
		gs := groups(t, h.world, 4, Config{Heartbeat: beat})
		begin := time.Now()
		time.AfterFunc(10*beat, func() { h.lossy.Store(true) })
		for r, err := range each(gs, func(g *ProcessGroup) error {
			for {
				if err := AllReduce(t.Context(), g, make([]float32, 100), Sum); err != nil {
					return err
				}
				<-time.After(beat / 4)
			}
		}) {
			var e *PeerError
			if !errors.As(err, &e) || e.Rank != h.victim {
				t.Errorf("rank %d: %v, want rank %d", r, err, h.victim)
			}
		}
		if d := time.Since(begin); d < 10*beat || d > 14*beat {
			t.Errorf("lost after %v, known after %v", 10*beat, d)
		}
	})
}

// When the path comes back before the bound (three intervals from the last heartbeat on), work goes on, and nothing is lost.
func TestPeers49_PauseBeforeTheBound(t *testing.T) {
	const beat = time.Second
	synctest.Test(t, func(t *testing.T) {
		h := hole{victim: 2}
		gs := groups(t, h.world, 4, Config{Heartbeat: beat})
		paused := make(chan struct{})
		time.AfterFunc(5*beat, func() { h.held.Store(&paused) })
		time.AfterFunc(7*beat-beat/10, func() { h.held.Store(nil); close(paused) })
		for r, err := range each(gs, func(g *ProcessGroup) error {
			for range 40 {
				x := []int32{int32(g.Rank())}
				if err := expect("all-reduce", AllReduce(t.Context(), g, x, Sum), x, []int32{6}); err != nil {
					return err
				}
				<-time.After(beat / 4)
			}
			return nil
		}) {
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		}
	})
}
