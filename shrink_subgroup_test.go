package goccl

import (
	"errors"
	"net"
	"slices"
	"testing"
	"time"
)

// shrunkSubs makes a sub-group of four of five ranks, in another order, and shrinks it to three; by rank in the parent, in which
// these are 2, 3 and 4 and the first two are nil.
func shrunkSubs(t *testing.T, gs []*ProcessGroup) []*ProcessGroup {
	t.Helper()
	subs := make([]*ProcessGroup, 5)
	if err := errors.Join(each(gs[1:], func(g *ProcessGroup) (err error) {
		subs[g.Rank()], err = g.Subgroup(t.Context(), []int{4, 1, 3, 2})
		return err
	})...); err != nil {
		t.Fatal(err)
	}
	subs[1].Close() // kill would end the parent too, over a plain transport
	for _, s := range subs[2:] {
		for !gone(s, 1) {
			time.Sleep(time.Millisecond)
		}
	}
	next := mustShrink(t, subs[2:], 1, []int{0, 2, 3})
	return append([]*ProcessGroup{nil, nil}, next...)
}

// What follows a sub-group is one too: its parent works on, ends it, and is what can admit newcomers.
func TestShrinkSubgroup(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, gs, next []*ProcessGroup){
		"Close": func(t *testing.T, gs, next []*ProcessGroup) {
			each(gs, (*ProcessGroup).Close)
			for _, s := range next {
				if err := s.Barrier(t.Context()); !errors.Is(err, net.ErrClosed) {
					t.Errorf("%v, want net.ErrClosed", err)
				}
			}
		},
		"Abort": func(t *testing.T, gs, next []*ProcessGroup) {
			gs[0].Abort(errors.New("enough")) // which is no member
			for _, s := range next {
				if err := verdict(s); !errors.As(err, new(*AbortError)) {
					t.Errorf("%v, want an AbortError", err)
				}
			}
		},
		"Shrink": func(t *testing.T, gs, next []*ProcessGroup) {
			kill(gs[1])
			living := without(gs, 1)
			for _, g := range living {
				verdict(g)
			}
			mustSum(t, next)
			mustShrink(t, living, 1, []int{0, 2, 3, 4})
			for _, s := range next {
				mustBeRetired(t, s)
			}
		},
		"silence": func(t *testing.T, gs, next []*ProcessGroup) {
			gs[2].silenced(&silence{ranks: []int{3}, culprit: 3})
			if peer := (*PeerError)(nil); !errors.As(next[0].Err(), &peer) || peer.Rank != slices.Index([]int{4, 3, 2}, 3) {
				t.Errorf("%v, want a PeerError about rank 1", next[0].Err())
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(t *testing.T, w world) {
				gs := groups(t, w, 5, Config{})
				next := shrunkSubs(t, gs)[2:]
				mustSum(t, gs)
				for _, s := range next {
					if _, err := s.Admit(t.Context()); !errors.Is(err, ErrArgument) {
						t.Errorf("Admit on what follows a sub-group: %v, want ErrArgument", err)
					}
					if s.id == 0 || s.id != next[0].id {
						t.Errorf("rank %d names it %x, rank %d %x", s.Rank(), s.id, next[0].Rank(), next[0].id)
					}
				}
				end(t, gs, next)
			})
		})
	}
}
