package mem

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/internal/link"
)

// Epoch implements transport.Regrouper.
func (r *rank) Epoch() uint64 { return r.world.epoch }

// Waiting implements transport.Regrouper: nobody comes to a world in memory.
func (r *rank) Waiting() [][]byte { return nil }

// Regroup implements transport.Regrouper, but for newcomers.
func (r *rank) Regroup(ctx context.Context, next transport.Epoch) (transport.Transport, error) {
	if err := link.CheckEpoch(r.Rank(), r.Size(), r.Epoch(), next); err != nil {
		return nil, fmt.Errorf("mem: %w", err)
	}
	if len(next.Newcomers) > 0 {
		return nil, fmt.Errorf("mem: regroup: newcomers: %w", errors.ErrUnsupported)
	}
	select {
	case <-r.gone:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	default:
	}
	t, err := r.gather(next)
	if err != nil {
		select {
		case <-r.gone: // meanwhile, which counts as having come and gone
			return nil, net.ErrClosed
		default:
			return nil, err
		}
	}
	self := slices.Index(next.Ranks, r.Rank())
	select {
	case <-t.over:
	case <-ctx.Done():
		t.fail(self, context.Cause(ctx))
	case <-r.gone:
		t.fail(self, net.ErrClosed)
	}
	<-t.over
	switch {
	case t.err == nil:
		return newRank(t.world, t.space, self), nil
	case t.culprit == self:
		return nil, t.err
	}
	peer := &transport.PeerError{Rank: t.culprit, Addr: r.Addr(next.Ranks[t.culprit]), Err: fmt.Errorf("it gave up: %v", t.err)} // its cause is not ours
	return nil, fmt.Errorf("mem: epoch %d: %w", next.Number, peer)
}

// A turnout is the next epoch while its members come together.
type turnout struct {
	ranks []int // of the space it comes from
	world *world
	space *space

	mu      sync.Mutex
	entered []bool
	over    chan struct{} // closed when all have entered, or one will not
	ended   bool          // over is closed
	culprit int           // constant once over is closed, like err
	err     error
}

type turnoutKey struct {
	from  *space
	epoch uint64
}

// gather enters the next epoch; the first member to come makes it. It is kept until every member has entered or closed.
func (r *rank) gather(next transport.Epoch) (*turnout, error) {
	w := r.world
	w.mu.Lock()
	defer w.mu.Unlock()
	key := turnoutKey{r.space, next.Number}
	t := w.turnouts[key]
	if t == nil {
		t = newTurnout(w, r.space, next)
		w.turnouts[key] = t
	}
	self := slices.Index(next.Ranks, r.Rank())
	if !slices.Equal(t.ranks, next.Ranks) || !t.enter(self) {
		return nil, fmt.Errorf("mem: regroup: epoch %d was tried before, with ranks %v", next.Number, t.ranks)
	}
	if t.complete() {
		delete(w.turnouts, key)
	}
	return t, nil
}

func newTurnout(old *world, from *space, next transport.Epoch) *turnout {
	t := &turnout{ranks: slices.Clone(next.Ranks), entered: make([]bool, len(next.Ranks)), over: make(chan struct{})}
	t.world = &world{
		options: old.options, epoch: next.Number,
		spaces: make(map[uint64]*space), turnouts: make(map[turnoutKey]*turnout),
	}
	t.space = newSpace(nil, next.Ranks)
	for i, p := range next.Ranks {
		t.space.names[i] = from.names[p]
		if from.hasLeft(p) {
			t.forgo(i)
		}
	}
	return t
}

// enter notes that a member has come; false: it has before.
func (t *turnout) enter(rank int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.entered[rank] {
		return false
	}
	t.entered[rank] = true
	if !slices.Contains(t.entered, false) {
		t.end(0, nil)
	}
	return true
}

// forgo notes that a member which has not come has closed.
func (t *turnout) forgo(rank int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.entered[rank] {
		t.entered[rank] = true
		t.end(rank, errors.New("it left before all had come"))
	}
}

// fail ends it for everybody, unless it has ended.
func (t *turnout) fail(culprit int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end(culprit, err)
}

// end is fail with t.mu held.
func (t *turnout) end(culprit int, err error) {
	if !t.ended {
		t.ended, t.culprit, t.err = true, culprit, err
		close(t.over)
	}
}

// complete tells whether nobody is to come any more.
func (t *turnout) complete() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !slices.Contains(t.entered, false)
}
