package goccl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goccl/goccl/dtype"
)

// inFakeTime runs a test over the worlds without sockets, in a bubble with a clock of its own, and over TCP in real time.
func inFakeTime(t *testing.T, test func(t *testing.T, w world)) {
	for _, name := range []string{"mem", "plain"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, worlds[name]) })
		})
	}
	t.Run("tcp", func(t *testing.T) { test(t, worlds["tcp"]) })
}

// collectives are all of them, as calls on a group of whatever size.
var collectives = map[string]func(ctx context.Context, g *ProcessGroup, count int) error{
	"AllReduce": func(ctx context.Context, g *ProcessGroup, count int) error {
		return AllReduce(ctx, g, make([]float32, count), Sum)
	},
	"AllReduceTo": func(ctx context.Context, g *ProcessGroup, count int) error {
		return AllReduceTo(ctx, g, make([]float32, count), make([]float32, count), Sum)
	},
	"ReduceScatter": func(ctx context.Context, g *ProcessGroup, count int) error {
		return ReduceScatter(ctx, g, make([]float32, count), make([]float32, count*g.Size()), Sum)
	},
	"ReduceScatterV": func(ctx context.Context, g *ProcessGroup, count int) error {
		counts := slices.Repeat([]int{count}, g.Size())
		return ReduceScatterV(ctx, g, make([]float32, count), make([]float32, count*g.Size()), counts, Sum)
	},
	"AllGather": func(ctx context.Context, g *ProcessGroup, count int) error {
		return AllGather(ctx, g, make([]float32, count*g.Size()), make([]float32, count))
	},
	"AllGatherV": func(ctx context.Context, g *ProcessGroup, count int) error {
		return AllGatherV(ctx, g, make([]float32, count*g.Size()), make([]float32, count), slices.Repeat([]int{count}, g.Size()))
	},
	"Broadcast": func(ctx context.Context, g *ProcessGroup, count int) error {
		return Broadcast(ctx, g, make([]float32, count), 0)
	},
	"Reduce": func(ctx context.Context, g *ProcessGroup, count int) error {
		return Reduce(ctx, g, make([]float32, count), make([]float32, count), Sum, 0)
	},
	"Gather": func(ctx context.Context, g *ProcessGroup, count int) error {
		return Gather(ctx, g, make([]float32, count*g.Size()), make([]float32, count), 0)
	},
	"Scatter": func(ctx context.Context, g *ProcessGroup, count int) error {
		return Scatter(ctx, g, make([]float32, count), make([]float32, count*g.Size()), 0)
	},
	"AllToAll": func(ctx context.Context, g *ProcessGroup, count int) error {
		return AllToAll(ctx, g, make([]float32, count*g.Size()), make([]float32, count*g.Size()))
	},
	"AllToAllV": func(ctx context.Context, g *ProcessGroup, count int) error {
		counts := slices.Repeat([]int{count}, g.Size())
		return AllToAllV(ctx, g, make([]float32, count*g.Size()), counts, make([]float32, count*g.Size()), counts)
	},
	"Barrier": func(ctx context.Context, g *ProcessGroup, _ int) error { return g.Barrier(ctx) },
	"Split":   func(ctx context.Context, g *ProcessGroup, _ int) error { _, err := g.Split(ctx, 0, 0); return err },
}

// verdict waits until the group is broken, as an idle rank may learn of it later, and returns the first cause.
func verdict(g *ProcessGroup) error {
	select {
	case <-g.life.Done():
		return g.Err()
	case <-time.After(10 * time.Second):
		return errors.New("not broken within 10 s")
	}
}

// spoil runs one collective on all ranks but one, which does something else, and returns the first cause on every rank. A
// rank whose part was complete may have returned nil; its group is broken all the same.
func spoil(ctx context.Context, gs []*ProcessGroup, culprit int, call, other func(g *ProcessGroup) error) []error {
	return each(gs, func(g *ProcessGroup) error {
		var err error
		if g.Rank() == culprit {
			err = other(g)
		} else {
			err = call(g)
		}
		if cause := verdict(g); err == nil || errors.Is(err, ErrBroken) {
			return cause
		} else if !errors.Is(err, cause) {
			return fmt.Errorf("the call says %w, Err %v", err, cause)
		}
		return err
	})
}

func TestPeerDeathIsNamed(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w world) {
		for name, call := range collectives {
			for _, count := range []int{3, 100_000} {
				gs := groups(t, w, 3, Config{})
				errs := spoil(t.Context(), gs, 2,
					func(g *ProcessGroup) error { return call(t.Context(), g, count) },
					func(g *ProcessGroup) error { return g.t.Close() }) // without goodbye, as a crash
				for r, err := range errs {
					var e *PeerError
					if r != 2 && (!errors.As(err, &e) || e.Rank != 2) {
						t.Errorf("%s x %d, rank %d: %v, want a PeerError about rank 2", name, count, r, err)
					}
				}
				if err := AllReduce(t.Context(), gs[0], []int8{1}, Sum); !errors.Is(err, ErrBroken) || !errors.Is(err, gs[0].Err()) {
					t.Errorf("%s, a later call: %v, want ErrBroken with the first cause", name, err)
				}
				each(gs, func(g *ProcessGroup) error { return g.Close() })
			}
		}
	})
}

func TestCancelReachesEveryRank(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w world) {
		why := errors.New("changed my mind")
		for name, call := range collectives {
			for _, before := range []bool{true, false} {
				gs := groups(t, w, 3, Config{})
				ctx, cancel := context.WithCancelCause(t.Context())
				if before {
					cancel(why)
				}
				thenBarrier := func(ctx context.Context, g *ProcessGroup) error { // a root or a leaf may be done early
					if err := call(ctx, g, 100_000); err != nil {
						return err
					}
					return g.Barrier(ctx)
				}
				errs := spoil(t.Context(), gs, 1, func(g *ProcessGroup) error {
					if g.Rank() == 2 { // stays away, so that the others are waiting when the cancel comes
						return nil
					}
					return thenBarrier(t.Context(), g)
				}, func(g *ProcessGroup) error {
					if !before {
						time.AfterFunc(20*time.Millisecond, func() { cancel(why) })
					}
					return thenBarrier(ctx, g)
				})
				for r, err := range errs {
					var e *PeerError
					if r == 1 && !errors.Is(err, why) || r != 1 && (!errors.As(err, &e) || e.Rank != 1) {
						t.Errorf("%s, cancelled before %v, rank %d: %v", name, before, r, err)
					}
				}
				cancel(nil)
				each(gs, func(g *ProcessGroup) error { return g.Close() })
			}
		}
	})
}

// The deadline names exactly who did not come, on every rank that waited, whatever the algorithm.
func TestStallNamesTheMissing(t *testing.T) {
	for _, a := range []Algorithm{AlgorithmAuto, AlgorithmRing, AlgorithmDirect, AlgorithmOneShot, AlgorithmDoubling} {
		t.Run(a.String(), func(t *testing.T) {
			inFakeTime(t, func(t *testing.T, w world) {
				for _, count := range []int{1, 10_000} {
					gs := groups(t, w, 5, Config{Algorithm: a})
					for r, err := range each(gs, func(g *ProcessGroup) error { return g.Barrier(t.Context()) }) {
						if err != nil {
							t.Fatalf("rank %d: %v", r, err)
						}
					}
					errs := each(gs, func(g *ProcessGroup) error {
						if g.Rank() == 1 || g.Rank() == 3 {
							return verdict(g)
						}
						ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
						defer cancel()
						return AllReduce(ctx, g, make([]float32, count), Sum)
					})
					for r, err := range errs {
						var e *StallError
						if !errors.As(err, &e) || !slices.Equal(e.Missing, []int{1, 3}) || e.Op != "all-reduce" || e.Seq != 2 ||
							!errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("rank %d: %v, want ranks 1 and 3 missing in all-reduce #2", r, err)
						} else if !strings.Contains(e.Calls[1], "barrier") {
							t.Errorf("rank %d: calls %q", r, e.Calls)
						}
					}
				}
			})
		})
	}
}

// The earliest limit fires, and the error says which it was.
func TestDeadlineOfContext(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w world) {
		gs := groups(t, w, 2, Config{})
		why := errors.New("my own limit")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, why)
		defer cancel()
		err := gs[0].Barrier(ctx)
		var e *StallError
		if !errors.As(err, &e) || !errors.Is(err, why) || !slices.Equal(e.Missing, []int{1}) {
			t.Errorf("got %v", err)
		}
		if err := verdict(gs[1]); !errors.As(err, &e) || !strings.Contains(err.Error(), "my own limit") {
			t.Errorf("the idle rank: %v", err)
		}
	})
}

func TestDefaultTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gs := groups(t, memWorld, 2, Config{})
		begin := time.Now()
		var e *StallError
		if err := gs[0].Barrier(t.Context()); !errors.As(err, &e) || !strings.Contains(err.Error(), "5m0s") {
			t.Errorf("got %v", err)
		}
		if d := time.Since(begin); d < defaultTimeout || d > defaultTimeout+decideGrace {
			t.Errorf("after %v", d)
		}
	})
	synctest.Test(t, func(t *testing.T) { // off
		gs := groups(t, memWorld, 2, Config{Timeout: -1})
		time.AfterFunc(24*time.Hour, func() { gs[1].Barrier(t.Context()) })
		if err := gs[0].Barrier(t.Context()); err != nil {
			t.Errorf("without a timeout: %v", err)
		}
	})
}

func TestAbortReachesEveryRank(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w world) {
		for name, call := range collectives {
			gs := groups(t, w, 4, Config{})
			why := errors.New("loss is NaN")
			errs := spoil(t.Context(), gs, 1, func(g *ProcessGroup) error {
				if g.Rank() == 3 { // idle, but receiving
					_, err := Recv[float32](t.Context(), g, 0, 1)
					return err
				}
				return call(t.Context(), g, 50_000)
			}, func(g *ProcessGroup) error { g.Abort(why); return g.Barrier(t.Context()) })
			for r, err := range errs {
				var e *AbortError
				if !errors.As(err, &e) || e.Rank != 1 || e.Text != "loss is NaN" || r == 1 && !errors.Is(err, why) {
					t.Errorf("%s, rank %d: %v", name, r, err)
				}
				if err := Send(t.Context(), gs[r], 0, 0, []int8{1}); !errors.As(err, &e) {
					t.Errorf("%s, rank %d: Send after Abort: %v", name, r, err)
				}
			}
			each(gs, func(g *ProcessGroup) error { return g.Close() })
		}
	})
}

// Scenario 68: different collectives meet (pytorch#22071, #78022, gloo PR#456).
func TestPeers68_DifferentCalls(t *testing.T) {
	f := func(n int) []float32 { return make([]float32, n) }
	type program = func(ctx context.Context, g *ProcessGroup) error
	reduce := func(n int, op ReduceOp) program {
		return func(ctx context.Context, g *ProcessGroup) error { return AllReduce(ctx, g, f(n), op) }
	}
	broadcast := func(n, root int) program {
		return func(ctx context.Context, g *ProcessGroup) error { return Broadcast(ctx, g, f(n), root) }
	}
	sequence := func(calls ...program) program {
		return func(ctx context.Context, g *ProcessGroup) error {
			for _, c := range calls {
				if err := c(ctx, g); err != nil {
					return err
				}
			}
			return nil
		}
	}
	for name, c := range map[string]struct {
		most, one program
		words     [2]string
	}{
		"operation":   {reduce(10, Sum), broadcast(10, 0), [2]string{"all-reduce f32 x 10", "broadcast f32 x 10"}},
		"count":       {reduce(100, Sum), reduce(200, Sum), [2]string{"x 100", "x 200"}},
		"large count": {reduce(409600, Sum), reduce(409598, Sum), [2]string{"x 409600", "x 409598"}},
		"zero count":  {reduce(0, Sum), reduce(1, Sum), [2]string{"x 0", "x 1"}},
		"type": {reduce(8, Sum), func(ctx context.Context, g *ProcessGroup) error {
			return AllReduce(ctx, g, make([]dtype.Float16, 16), Sum)
		}, [2]string{"f32 x 8", "f16 x 16"}},
		"type of equal size": {reduce(8, Sum), func(ctx context.Context, g *ProcessGroup) error {
			return AllReduce(ctx, g, make([]int32, 8), Sum)
		}, [2]string{"f32", "i32"}},
		"reduce op":  {reduce(8, Sum), reduce(8, Max), [2]string{"sum", "max"}},
		"root":       {broadcast(8, 0), broadcast(8, 1), [2]string{"root 0", "root 1"}},
		"large root": {broadcast(1<<20, 0), broadcast(1<<20, 1), [2]string{"root 0", "root 1"}},
		"order":      {sequence(reduce(8, Sum), broadcast(8, 0)), sequence(broadcast(8, 0), reduce(8, Sum)), [2]string{"all-reduce", "#1"}},
		"one call less": {sequence(reduce(8, Sum), reduce(8, Sum), reduce(9, Sum)), sequence(reduce(8, Sum), reduce(9, Sum)),
			[2]string{"x 8", "x 9"}},
		"reduce root": {
			func(ctx context.Context, g *ProcessGroup) error { return Reduce(ctx, g, f(8), f(8), Sum, 0) },
			func(ctx context.Context, g *ProcessGroup) error { return Reduce(ctx, g, f(8), f(8), Sum, 2) }, [2]string{"root 0", "root 2"}},
		"counts": {
			func(ctx context.Context, g *ProcessGroup) error {
				return AllGatherV(ctx, g, f(6), f([]int{1, 2, 3}[g.Rank()]), []int{1, 2, 3})
			},
			func(ctx context.Context, g *ProcessGroup) error {
				return AllGatherV(ctx, g, f(6), f(2), []int{3, 2, 1})
			}, [2]string{"counts", "counts"}},
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(t *testing.T, w world) {
				for culprit := range 3 {
					if name == "counts" && culprit != 1 {
						continue // the ranks' own counts would not be theirs
					}
					gs := groups(t, w, 3, Config{})
					errs := spoil(t.Context(), gs, culprit,
						func(g *ProcessGroup) error { return c.most(t.Context(), g) },
						func(g *ProcessGroup) error { return c.one(t.Context(), g) })
					for r, err := range errs {
						var e *MismatchError
						if !errors.As(err, &e) {
							t.Errorf("rank %d differs; rank %d: %v, want a MismatchError", culprit, r, err)
							continue
						}
						said := e.Want + " / " + e.Got
						if !strings.Contains(said, c.words[0]) || !strings.Contains(said, c.words[1]) || e.Rank == r {
							t.Errorf("rank %d differs; rank %d: %v, want both calls named: %q", culprit, r, err, c.words)
						}
					}
					each(gs, func(g *ProcessGroup) error { return g.Close() })
				}
			})
		})
	}
}

// Nobody sends, since everybody waits for another root: only the probe can tell.
func TestMismatchThatNoFrameShows(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w world) {
		gs := groups(t, w, 2, Config{})
		for r, err := range each(gs, func(g *ProcessGroup) error {
			return Broadcast(t.Context(), g, make([]float32, 8), 1-g.Rank())
		}) {
			var e *MismatchError
			if !errors.As(err, &e) || e.Rank != 1-r {
				t.Errorf("rank %d: %v", r, err)
			}
		}
	})
}

// Everybody is the root, is done at once and leaves: Close tells, without waiting for the next call.
func TestCloseReportsMismatch(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w world) {
		gs := groups(t, w, 2, Config{})
		errs := each(gs, func(g *ProcessGroup) error {
			if err := Broadcast(t.Context(), g, make([]float32, 8), g.Rank()); err != nil {
				return err
			}
			return g.Close()
		})
		for r, err := range errs {
			var e *MismatchError
			if !errors.As(err, &e) {
				t.Errorf("rank %d: %v, want a MismatchError", r, err)
			}
		}
	})
}

// Scenario 12: split tables that disagree hang (pytorch#117486).
func TestPeers12_SplitsThatDisagree(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w world) {
		gs := groups(t, w, 2, Config{})
		for r, err := range each(gs, func(g *ProcessGroup) error {
			if g.Rank() == 0 { // sends 3 to rank 1, which expects 4
				return AllToAllV(t.Context(), g, make([]int32, 1), []int{1, 0}, make([]int32, 4), []int{1, 3})
			}
			return AllToAllV(t.Context(), g, make([]int32, 4), []int{4, 0}, nil, []int{0, 0})
		}) {
			if err == nil {
				err = verdict(gs[r])
			}
			var e *MismatchError
			if !errors.As(err, &e) || e.Rank != 1-r || !strings.Contains(e.Error(), "12 bytes") || !strings.Contains(e.Error(), "16 bytes") {
				t.Errorf("rank %d: %v", r, err)
			}
		}
	})
}

// Scenario 69: only some ranks call (horovod#2564, #2640). The rank that skips a call is named, in a warning first and at the
// deadline in the error, and an idle rank learns of the failure.
func TestPeers69_CallThatOneRankSkips(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w world) {
		logged := &records{}
		gs := groups(t, w, 3, Config{Timeout: 2 * time.Second, StallWarning: 300 * time.Millisecond, Logger: slog.New(logged)})
		errs := each(gs, func(g *ProcessGroup) error {
			if err := g.Barrier(t.Context()); err != nil {
				return err
			}
			if g.Rank() == 2 {
				return verdict(g)
			}
			return AllReduce(t.Context(), g, make([]float64, 4), Sum)
		})
		for r, err := range errs {
			var e *StallError
			if !errors.As(err, &e) || !slices.Equal(e.Missing, []int{2}) {
				t.Errorf("rank %d: %v", r, err)
			}
		}
		warned := 0
		for _, r := range logged.take() {
			if !strings.Contains(r.Message, "waits") {
				continue // that the group is broken is said as well
			}
			warned++
			calls, _ := attr(r, "calls").([]string)
			if !strings.HasPrefix(r.Message, "goccl: all-reduce #2 waits for rank 2 (") || !strings.Contains(r.Message, "barrier, doubling, #1") || len(calls) != 3 ||
				!strings.HasPrefix(calls[0], "all-reduce f64 x 4") || !strings.HasPrefix(calls[1], "all-reduce f64 x 4") {
				t.Errorf("warning %q, calls %q", r.Message, calls)
			}
		}
		if warned != 2 {
			t.Errorf("%d warnings of two ranks that wait", warned)
		}
	})
}

func TestRankThatLeavesEarly(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w world) {
		gs := groups(t, w, 3, Config{})
		errs := each(gs, func(g *ProcessGroup) error {
			if err := g.Barrier(t.Context()); err != nil {
				return err
			}
			if g.Rank() == 0 {
				return g.Close()
			}
			return g.Barrier(t.Context())
		})
		for r, err := range errs {
			var e *PeerError
			if r == 0 && err != nil || r != 0 && (!errors.As(err, &e) || e.Rank != 0 || !strings.Contains(err.Error(), "left")) {
				t.Errorf("rank %d: %v", r, err)
			}
		}
	})
}

// Scenario 52: abort or close hangs (nccl#863, pytorch#132696, PR#192105). Both return in bounded time with work in flight and
// dead peers, twice, from anywhere.
func TestPeers52_CloseWithWorkInFlight(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w world) {
		for _, abort := range []bool{false, true} {
			gs := groups(t, w, 3, Config{})
			gs[2].t.Close()
			works := []*Work{AllReduceAsync(t.Context(), gs[0], make([]float32, 1<<20), Sum), AllReduceAsync(t.Context(), gs[0], []int8{1}, Sum)}
			begin := time.Now()
			done := make(chan bool)
			for range 3 {
				go func() {
					if abort {
						gs[0].Abort(errors.New("stop"))
					}
					gs[0].Close()
					done <- true
				}()
			}
			for range 3 {
				<-done
			}
			if d := time.Since(begin); d > 5*time.Second {
				t.Errorf("Close took %v", d)
			}
			for _, work := range works {
				if err := work.Wait(t.Context()); err == nil {
					t.Error("work in flight ended well")
				}
			}
			if err := gs[0].Barrier(t.Context()); !errors.Is(err, net.ErrClosed) {
				t.Errorf("after Close: %v", err)
			}
		}
	})
}

// A child's failure leaves the parent usable; the parent's abort ends the child.
func TestChildAndParent(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w world) {
		gs := groups(t, w, 2, Config{})
		errs := each(gs, func(g *ProcessGroup) error {
			a, err := g.Split(t.Context(), 0, 0)
			if err != nil {
				return err
			}
			b, err := g.Split(t.Context(), 0, 0)
			if err != nil {
				return err
			}
			a.Abort(errors.New("only this one"))
			if err := a.Barrier(t.Context()); !errors.As(err, new(*AbortError)) {
				return fmt.Errorf("aborted child: %v", err)
			}
			if err := errors.Join(g.Barrier(t.Context()), b.Barrier(t.Context())); err != nil {
				return fmt.Errorf("after a child's abort: %w", err)
			}
			if g.Rank() == 0 {
				g.Abort(errors.New("all"))
			}
			if err := verdict(b); !errors.As(err, new(*AbortError)) {
				return fmt.Errorf("child of an aborted parent: %v", err)
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

// Whatever the collective, a rank that does not come is named at the deadline. Ranks that need nothing of it are done early
// and wait in the barrier.
func TestStallInEveryCollective(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w world) {
		for name, call := range collectives {
			gs := groups(t, w, 3, Config{})
			errs := spoil(t.Context(), gs, 1, func(g *ProcessGroup) error {
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				defer cancel()
				if err := call(ctx, g, 1000); err != nil {
					return err
				}
				return g.Barrier(ctx)
			}, verdict)
			for r, err := range errs {
				var e *StallError
				if !errors.As(err, &e) || !slices.Contains(e.Missing, 1) || slices.Contains(e.Missing, e.rankOf(t, gs)) {
					t.Errorf("%s, rank %d: %v, want rank 1 missing", name, r, err)
				}
			}
			each(gs, func(g *ProcessGroup) error { return g.Close() })
		}
	})
}

// rankOf is a rank that had surely arrived: the lowest whose call is the one that stalled.
func (e *StallError) rankOf(t *testing.T, gs []*ProcessGroup) int {
	for r, call := range e.Calls {
		if strings.Contains(call, e.Op) && strings.HasSuffix(call, fmt.Sprintf("#%d", e.Seq)) {
			return r
		}
	}
	t.Errorf("nobody is in the call that stalled: %q", e.Calls)
	return -1
}

// Whatever the collective, another count on one rank is a mismatch on all.
func TestMismatchInEveryCollective(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w world) {
		for name, call := range collectives {
			if name == "Barrier" || name == "Split" {
				continue // they have no count
			}
			gs := groups(t, w, 3, Config{})
			with := func(count int) func(g *ProcessGroup) error {
				return func(g *ProcessGroup) error {
					if err := call(t.Context(), g, count); err != nil {
						return err
					}
					return g.Barrier(t.Context())
				}
			}
			for r, err := range spoil(t.Context(), gs, 1, with(1000), with(1001)) {
				var e *MismatchError
				if !errors.As(err, &e) {
					t.Errorf("%s, rank %d: %v, want a MismatchError", name, r, err)
				}
			}
			each(gs, func(g *ProcessGroup) error { return g.Close() })
		}
	})
}

// A deadline that passes while a call waits for its turn is a stall of the call ahead; a cancel names the call that waited.
func TestContextEndsInLine(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w world) {
		for _, async := range []bool{false, true} {
			gs := groups(t, w, 2, Config{})
			ahead := AllReduceAsync(t.Context(), gs[0], []int8{1}, Sum)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			var err error
			if async {
				err = BroadcastAsync(ctx, gs[0], []int8{1}, 0).Wait(t.Context())
			} else {
				err = gs[0].Barrier(ctx)
			}
			cancel()
			var e *StallError
			for _, err := range []error{err, ahead.Wait(t.Context()), verdict(gs[1])} {
				if !errors.As(err, &e) || !slices.Equal(e.Missing, []int{1}) || e.Op != "all-reduce" || e.Seq != 1 {
					t.Errorf("async %v: %v, want a stall of all-reduce #1 for want of rank 1", async, err)
				}
			}

			gs = groups(t, w, 2, Config{})
			ahead = AllReduceAsync(t.Context(), gs[0], []int8{1}, Sum)
			ctx, cancel = context.WithCancel(t.Context())
			time.AfterFunc(50*time.Millisecond, cancel)
			if async {
				err = BroadcastAsync(ctx, gs[0], []int8{1}, 0).Wait(t.Context())
			} else {
				err = Broadcast(ctx, gs[0], []int8{1}, 0)
			}
			for _, err := range []error{err, ahead.Wait(t.Context())} {
				if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "broadcast waiting behind all-reduce #1") {
					t.Errorf("async %v: %v", async, err)
				}
			}
			var p *PeerError
			if err := verdict(gs[1]); !errors.As(err, &p) || p.Rank != 0 {
				t.Errorf("the other rank: %v", err)
			}
		}
	})
}

// A call after one that took long is watched as soon as any other.
func TestCancelAfterALongCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gs := groups(t, memWorld, 2, Config{})
		time.AfterFunc(20*time.Second, func() { gs[1].Barrier(t.Context()) })
		if err := gs[0].Barrier(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		begin := time.Now()
		if err := gs[0].Barrier(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if d := time.Since(begin); d > 2*watchTick {
			t.Errorf("cancelled after %v", d)
		}
	})
}

func TestCloseOfManyChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gs := groups(t, memWorld, 2, Config{})
		each(gs, func(g *ProcessGroup) error {
			for range 20 {
				child, err := g.Split(t.Context(), 0, 0)
				if err != nil {
					t.Error(err)
					return err
				}
				if g.Rank() == 0 {
					AllReduceAsync(t.Context(), child, []int8{1}, Sum)
				}
			}
			return nil
		})
		begin := time.Now()
		gs[0].Close()
		if d := time.Since(begin); d > 2*(flushBound+goodbyeBound) {
			t.Errorf("Close took %v", d)
		}
	})
}

// Not even a member that fails leaves anything behind in the others.
func TestFailedChildrenAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gs := groups(t, memWorld, 3, Config{})
		for range 5 {
			each(gs, func(g *ProcessGroup) error {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if g.Rank() == 1 {
					cancel()
				}
				if _, err := g.Subgroup(ctx, []int{0, 1, 2}); err == nil {
					t.Error("opened")
				}
				return nil
			})
			synctest.Wait()
		}
		for r, g := range gs {
			if c := &g.children; len(c.failed)+len(c.opening)+len(c.open) > 0 {
				t.Errorf("rank %d remembers %d failed, %d opening, %d open", r, len(c.failed), len(c.opening), len(c.open))
			}
		}
	})
}

// A member that never comes is named in the ranks of the group whose sub-group it should be in, on every member.
func TestSubgroupNamesWhoIsMissing(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w world) {
		gs := groups(t, w, 4, Config{})
		errs := each(gs, func(g *ProcessGroup) error {
			if r := g.Rank(); r == 0 || r == 3 {
				return nil
			}
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_, err := g.Subgroup(ctx, []int{1, 2, 3})
			return err
		})
		for _, r := range []int{1, 2} {
			var p *PeerError
			var s *StallError
			if !(errors.As(errs[r], &p) && p.Rank == 3) && !(errors.As(errs[r], &s) && slices.Equal(s.Missing, []int{3})) {
				t.Errorf("rank %d: %v, want rank 3 named", r, errs[r])
			}
		}
		for r, err := range each(gs, func(g *ProcessGroup) error { return g.Barrier(t.Context()) }) {
			if err != nil {
				t.Errorf("rank %d, afterwards: %v", r, err)
			}
		}
	})
}

// The call in flight on a rank that closes ends as closed, however its peers take it.
func TestCloseEndsOwnCall(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w world) {
		gs := groups(t, w, 3, Config{})
		works := make([]*Work, 2)
		for r := range works {
			works[r] = AllReduceAsync(t.Context(), gs[r], make([]float32, 1000), Sum)
		}
		gs[0].Close()
		if err := works[0].Wait(t.Context()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("own call: %v", err)
		}
		var e *PeerError
		if err := works[1].Wait(t.Context()); !errors.As(err, &e) || e.Rank != 0 {
			t.Errorf("the other's: %v", err)
		}
	})
}

// Receives that come during or just after an abort end, whatever the reader is doing.
func TestAbortDuringMessages(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w world) {
		for range 20 {
			gs := groups(t, w, 2, Config{})
			errs := each(gs, func(g *ProcessGroup) error {
				if g.Rank() == 0 {
					for {
						if err := Send(t.Context(), g, 1, 1, make([]byte, 3<<20)); err != nil {
							return err
						}
					}
				}
				into := make([]byte, 3<<20)
				for i := 0; ; i++ {
					if i == 3 {
						go g.Abort(errors.New("stop"))
					}
					if _, err := RecvInto(t.Context(), g, 0, 1, into); err != nil {
						return err
					}
				}
			})
			for r, err := range errs {
				if e := new(AbortError); !errors.As(err, &e) {
					t.Errorf("rank %d: %v", r, err)
				}
			}
			each(gs, func(g *ProcessGroup) error { return g.Close() })
		}
	})
}
