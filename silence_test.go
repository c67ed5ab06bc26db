package goccl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goccl/goccl/transport"
)

// A blackHole takes in silence what some ranks send to others, as a network does that has lost the way. Its transports have
// the five methods only.
type blackHole struct {
	mu   sync.Mutex
	cuts map[[2]int]bool // from, to
}

type leaky struct {
	transport.Transport
	hole *blackHole
}

func (l leaky) Send(ctx context.Context, to int, tag transport.Tag, p []byte) error {
	if l.hole.takes(l.Rank(), to) {
		return nil
	}
	return l.Transport.Send(ctx, to, tag, p)
}

func (b *blackHole) takes(from, to int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cuts[[2]int{from, to}]
}

// isolate cuts both ways between a rank and all others.
func (b *blackHole) isolate(rank, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for r := range n {
		b.cuts[[2]int{r, rank}], b.cuts[[2]int{rank, r}] = true, true
	}
}

func leakyWorld() (*blackHole, world) {
	hole := &blackHole{cuts: map[[2]int]bool{}}
	return hole, func(t *testing.T, n int) []transport.Transport {
		ts := memWorld(t, n)
		for r := range ts {
			ts[r] = leaky{ts[r], hole}
		}
		return ts
	}
}

// names reports whether an error blames a rank for want of a sign of life.
func names(err error, rank int) bool {
	var e *PeerError
	return errors.As(err, &e) && e.Rank == rank && errors.Is(err, os.ErrDeadlineExceeded)
}

// Whatever a rank does, it learns of another that is cut off without a reset, and so does that one: in a collective, in the
// queue behind it, in a receive, in a sub-group, or in no call at all.
func TestSilentRankIsNamed(t *testing.T) {
	for victim := range 3 {
		t.Run(fmt.Sprint("rank ", victim), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hole, w := leakyWorld()
				gs := groups(t, w, 3, Config{})
				subs := make([]*ProcessGroup, 3)
				for r, err := range each(gs, func(g *ProcessGroup) (err error) {
					subs[g.Rank()], err = g.Split(t.Context(), 0, -g.Rank())
					return err
				}) {
					if err != nil {
						t.Fatalf("rank %d: %v", r, err)
					}
				}
				begin := time.Now()
				hole.isolate(victim, 3)
				errs := each(gs, func(g *ProcessGroup) error {
					r := g.Rank()
					if r == victim {
						return verdict(g)
					}
					if r == (victim+1)%3 {
						work := AllReduceAsync(t.Context(), g, []float32{1}, Sum)
						if err := g.Barrier(t.Context()); !errors.Is(err, work.Wait(t.Context())) {
							return fmt.Errorf("behind the call: %w", err)
						}
					}
					if _, err := Recv[int8](t.Context(), g, victim, 1); !names(err, victim) {
						t.Errorf("rank %d: Recv from rank %d: %v", r, victim, err)
					}
					if err := Send(t.Context(), g, victim, 1, []int8{1}); !names(err, victim) {
						t.Errorf("rank %d: Send to rank %d: %v", r, victim, err)
					}
					return verdict(g)
				})
				if d := time.Since(begin); d > deadAfter*defaultHeartbeat+defaultHeartbeat/16+lostGrace {
					t.Errorf("known after %v", d)
				}
				for r, err := range errs {
					if !names(err, victim) {
						t.Errorf("rank %d: %v", r, err)
					}
					if err := subs[r].Err(); !names(err, 2-victim) {
						t.Errorf("rank %d, in the sub-group: %v, want its rank %d blamed", r, err, 2-victim)
					}
				}
				alive := []*ProcessGroup{gs[(victim+1)%3], gs[(victim+2)%3]}
				for _, err := range each(alive, func(g *ProcessGroup) error {
					return messageEach(t.Context(), g, alive)
				}) {
					if err != nil {
						t.Errorf("messages among the living: %v", err)
					}
				}
			})
		})
	}
}

// messageEach sends a message to every other of some groups and receives one from each.
func messageEach(ctx context.Context, g *ProcessGroup, all []*ProcessGroup) error {
	for _, o := range all {
		if o != g {
			if err := Send(ctx, g, o.Rank(), 5, []int8{1}); err != nil {
				return err
			}
		}
	}
	for _, o := range all {
		if o != g {
			if _, err := Recv[int8](ctx, g, o.Rank(), 5); err != nil {
				return err
			}
		}
	}
	return nil
}

// A rank that calls nothing for hours is only missing from the call that waits for it: the stall comes, at the deadline. One
// that is cut off is blamed, or missing from the call if its deadline is the earlier of the two.
func TestAbsentIsNotSilent(t *testing.T) {
	const hours = 5 * time.Hour
	for _, c := range []struct {
		timeout time.Duration
		cut     bool
		peer    bool // a PeerError is due
	}{{hours, false, false}, {hours, true, true}, {time.Second, true, false}, {time.Second, false, false}} {
		for name, algorithm := range map[string]Algorithm{"direct": AlgorithmDirect, "ring": AlgorithmRing} {
			t.Run(fmt.Sprint(c.timeout, " cut ", c.cut, " ", name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					hole, w := leakyWorld()
					gs := groups(t, w, 4, Config{Timeout: c.timeout, Algorithm: algorithm})
					if c.cut {
						time.Sleep(time.Minute) // it was there for a while
						hole.isolate(2, 4)
					}
					errs := each(gs, func(g *ProcessGroup) error {
						if g.Rank() == 2 {
							<-g.life.Done()
							return g.Err()
						}
						return AllReduce(t.Context(), g, make([]float32, 1000), Sum)
					})
					for r, err := range errs {
						var e *StallError
						stalled := errors.As(err, &e) && slices.Equal(e.Missing, []int{2})
						if cutOff := c.cut && r == 2; names(err, 2) != (c.peer || cutOff) || stalled == (c.peer || cutOff) {
							t.Errorf("rank %d: %v", r, err)
						}
					}
				})
			})
		}
	}
}

// A world in which nobody calls anything stays whole for as long as it likes, its sub-groups and its ranks with other
// intervals too; so does one with heartbeats off, in which silence means nothing.
func TestIdleForHours(t *testing.T) {
	inFakeTimeOnly(t, func(t *testing.T, w world) {
		ts := w(t, 3)
		gs := make([]*ProcessGroup, 3)
		for r, every := range []time.Duration{0, time.Minute, -1} {
			var err error
			if gs[r], err = New(ts[r], Config{Heartbeat: every}); err != nil {
				t.Fatal(err)
			}
			defer gs[r].Close()
		}
		errs := each(gs, func(g *ProcessGroup) error {
			child, err := g.Split(t.Context(), 0, 0)
			if err != nil {
				return err
			}
			time.Sleep(3 * time.Hour)
			return errors.Join(child.Barrier(t.Context()), g.Barrier(t.Context()))
		})
		for r, err := range errs {
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		}
	})
}

// inFakeTimeOnly is inFakeTime without sockets.
func inFakeTimeOnly(t *testing.T, test func(t *testing.T, w world)) {
	for _, name := range []string{"mem", "plain"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, worlds[name]) })
		})
	}
}

func TestHeartbeatsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hole, w := leakyWorld()
		gs := groups(t, w, 3, Config{Heartbeat: -1})
		time.Sleep(time.Second)
		hole.isolate(1, 3)
		time.Sleep(time.Hour)
		for r, g := range gs {
			if err := g.Err(); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		}
	})
}

// Whether it leaves, dies or is cut off, it becomes known that a rank is gone, and only that one, whatever broke the group.
func TestWhoIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hole, w := leakyWorld()
		gs := groups(t, w, 5, Config{})
		time.Sleep(time.Second)
		for i, part := range []func(){func() { gs[1].Close() }, func() { gs[2].t.Close() }, func() { hole.isolate(3, 5) }} {
			part()
			time.Sleep(time.Minute)
			for _, at := range []int{0, 4} {
				for r := range gs {
					if r != at && gone(gs[at], r) != (r >= 1 && r <= 1+i) {
						t.Errorf("after %d partings, for rank %d rank %d is gone: %v", 1+i, at, r, gone(gs[at], r))
					}
				}
			}
		}
		if err := gs[0].Err(); !strings.Contains(fmt.Sprint(err), "rank 2") {
			t.Errorf("first cause: %v, want rank 2", err)
		}
	})
}
