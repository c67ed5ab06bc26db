package goccl

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/goccl/goccl/transport"
)

// prepare takes an Admit as far as that all ranks have the larger group, and nobody knows that all have.
func (r *rejoinable) prepare(ctx context.Context) (larger []*ProcessGroup) {
	r.t.Helper()
	larger = make([]*ProcessGroup, len(r.gs))
	if err := errors.Join(each(r.gs, func(g *ProcessGroup) (err error) {
		larger[g.Rank()], err = g.prepareLarger(ctx)
		return err
	})...); err != nil {
		r.t.Fatal(err)
	}
	return larger
}

func (g *ProcessGroup) prepareLarger(ctx context.Context) (*ProcessGroup, error) {
	t := g.Transport().(transport.Regrouper)
	list, number, err := g.gatherNewcomers(ctx, t)
	if err != nil {
		return nil, err
	}
	return g.openLarger(ctx, t, number, list)
}

// A group that breaks with everybody alive, when all ranks have the larger one, goes on as that, whether a rank learns so
// from Admit or from Shrink.
func TestShrinkTakesTheLargerGroup(t *testing.T) {
	for name, admitted := range map[string]int{"nobody was admitted": 0, "one was admitted": 1} {
		t.Run(name, func(t *testing.T) {
			r := startRejoinable(t, 3)
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			defer cancel()
			joined := r.come(ctx, Join)
			larger := r.prepare(ctx)
			for i, g := range r.gs {
				if err := g.offer(larger[i]); err != nil {
					t.Fatal(err)
				}
			}
			next := make([]*ProcessGroup, 3)
			t.Cleanup(func() { closeGroups(next) })
			r.gs[2].Abort(errors.New("enough"))
			errs := each(r.gs, func(g *ProcessGroup) (err error) {
				if g.Rank() < admitted { // it has heard from all
					g.conclude(larger[g.Rank()])
					larger[g.Rank()].stand(ctx)
					next[g.Rank()] = larger[g.Rank()]
					return nil
				}
				verdict(g)
				next[g.Rank()], err = g.Shrink(ctx)
				return err
			})
			came := <-joined
			if err := errors.Join(append(errs, came.err)...); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(next, larger) {
				t.Errorf("Shrink has made other groups than Admit")
			}
			mustSum(t, append(next, came.g))
		})
	}
}

// A group that is closed while Admit opens the larger one leaves nothing of that behind.
func TestCloseDuringAdmit(t *testing.T) {
	for name, late := range map[string]func(t *testing.T, g, larger *ProcessGroup){
		"before the offer": func(t *testing.T, g, larger *ProcessGroup) {
			g.Close()
			if err := g.offer(larger); !errors.Is(err, net.ErrClosed) {
				t.Errorf("the offer: %v, want net.ErrClosed", err)
			}
		},
		"after it": func(t *testing.T, g, larger *ProcessGroup) {
			if err := g.offer(larger); err != nil {
				t.Error(err)
			}
			g.Close()
			if g.conclude(larger) {
				t.Error("it goes on with a group that is closed")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := startRejoinable(t, 2)
			joined := r.come(t.Context(), Join)
			larger := r.prepare(t.Context())
			late(t, r.gs[0], larger[0])
			if err := larger[0].Barrier(t.Context()); !errors.Is(err, net.ErrClosed) {
				t.Errorf("a call on the larger group: %v, want net.ErrClosed", err)
			}
			if err := r.gs[1].offer(larger[1]); err != nil {
				t.Error(err)
			}
			r.gs[1].Close()
			if came := <-joined; came.err == nil {
				t.Error("the newcomer is in a group without others")
			}
		})
	}
}

// A Shrink of a sub-group that waits for somebody ends when the parent does, however that comes about.
func TestParentEndsShrink(t *testing.T) {
	closed := func(err error) bool { // here, or there first
		return errors.Is(err, net.ErrClosed) || errors.Is(err, ErrNoMajority)
	}
	for name, c := range map[string]struct {
		end  func(t *testing.T, gs []*ProcessGroup)
		want func(err error) bool
	}{
		"retired": {func(t *testing.T, gs []*ProcessGroup) { mustShrink(t, gs, 1, []int{1, 2, 3}) }, closed},
		"closed":  {func(t *testing.T, gs []*ProcessGroup) { each(gs, (*ProcessGroup).Close) }, closed},
		"aborted": {func(t *testing.T, gs []*ProcessGroup) { gs[1].Abort(errors.New("enough")) }, func(err error) bool {
			return errors.As(err, new(*AbortError))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(t *testing.T, w world) {
				gs := groups(t, w, 4, Config{Timeout: -1})
				subs := make([]*ProcessGroup, 4)
				if err := errors.Join(each(gs, func(g *ProcessGroup) (err error) {
					subs[g.Rank()], err = g.Split(t.Context(), 0, 0)
					return err
				})...); err != nil {
					t.Fatal(err)
				}
				kill(subs[0])
				kill(gs[0])
				for _, g := range gs[1:] {
					verdict(g)
				}
				ended := make(chan error, 2)
				for _, s := range subs[1:3] { // the third never comes
					verdict(s)
					go func() {
						_, err := s.Shrink(context.Background())
						ended <- err
					}()
				}
				for _, s := range subs[1:3] {
					for running := false; !running; time.Sleep(time.Millisecond) {
						s.mu.Lock()
						running = s.shrink.done != nil
						s.mu.Unlock()
					}
				}
				c.end(t, gs[1:])
				for range 2 {
					if err := <-ended; !c.want(err) {
						t.Errorf("Shrink: %v", err)
					}
				}
			})
		})
	}
}

// Nothing is read any more from a rank that has broken the protocol.
func TestBadAgreementEndsItsStream(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w world) {
		gs := groups(t, w, 2, Config{})
		bad := notice{kind: noticeAgreement, b: "nonsense"}
		gs[1].control.post(gs[1], []outgoing{{0, bad}, {0, bad}, {0, notice{kind: noticeGoodbye}}})
		err := verdict(gs[0])
		if peer := (*PeerError)(nil); !errors.As(err, &peer) || peer.Rank != 1 || !errors.Is(err, errBadAgreement) {
			t.Errorf("%v, want a PeerError about a message of rank 1", err)
		}
		gs[0].control.readers.Wait() // the only one
		gs[0].mu.Lock()
		defer gs[0].mu.Unlock()
		if p := gs[0].health.peers[1]; p.left || gs[0].health.departures != 1 {
			t.Errorf("it has gone %d times, with a goodbye: %v", gs[0].health.departures, p.left)
		}
	})
}

// A rank that waits for a message of one that is in Shrink learns so, and can follow: what had been sent before still arrives, and
// messages among others go on. A Shrink that is given up in time ends none.
func TestShrinkEndsMessages(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w world) {
		gs := groups(t, w, 4, Config{Timeout: -1})
		if err := Send(t.Context(), gs[0], 1, 1, []int8{7}); err != nil {
			t.Fatal(err)
		}
		kill(gs[3])
		for _, g := range gs[:3] {
			verdict(g)
		}
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := gs[0].Shrink(cancelled); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		for waits := true; waits; time.Sleep(time.Millisecond) { // until rank 1 has heard of that, and has let the time pass
			gs[1].mu.Lock()
			waits = gs[1].shrink.agreement == nil || !gs[1].shrink.agreement.peers[0].left || gs[1].shrink.deserters[0]
			gs[1].mu.Unlock()
		}
		for tag := range uint32(2) { // in both directions
			if err := Send(t.Context(), gs[tag], 1-int(tag), 2, []int8{8}); err != nil {
				t.Errorf("after a Shrink that was given up: %v", err)
			}
			if _, err := Recv[int8](t.Context(), gs[1-tag], int(tag), 2); err != nil {
				t.Errorf("after a Shrink that was given up: %v", err)
			}
		}
		next := make([]*ProcessGroup, 3)
		t.Cleanup(func() { closeGroups(next) })
		for r, err := range each(gs[:3], func(g *ProcessGroup) (err error) {
			switch g.Rank() {
			case 1:
				_, err := Recv[int8](t.Context(), g, 0, 3)
				if peer := (*PeerError)(nil); !errors.Is(err, ErrBroken) || !errors.As(err, &peer) || peer.Rank != 3 {
					t.Errorf("Recv from who is in Shrink: %v, want ErrBroken because of rank 3", err)
				}
				if got, err := Recv[int8](t.Context(), g, 0, 1); err != nil || got[0] != 7 {
					t.Errorf("what was sent before: %v, %v", got, err)
				}
				if err := Send(t.Context(), g, 0, 3, []int8{1}); !errors.Is(err, ErrBroken) {
					t.Errorf("Send to who is in Shrink: %v, want ErrBroken", err)
				}
				if err := Send(t.Context(), g, 2, 3, []int8{9}); err != nil {
					t.Errorf("among others: %v", err)
				}
			case 2:
				if _, err := Recv[int8](t.Context(), g, 1, 3); err != nil {
					t.Errorf("among others: %v", err)
				}
			}
			next[g.Rank()], err = g.Shrink(t.Context())
			return err
		}) {
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		}
		if !t.Failed() {
			mustSum(t, next)
		}
	})
}

// A rank whose group works is told by the Shrink of another that it does not there.
func TestShrinkBreaksWhoKnowsNothing(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w world) {
		gs := groups(t, w, 3, Config{})
		vote := agreedMessage{kind: agreedVote, rank: 0}
		gs[0].control.post(gs[0], []outgoing{{1, vote.encode(3)[0]}})
		if err := verdict(gs[1]); !errors.Is(err, errDeserted) {
			t.Errorf("%v, want the news that rank 0 has called Shrink", err)
		}
	})
}
