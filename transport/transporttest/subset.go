package transporttest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/goccl/goccl/transport"
)

// subset tests Subset, if the transport has it.
func (s *suite) subset(t *testing.T) {
	_, ts := s.world(t, 1)
	if _, ok := ts[0].(transport.Subsetter); !ok {
		t.Log("the transport is no Subsetter")
		return
	}
	t.Run("Members", s.subsetMembers)
	t.Run("Arguments", s.subsetArguments)
	t.Run("Close", s.subsetClose)
	t.Run("Independent", s.subsetIndependent)
	t.Run("WithoutPeer", s.subsetWithoutPeer)
}

// subsets makes a sub-group on all its members, which are ranks of ts.
func subsets(ctx context.Context, t *testing.T, ts []transport.Transport, id uint64, ranks ...int) []transport.Transport {
	t.Helper()
	children := make([]transport.Transport, len(ranks))
	var members []transport.Transport
	index := map[transport.Transport]int{}
	for i, r := range ranks {
		members = append(members, ts[r])
		index[ts[r]] = i
	}
	together(t, members, func(tr transport.Transport) error {
		child, err := tr.(transport.Subsetter).Subset(ctx, id, ranks)
		if err == nil && (child.Rank() != index[tr] || child.Size() != len(ranks)) {
			err = fmt.Errorf("rank %d of %d in the sub-group %v", child.Rank(), child.Size(), ranks)
		}
		children[index[tr]] = child
		return err
	})
	t.Cleanup(func() { closeAll(children) })
	return children
}

// subsetMembers makes sub-groups with permuted ranks, in sub-groups, beside each other, and of one.
func (s *suite) subsetMembers(t *testing.T) {
	ctx, ts := s.world(t, 4)
	a := subsets(ctx, t, ts, 1<<63|1, 3, 0, 2)
	b := subsets(ctx, t, ts, 2, 1, 3)
	c := subsets(ctx, t, a, 3, 2, 0) // ranks 2 and 3 of the world
	d := subsets(ctx, t, ts, 4, 1)
	for _, group := range [][]transport.Transport{a, b, c, ts} {
		for _, class := range classes {
			together(t, group, func(tr transport.Transport) error { return ringOnce(ctx, tr, class) })
		}
		if _, ok := group[0].(transport.Exchanger); !ok {
			continue
		}
		together(t, group, func(tr transport.Transport) error {
			next, prev := (tr.Rank()+1)%tr.Size(), (tr.Rank()+tr.Size()-1)%tr.Size()
			in := newCopySink(100_000, 100_000)
			err := exchange(ctx, tr, 5, transport.Step{Peer: next, Out: pattern(make([]byte, 100_000), tr.Rank())},
				transport.Step{Peer: prev, In: in, InLen: 100_000})
			return errors.Join(err, firstDifference(in.b, pattern(make([]byte, 100_000), prev)))
		})
	}
	closeInTime(t, d[0])
}

func (s *suite) subsetArguments(t *testing.T) {
	ctx, ts := s.world(t, 3)
	for name, c := range map[string]struct {
		id    uint64
		ranks []int
	}{
		"id 0": {0, []int{0, 1}}, "without itself": {1, []int{1, 2}}, "twice": {1, []int{0, 1, 1}},
		"no such rank": {1, []int{0, 3}}, "negative": {1, []int{0, -1}}, "nobody": {1, nil},
	} {
		if child, err := ts[0].(transport.Subsetter).Subset(ctx, c.id, c.ranks); err == nil {
			child.Close()
			t.Errorf("%s: no error", name)
		}
	}
	ended, cancel := context.WithCancelCause(ctx)
	cancel(errCause)
	if child, err := ts[0].(transport.Subsetter).Subset(ended, 9, []int{0, 1}); !errors.Is(err, errCause) {
		child.Close()
		t.Errorf("ended context: %v", err)
	}
}

// subsetClose: closing a sub-group leaves its parent working; closing the parent ends its sub-groups.
func (s *suite) subsetClose(t *testing.T) {
	ctx, ts := s.world(t, 3)
	a := subsets(ctx, t, ts, 1, 0, 1)
	b := subsets(ctx, t, ts, 2, 0, 1)
	waiting := s.pending(ctx, a[1], 0)
	closeInTime(t, a[0])
	for i, c := range waiting {
		if err := ends(<-c, false, 0); err != nil {
			t.Errorf("call %d in the closed sub-group: %v", i, err)
		}
	}
	for _, group := range [][]transport.Transport{b, ts} {
		together(t, group, func(tr transport.Transport) error { return ringOnce(ctx, tr, transport.Collective) })
	}
	here := s.pending(ctx, b[0], 1)
	there := start(func() error { return b[1].Recv(ctx, 0, tagOf(transport.Control, 1), make([]byte, 9)) })
	closeInTime(t, ts[0])
	for i, c := range here {
		if err := ends(<-c, true, 0); err != nil {
			t.Errorf("call %d of the closed parent's sub-group: %v", i, err)
		}
	}
	if err := ends(<-there, false, 0); err != nil {
		t.Errorf("call of its peer: %v", err)
	}
	if _, err := ts[0].(transport.Subsetter).Subset(ctx, 3, []int{0, 1}); !errors.Is(err, errClosed) {
		t.Errorf("Subset after Close: %v", err)
	}
}

// subsetIndependent: a sub-group in which nobody receives holds up neither its parent nor another sub-group.
func (s *suite) subsetIndependent(t *testing.T) {
	ctx, ts := s.world(t, 2)
	a, b := subsets(ctx, t, ts, 1, 0, 1), subsets(ctx, t, ts, 2, 1, 0)
	payload := pattern(make([]byte, s.large/4), 1)
	var sends []<-chan error
	for _, c := range classes {
		sends = append(sends, start(func() error { return a[0].Send(ctx, 1, tagOf(c, 1), payload) }))
	}
	for _, group := range [][]transport.Transport{b, ts} {
		for _, c := range classes {
			together(t, group, func(tr transport.Transport) error { return ringOnce(ctx, tr, c) })
		}
	}
	for i, c := range classes {
		got := make([]byte, len(payload))
		if err := errors.Join(a[1].Recv(ctx, 0, tagOf(c, 1), got), <-sends[i], firstDifference(got, payload)); err != nil {
			t.Errorf("%v: %v", c, err)
		}
	}
}

// subsetWithoutPeer: where a member closes its transport in place of calling Subset, the others get an error that names it,
// from Subset or from the first call that needs it; and those who close while they wait for it do not wait any longer.
func (s *suite) subsetWithoutPeer(t *testing.T) {
	ctx, ts := s.world(t, 4)
	use := func(rank, absent int, id uint64) error {
		child, err := ts[rank].(transport.Subsetter).Subset(ctx, id, []int{absent, rank})
		if err != nil {
			return err
		}
		defer child.Close()
		err = child.Recv(ctx, 0, tagOf(transport.Collective, 1), nil)
		var peer *transport.PeerError
		if errors.As(err, &peer) && peer.Rank == 0 {
			peer.Rank = absent
		}
		return err
	}
	low, high := start(func() error { return use(0, 2, 1) }), start(func() error { return use(3, 2, 2) })
	closing := start(func() error { return use(1, 0, 3) })
	closeInTime(t, ts[2])
	closeInTime(t, ts[1])
	for _, c := range []<-chan error{low, high} {
		if err := ends(<-c, false, 2); err != nil {
			t.Error(err)
		}
	}
	if err := ends(<-closing, true, 0); err != nil {
		t.Error(err)
	}
}
