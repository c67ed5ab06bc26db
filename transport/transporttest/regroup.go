package transporttest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/goccl/goccl/transport"
)

// regroup tests Regroup, if the transport has it.
func (s *suite) regroup(t *testing.T) {
	_, ts := s.world(t, 1)
	if _, ok := ts[0].(transport.Regrouper); !ok {
		t.Log("the transport is no Regrouper")
		return
	}
	t.Run("Survivors", s.regroupSurvivors)
	t.Run("Arguments", s.regroupArguments)
	t.Run("MidFrame", s.regroupMidFrame)
	t.Run("Independent", s.regroupIndependent)
	t.Run("Subset", s.regroupSubset)
	t.Run("Cancelled", s.regroupCancelled)
	t.Run("WithoutPeer", s.regroupWithoutPeer)
	t.Run("Often", s.regroupOften)
}

// nextEpoch regroups on all members, which are ranks of ts.
func nextEpoch(ctx context.Context, t *testing.T, ts []transport.Transport, number uint64, ranks ...int) []transport.Transport {
	t.Helper()
	fresh := make([]transport.Transport, len(ranks))
	var members []transport.Transport
	index := map[transport.Transport]int{}
	for i, r := range ranks {
		members = append(members, ts[r])
		index[ts[r]] = i
	}
	together(t, members, func(tr transport.Transport) error {
		next, err := tr.(transport.Regrouper).Regroup(ctx, transport.Epoch{Number: number, Ranks: ranks})
		if err != nil {
			return err
		}
		fresh[index[tr]] = next
		if e := next.(transport.Regrouper).Epoch(); next.Rank() != index[tr] || next.Size() != len(ranks) || e != number {
			return fmt.Errorf("rank %d of %d in epoch %d of ranks %v", next.Rank(), next.Size(), e, ranks)
		}
		return nil
	})
	t.Cleanup(func() { closeAll(fresh) })
	return fresh
}

// works sends something from every rank to its next in each class.
func works(ctx context.Context, t *testing.T, ts []transport.Transport) {
	t.Helper()
	if len(ts) == 1 {
		return
	}
	for _, class := range classes {
		together(t, ts, func(tr transport.Transport) error { return ringOnce(ctx, tr, class) })
	}
	if _, ok := ts[0].(transport.Exchanger); !ok {
		return
	}
	together(t, ts, func(tr transport.Transport) error {
		next, prev := (tr.Rank()+1)%tr.Size(), (tr.Rank()+tr.Size()-1)%tr.Size()
		in := newCopySink(100_000, 100_000)
		err := exchange(ctx, tr, 5, transport.Step{Peer: next, Out: pattern(make([]byte, 100_000), tr.Rank())},
			transport.Step{Peer: prev, In: in, InLen: 100_000})
		return errors.Join(err, firstDifference(in.b, pattern(make([]byte, 100_000), prev)))
	})
}

// regroupSurvivors goes on without ranks that have closed, with others in another order, and at last alone.
func (s *suite) regroupSurvivors(t *testing.T) {
	ctx, ts := s.world(t, 5)
	if e := ts[3].(transport.Regrouper).Epoch(); e != 0 {
		t.Errorf("epoch %d at the start", e)
	}
	closeInTime(t, ts[0])
	closeInTime(t, ts[2])
	a := nextEpoch(ctx, t, ts, 1, 4, 1, 3)
	works(ctx, t, a)
	closeInTime(t, a[1]) // rank 1 at first
	b := nextEpoch(ctx, t, a, 7, 0, 2)
	works(ctx, t, b)
	closeInTime(t, b[0])
	c := nextEpoch(ctx, t, b, 8, 1)
	if c[0].Size() != 1 {
		t.Errorf("size %d", c[0].Size())
	}
	closeInTime(t, nextEpoch(ctx, t, c, 9, 0)[0])
}

func (s *suite) regroupArguments(t *testing.T) {
	ctx, ts := s.world(t, 3)
	grown := nextEpoch(ctx, t, ts, 4, 0, 1, 2)
	for name, next := range map[string]transport.Epoch{
		"same number": {Number: 4, Ranks: []int{0, 1}}, "lower number": {Number: 3, Ranks: []int{0, 1}},
		"without itself": {Number: 5, Ranks: []int{1, 2}}, "twice": {Number: 5, Ranks: []int{0, 1, 1}},
		"no such rank": {Number: 5, Ranks: []int{0, 3}}, "negative": {Number: 5, Ranks: []int{0, -1}}, "nobody": {Number: 5},
		"no newcomer": {Number: 5, Ranks: []int{0}, Newcomers: [][]byte{[]byte("who is that?")}},
	} {
		if tr, err := grown[0].(transport.Regrouper).Regroup(ctx, next); err == nil {
			tr.Close()
			t.Errorf("%s: no error", name)
		}
	}
	ended, cancel := context.WithCancelCause(ctx)
	cancel(errCause)
	next := transport.Epoch{Number: 6, Ranks: []int{0, 1}}
	if _, err := grown[0].(transport.Regrouper).Regroup(ended, next); !errors.Is(err, errCause) {
		t.Errorf("ended context: %v", err)
	}
	closeInTime(t, grown[0])
	if _, err := grown[0].(transport.Regrouper).Regroup(ctx, next); !errors.Is(err, errClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// regroupMidFrame goes on after frames were cut off in the middle, by a rank that closed and by a context that ended.
func (s *suite) regroupMidFrame(t *testing.T) {
	ctx, ts := s.world(t, 3)
	var calls []<-chan error
	short, cancel := context.WithCancelCause(ctx)
	for _, tr := range ts {
		for _, class := range []transport.Class{transport.Collective, transport.PointToPoint} {
			next, prev := (tr.Rank()+1)%3, (tr.Rank()+2)%3
			calls = append(calls, start(func() error { return tr.Send(short, next, tagOf(class, 1), make([]byte, s.large)) }))
			calls = append(calls, start(func() error { return tr.Recv(short, prev, tagOf(class, 1), make([]byte, s.large)) }))
		}
	}
	time.AfterFunc(20*time.Millisecond, func() { cancel(errCause) })
	closeInTime(t, ts[1])
	fresh := nextEpoch(ctx, t, ts, 1, 0, 2)
	works(ctx, t, fresh)
	for _, c := range calls {
		<-c // it was complete, cut off, or lost its peer
	}
	closeInTime(t, ts[0])
	closeInTime(t, ts[2])
	works(ctx, t, fresh)
}

// regroupIndependent: neither of two epochs notices when the other is closed.
func (s *suite) regroupIndependent(t *testing.T) {
	ctx, ts := s.world(t, 3)
	a := nextEpoch(ctx, t, ts, 1, 0, 1, 2)
	b := nextEpoch(ctx, t, ts, 2, 2, 1, 0)
	waiting := s.pending(ctx, a[1], 0)
	closeInTime(t, a[0])
	for i, c := range waiting {
		if err := ends(<-c, false, 0); err != nil {
			t.Errorf("call %d in the closed epoch: %v", i, err)
		}
	}
	works(ctx, t, ts)
	works(ctx, t, b)
	got := start(func() error { return b[0].Recv(ctx, 1, tagOf(transport.Control, 9), make([]byte, 1)) })
	for _, old := range append(ts, a[1:]...) {
		closeInTime(t, old)
	}
	if err := b[1].Send(ctx, 0, tagOf(transport.Control, 9), []byte{1}); err != nil {
		t.Error(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
	works(ctx, t, b)
}

// regroupSubset: a sub-group has a next epoch too, which does not end with the world it came from.
func (s *suite) regroupSubset(t *testing.T) {
	ctx, ts := s.world(t, 4)
	if _, ok := ts[0].(transport.Subsetter); !ok {
		t.Skip("the transport is no Subsetter")
	}
	child := subsets(ctx, t, ts, 1<<63|1, 3, 0, 2)
	closeInTime(t, ts[0]) // and with it its child
	fresh := nextEpoch(ctx, t, child, 1, 2, 0)
	other := nextEpoch(ctx, t, ts, 1, 2, 1)
	closeAll(ts)
	works(ctx, t, fresh)
	works(ctx, t, other)
	works(ctx, t, subsets(ctx, t, fresh, 5, 1, 0))
}

// regroupCancelled: attempts that cannot succeed because one member never calls, and that others give up sooner or later,
// leave the next attempt a fresh one.
func (s *suite) regroupCancelled(t *testing.T) {
	ctx, ts := s.world(t, 4)
	for i := range 8 {
		quitter := i % 4
		number := uint64(i + 1)
		short, cancel := context.WithCancelCause(ctx)
		bounded, free := context.WithTimeout(ctx, 200*time.Millisecond)
		var calls []<-chan error
		members := []int{quitter, (quitter + 1) % 4, (quitter + 3) % 4}
		for _, r := range members {
			tr, its := ts[r], bounded
			if r == quitter {
				its = short
			}
			calls = append(calls, start(func() error {
				next, err := tr.(transport.Regrouper).Regroup(its, transport.Epoch{Number: number, Ranks: []int{0, 1, 2, 3}})
				if err == nil {
					next.Close()
				}
				return err
			}))
		}
		if i < 4 { // in the middle of it; else before most have begun
			time.Sleep(20 * time.Millisecond)
		}
		cancel(errCause)
		for k, c := range calls {
			err := <-c
			if k == 0 && !errors.Is(err, errCause) {
				t.Errorf("attempt %d: rank %d gave up: %v", i, quitter, err)
			}
			if err == nil {
				t.Errorf("attempt %d: rank %d has got an epoch in which rank %d is not", i, members[k], (quitter+2)%4)
			}
		}
		cancel(nil)
		free()
	}
	works(ctx, t, ts)
	works(ctx, t, nextEpoch(ctx, t, ts, 100, 0, 1, 2, 3))
}

// regroupWithoutPeer: a member that closes in place of calling Regroup is named, by its rank in the next epoch, and so is one
// that never calls when time runs out; those who close while they wait do not wait any longer.
func (s *suite) regroupWithoutPeer(t *testing.T) {
	ctx, ts := s.world(t, 5)
	attempt := func(ctx context.Context, r int, number uint64, ranks ...int) <-chan error {
		return start(func() error {
			next, err := ts[r].(transport.Regrouper).Regroup(ctx, transport.Epoch{Number: number, Ranks: ranks})
			if err == nil {
				next.Close()
			}
			return err
		})
	}
	short, cancel := context.WithTimeoutCause(ctx, 50*time.Millisecond, errCause)
	defer cancel()
	if err := <-attempt(short, 0, 1, 4, 0); !errors.Is(err, errCause) {
		t.Errorf("a peer that never calls: %v", err)
	}
	calls := []<-chan error{attempt(ctx, 4, 2, 0, 2, 4), attempt(ctx, 0, 2, 0, 2, 4)}
	closing := attempt(ctx, 3, 3, 1, 3)
	closeInTime(t, ts[2])
	closeInTime(t, ts[3])
	for i, c := range calls {
		if err := ends(<-c, false, 1); err != nil {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if err := ends(<-closing, true, 0); err != nil {
		t.Error(err)
	}
	works(ctx, t, nextEpoch(ctx, t, ts, 4, 4, 0))
}

// regroupOften passes through many epochs and leaves nothing behind.
func (s *suite) regroupOften(t *testing.T) {
	ctx, ts := s.world(t, 3)
	pass := func(number uint64) {
		fresh := make([]transport.Transport, len(ts))
		together(t, ts, func(tr transport.Transport) error {
			next, err := tr.(transport.Regrouper).Regroup(ctx, transport.Epoch{Number: number, Ranks: []int{1, 2, 0}})
			if err == nil {
				fresh[next.Rank()] = next
			}
			return err
		})
		old := ts
		if ts = fresh; number%2 == 0 {
			closeAll(old)
		}
		works(ctx, t, fresh)
		if number%2 == 1 {
			closeAll(old)
		}
	}
	pass(1)
	before := runtime.NumGoroutine()
	for i := range uint64(50) {
		pass(i + 2)
	}
	settles(t, before)
	closeAll(ts)
}
