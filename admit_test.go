package goccl

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/tcp"
)

// A rejoinable is a run that processes can come to.
type rejoinable struct {
	t  *testing.T
	at string
	gs []*ProcessGroup
}

func startRejoinable(t *testing.T, n int) *rejoinable {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return &rejoinable{t, ln.Addr().String(), joinAll(t, ln, n, "r")}
}

type joinResult struct {
	g   *ProcessGroup
	err error
}

// come starts a newcomer and returns once it waits at one of the ranks.
func (r *rejoinable) come(ctx context.Context, join func(ctx context.Context, cfg JoinConfig) (*ProcessGroup, error)) <-chan joinResult {
	r.t.Helper()
	before := waitingAt(r.gs)
	got := make(chan joinResult, 1)
	go func() {
		g, err := join(ctx, JoinConfig{Rank: 1, Size: 2, Coordinator: r.at, RunID: "r", Timeout: 30 * time.Second})
		if g != nil {
			r.t.Cleanup(func() { g.Close() })
		}
		got <- joinResult{g, err}
	}()
	for deadline := time.Now().Add(20 * time.Second); waitingAt(r.gs) == before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatal("nobody waits")
		}
	}
	return got
}

func waitingAt(gs []*ProcessGroup) (n int) {
	for _, g := range gs {
		n += len(g.Transport().(transport.Regrouper).Waiting())
	}
	return n
}

// admit calls Admit on all ranks; the test closes what comes of it.
func (r *rejoinable) admit(ctx context.Context) ([]*ProcessGroup, []error) {
	next := make([]*ProcessGroup, len(r.gs))
	errs := each(r.gs, func(g *ProcessGroup) error {
		n, err := g.Admit(ctx)
		next[slices.Index(r.gs, g)] = n
		return err
	})
	r.t.Cleanup(func() { closeGroups(next) })
	return next, errs
}

func TestAdmitNobody(t *testing.T) {
	overWorlds(t, func(t *testing.T, w world) {
		runRanks(t, w, 3, func(ctx context.Context, g *ProcessGroup) error {
			for range 3 {
				if next, err := g.Admit(ctx); err != nil || next != g {
					return errors.Join(err, errors.New("not the same group"))
				}
			}
			return nil
		})
	})
}

// TestAdmit lets processes come one by one and two at a time, and a rank die in between.
func TestAdmit(t *testing.T) {
	r := startRejoinable(t, 2)
	epoch := uint64(0)
	grow := func(come int) {
		t.Helper()
		old := len(r.gs)
		var joins []<-chan joinResult
		for range come {
			joins = append(joins, r.come(t.Context(), Join))
		}
		next, errs := r.admit(t.Context())
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		epoch++
		parents := make([]int, old+come)
		for i := range parents {
			parents[i] = i
			if i >= old {
				parents[i] = -1
			}
		}
		for i, g := range next {
			if g.Rank() != r.gs[i].Rank() || !slices.Equal(g.ParentRanks(), parents) {
				t.Fatalf("rank %d has become %d, parents %v", r.gs[i].Rank(), g.Rank(), g.ParentRanks())
			}
			mustBeRetired(t, r.gs[i])
		}
		for _, j := range joins {
			got := <-j
			if got.err != nil {
				t.Fatal(got.err)
			}
			if got.g.ParentRanks() != nil || got.g.Rank() < old {
				t.Fatalf("newcomer is rank %d with parents %v", got.g.Rank(), got.g.ParentRanks())
			}
			next = append(next, got.g)
		}
		for _, g := range next {
			if g.Epoch() != epoch || g.Size() != old+come {
				t.Fatalf("epoch %d with %d ranks, want epoch %d with %d", g.Epoch(), g.Size(), epoch, old+come)
			}
		}
		slices.SortFunc(next, func(a, b *ProcessGroup) int { return a.Rank() - b.Rank() })
		r.gs = next
		mustSum(t, r.gs)
	}
	grow(1)
	grow(2)
	waits := r.come(t.Context(), Join)
	kill(r.gs[0]) // which was the coordinator
	living := r.gs[1:]
	for _, g := range living {
		verdict(g)
	}
	epoch++
	r.gs = mustShrink(t, living, epoch, []int{1, 2, 3, 4})
	slices.SortFunc(r.gs, func(a, b *ProcessGroup) int { return a.Rank() - b.Rank() })
	if n := waitingAt(r.gs); n == 1 { // it waits at a rank that lives
		next, errs := r.admit(t.Context())
		got := <-waits
		if err := errors.Join(append(errs, got.err)...); err != nil {
			t.Fatal(err)
		}
		epoch++
		r.gs = append(next, got.g)
		mustSum(t, r.gs)
	}
}

// admitOnly is a Join that goes no further than to be admitted.
func admitOnly(then func(t *tcp.Transport)) func(context.Context, JoinConfig) (*ProcessGroup, error) {
	return func(ctx context.Context, cfg JoinConfig) (*ProcessGroup, error) {
		tr, err := cfg.connect(ctx)
		if err == nil {
			then(tr.(*tcp.Transport))
		}
		return nil, err
	}
}

// TestAdmitFails admits a newcomer that dies at once, and one that does not go on: the group works as before, and the next
// newcomer comes in.
func TestAdmitFails(t *testing.T) {
	for name, c := range map[string]struct {
		then  func(t *testing.T) func(tr *tcp.Transport)
		bound time.Duration
	}{
		"dies": {func(*testing.T) func(*tcp.Transport) { return func(tr *tcp.Transport) { tr.Close() } }, 30 * time.Second},
		"hangs": {func(t *testing.T) func(*tcp.Transport) {
			return func(tr *tcp.Transport) { t.Cleanup(func() { tr.Close() }) }
		}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			r := startRejoinable(t, 3)
			newcomer := r.come(t.Context(), admitOnly(c.then(t)))
			ctx, cancel := context.WithTimeout(t.Context(), c.bound)
			defer cancel()
			_, errs := r.admit(ctx)
			<-newcomer
			for i, err := range errs {
				var peer *PeerError
				var stall *StallError
				if !(errors.As(err, &peer) && peer.Rank == 3) && !(errors.As(err, &stall) && slices.Equal(stall.Missing, []int{3})) {
					t.Errorf("rank %d: %v, want an error about rank 3", i, err)
				}
			}
			mustSum(t, r.gs)
			waits := r.come(t.Context(), Join)
			next, errs := r.admit(t.Context())
			got := <-waits
			if err := errors.Join(append(errs, got.err)...); err != nil {
				t.Fatal(err)
			}
			mustSum(t, append(next, got.g))
		})
	}
}

func TestAdmitCancelled(t *testing.T) {
	r := startRejoinable(t, 3)
	r.come(t.Context(), admitOnly(func(tr *tcp.Transport) { t.Cleanup(func() { tr.Close() }) }))
	why := errors.New("changed my mind")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		for opening := false; !opening; time.Sleep(time.Millisecond) { // until rank 1 has heard of the newcomer, and waits for it
			r.gs[1].mu.Lock()
			mine := r.gs[1].health.mine
			opening = mine.seq == 2 && !mine.running
			r.gs[1].mu.Unlock()
		}
		cancel(why)
	}()
	next, errs := make([]*ProcessGroup, 3), make([]error, 3)
	var wg sync.WaitGroup
	for i, g := range r.gs {
		wg.Go(func() {
			c := t.Context()
			if i == 1 {
				c = ctx
			}
			next[i], errs[i] = g.Admit(c)
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err == nil {
			t.Errorf("rank %d: got a group of %d", i, next[i].Size())
		}
	}
	if !errors.Is(errs[1], why) {
		t.Errorf("rank 1: %v, want the cause of its context", errs[1])
	}
	mustSum(t, r.gs)
}

// TestAdmitWhileARankDies lets a rank die at any moment of an Admit. Whoever lives ends up in one group.
func TestAdmitWhileARankDies(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 12 {
		r := startRejoinable(t, 4)
		newcomer := r.come(t.Context(), Join)
		delay := time.Duration(rng.IntN(8)) * 500 * time.Microsecond
		var next []*ProcessGroup
		var errs []error
		var wg sync.WaitGroup
		wg.Go(func() { next, errs = r.admit(t.Context()) })
		time.Sleep(delay)
		kill(r.gs[3])
		wg.Wait()
		if next[3] != nil {
			kill(next[3])
		}
		has := slices.Clone(r.gs[:3])
		for i, g := range next[:3] {
			if g != nil {
				has[i] = g
			}
		}
		if has[0].Size() == 5 { // else it is not in, and waits on or has been told so
			if got := <-newcomer; got.err == nil {
				has = append(has, got.g)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		defer cancel()
		last := make([]*ProcessGroup, len(has))
		for i, err := range each(has, func(g *ProcessGroup) (err error) {
			last[slices.Index(has, g)], err = shrinkUntilItWorks(ctx, g)
			return err
		}) {
			if err != nil {
				t.Errorf("rank %d: %v (Admit said %v)", i, err, errs)
			}
		}
		t.Cleanup(func() { closeGroups(last) })
		if t.Failed() {
			return
		}
		for _, g := range last {
			if g.Epoch() != last[0].Epoch() || g.Size() != len(last) {
				t.Fatalf("one is in epoch %d of %d ranks, another in %d of %d", g.Epoch(), g.Size(), last[0].Epoch(), last[0].Size())
			}
		}
		closeGroups(last)
	}
}

// shrinkUntilItWorks is the loop of a program that goes on whatever happens.
func shrinkUntilItWorks(ctx context.Context, g *ProcessGroup) (*ProcessGroup, error) {
	for {
		err := AllReduce(ctx, g, []int32{1}, Sum)
		if err == nil {
			return g, nil
		}
		if g, err = g.Shrink(ctx); err != nil {
			return nil, err
		}
	}
}

func TestNewcomersList(t *testing.T) {
	list := [][]byte{{1}, nil, make([]byte, 300), {2, 3}}
	got, ok := decodeNewcomers(encodeNewcomers(list))
	if !ok || !slices.EqualFunc(got, list, slices.Equal) {
		t.Errorf("%v, want %v", got, list)
	}
	many := encodeNewcomers(slices.Repeat(list, 1000))
	if _, ok := decodeNewcomers(many); !ok || len(many) > admitOffers {
		t.Errorf("%d bytes, readable %v", len(many), ok)
	}
	for _, bad := range [][]byte{{1}, {1, 0, 0}, {2, 0, 0, 0, 9}, {255, 255, 255, 255, 1}} {
		if list, ok := decodeNewcomers(bad); ok {
			t.Errorf("%v taken as %v", bad, list)
		}
	}
}
