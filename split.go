package goccl

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"net"
	"slices"
	"sync"

	"github.com/goccl/goccl/dtype"
	"github.com/goccl/goccl/ring"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/mem"
)

// children are the sub-groups split off a group.
type children struct {
	mu      sync.Mutex
	open    map[uint64]*ProcessGroup
	opening map[uint64]context.CancelCauseFunc // ends the opening of a sub-group on this rank
	failed  map[uint64]error                   // sub-groups that another member could not open, told before we tried
	named   map[string]uint64                  // how many sub-groups have been made of each list of ranks by Subgroup
	ended   []uint64                           // openings and sub-groups that ended last: news of them comes too late
	over    error                              // set: no more children
}

// opening is what errors call the making of a sub-group.
const opening = "sub-group"

// maxFailedChildren bounds what is remembered of sub-groups that failed or ended.
const maxFailedChildren = 1 << 10

// Split divides the group: ranks with the same color form a sub-group, ordered by key and then by rank. A rank with a negative
// color is in none and gets nil. All ranks call it; it takes its place in the order of collectives. The sub-group has
// connections of its own; the parent's Close or Abort ends it, and its failure leaves the parent usable.
func (g *ProcessGroup) Split(ctx context.Context, color, key int) (*ProcessGroup, error) {
	mine := []int64{int64(color), int64(key)}
	all := make([]int64, 2*g.size)
	seq, err := g.runNumbered(ctx, ring.Call{Op: ring.OpAllGather, Dst: dtype.Of(all), Src: dtype.Of(mine)})
	if err != nil {
		return nil, err
	}
	if color < 0 {
		return nil, nil
	}
	var ranks []int
	for r := range g.size {
		if all[2*r] == mine[0] {
			ranks = append(ranks, r)
		}
	}
	slices.SortStableFunc(ranks, func(a, b int) int { return cmp.Compare(all[2*a+1], all[2*b+1]) })
	return g.openChild(ctx, fmt.Sprint("split", ranks), seq, ranks)
}

// Subgroup makes a sub-group of the given ranks, in that order. Only they call it, each with the same list. It takes no place
// in the order of collectives, but calls with the same list do among themselves. Otherwise it is like Split.
func (g *ProcessGroup) Subgroup(ctx context.Context, ranks []int) (*ProcessGroup, error) {
	ranks = slices.Clone(ranks)
	sorted := slices.Sorted(slices.Values(ranks))
	for i, r := range sorted {
		switch {
		case r < 0 || r >= g.size:
			return nil, argument("subgroup: rank %d of a group of %d", r, g.size)
		case i > 0 && r == sorted[i-1]:
			return nil, argument("subgroup: rank %d named twice", r)
		}
	}
	if !slices.Contains(ranks, g.rank) {
		return nil, argument("subgroup: rank %d calls but is not a member of %v", g.rank, ranks)
	}
	name := fmt.Sprint("subgroup", ranks)
	return g.openChild(ctx, name, g.children.next(name), ranks)
}

// openChild makes the sub-group of the given ranks of g. name and n tell it from others, on all members alike. A member that
// fails aborts it on all of them.
func (g *ProcessGroup) openChild(ctx context.Context, name string, n uint64, ranks []int) (*ProcessGroup, error) {
	g.mu.Lock()
	err := g.usable()
	g.mu.Unlock()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if d := g.cfg.timeout(); d > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, d, &timeoutError{d})
		defer stop()
	}
	id := childID(g.id, name, n)
	if err := g.children.begin(id, cancel); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(g.life, func() { cancel(broken(context.Cause(g.life))) })
	defer stop()
	child, err := g.connectChild(ctx, id, ranks)
	if err == nil {
		err = g.children.opened(id, child)
	}
	if err != nil {
		g.children.end(id)
		var told *childError
		cause := context.Cause(ctx)
		switch {
		case errors.As(cause, &told):
			err = told.error // whoever failed first has told everybody
		case errors.Is(ctx.Err(), context.Canceled), cause != nil && !named(err):
			err = cause
			fallthrough
		default:
			g.tellChildFailed(id, ranks, err)
		}
		if child != nil {
			child.Abort(err)
			child.Close()
		}
		return nil, &outer{fmt.Sprintf("sub-group of ranks %v", ranks), []error{err}}
	}
	return child, nil
}

// childError is the news that another member could not open a sub-group.
type childError struct{ error }

// named reports whether an error says which rank is at fault.
func named(err error) bool {
	return errors.As(err, new(*PeerError)) || errors.As(err, new(*StallError)) || errors.As(err, new(*MismatchError))
}

// connectChild returns the sub-group once every member is in it.
func (g *ProcessGroup) connectChild(ctx context.Context, id uint64, ranks []int) (*ProcessGroup, error) {
	var t transport.Transport
	switch s, ok := g.t.(transport.Subsetter); {
	case len(ranks) == 1:
		t = mem.Solo()
	case ok:
		var err error
		if t, err = s.Subset(ctx, id, ranks); err != nil {
			return nil, err
		}
	default:
		t = newView(g.t, id, ranks)
	}
	child := newGroup(t, g.cfg, 0) // the root's heartbeats are enough
	child.id, child.parent, child.ranks, child.inside, child.epoch, child.tried = id, g, ranks, ranks, g.epoch, g.epoch
	if _, ok := t.(*view); ok {
		child.base = g.base
	}
	child.start()
	return child, g.inOurRanks(child.Barrier(ctx), ranks)
}

// inOurRanks turns an error of a sub-group into the ranks of this one.
func (g *ProcessGroup) inOurRanks(err error, ranks []int) error {
	var peer *PeerError
	var stall *StallError
	switch {
	case errors.As(err, &peer):
		own := *peer
		own.Rank = ranks[peer.Rank]
		return &own
	case errors.As(err, &stall):
		own := *stall
		own.Missing, own.Calls = nil, make([]string, g.size)
		for _, r := range stall.Missing {
			own.Missing = append(own.Missing, ranks[r])
		}
		slices.Sort(own.Missing)
		for r, call := range stall.Calls {
			own.Calls[ranks[r]] = call
		}
		return &own
	}
	return err
}

// next counts the sub-groups of one name.
func (c *children) next(name string) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.named == nil {
		c.named = map[string]uint64{}
	}
	n := c.named[name]
	c.named[name]++
	return n
}

// begin notes that a sub-group is being opened, unless it is known that it cannot be.
func (c *children) begin(id uint64, cancel context.CancelCauseFunc) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over != nil {
		return c.over
	}
	if c.open == nil {
		c.open, c.opening = map[uint64]*ProcessGroup{}, map[uint64]context.CancelCauseFunc{}
	}
	if err := c.failed[id]; err != nil {
		delete(c.failed, id)
		return err
	}
	c.opening[id] = cancel
	return nil
}

// childID names a sub-group by its parent, how it was made and of whom, and its number among such.
func childID(parent uint64, name string, n uint64) uint64 {
	h := fnv.New64a()
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], parent)
	binary.LittleEndian.PutUint64(b[8:], n)
	h.Write(b[:])
	h.Write([]byte(name))
	return max(h.Sum64(), 1) // 0 is the group that spans the transport
}

func (c *children) opened(id uint64, child *ProcessGroup) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.opening, id)
	if c.over != nil {
		return c.over
	}
	c.open[id] = child
	return nil
}

// end forgets a sub-group, or one that could not be opened.
func (c *children) end(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.opening, id)
	delete(c.open, id)
	c.ended = append(c.ended, id)
	c.ended = c.ended[max(0, len(c.ended)-maxFailedChildren):]
}

// endAll lets no more children be made, stops those in the making and returns the others.
func (c *children) endAll(err error) []*ProcessGroup {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = err
	for _, cancel := range c.opening {
		cancel(err)
	}
	var all []*ProcessGroup
	for _, child := range c.open {
		all = append(all, child)
	}
	return all
}

// endedBy says why no more children can be made, nil while they can.
func (c *children) endedBy() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// all returns the sub-groups that are open.
func (c *children) all() []*ProcessGroup {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.open))
}

// childFailed takes the news that another member could not open a sub-group.
func (g *ProcessGroup) childFailed(from int, n *notice) {
	var err error = &PeerError{Rank: n.rank, Addr: g.health.peers[n.rank].addr, Op: opening, Err: &remoteCause{text: n.b}}
	if n.cause == causeStall {
		text := fmt.Sprintf("rank %d: %s", from, n.b)
		err = &StallError{Missing: n.missing, Op: opening, Calls: make([]string, g.size), Addrs: g.health.addrs(), Err: &remoteCause{text, context.DeadlineExceeded}}
	}
	id, c := n.value, &g.children
	c.mu.Lock()
	defer c.mu.Unlock()
	if cancel := c.opening[id]; cancel != nil {
		cancel(&childError{err})
		return
	}
	if c.open[id] == nil && !slices.Contains(c.ended, id) && len(c.failed) < maxFailedChildren {
		if c.failed == nil {
			c.failed = map[uint64]error{}
		}
		c.failed[id] = err
	}
}

func (g *ProcessGroup) tellChildFailed(id uint64, ranks []int, err error) {
	n := notice{kind: noticeChildFailed, cause: causePeer, rank: g.rank, value: id, b: err.Error()}
	var peer *PeerError
	var stall *StallError
	switch {
	case errors.As(err, &stall):
		n.cause, n.missing, n.b = causeStall, stall.Missing, stall.Err.Error()
	case errors.As(err, &peer):
		n.rank, n.b = peer.Rank, peer.Err.Error()
	}
	var out []outgoing
	for _, r := range ranks {
		if r != g.rank {
			out = append(out, outgoing{r, n})
		}
	}
	g.control.post(g, out)
}

// A view is a sub-group over a transport that cannot open connections for it: the parent's streams, told apart by group.
type view struct {
	parent transport.Transport
	id     uint64
	ranks  []int
	rank   int
	ctx    context.Context // ends with Close
	cancel context.CancelCauseFunc
}

func newView(parent transport.Transport, id uint64, ranks []int) *view {
	v := &view{parent: parent, id: id, ranks: ranks, rank: slices.Index(ranks, parent.Rank())}
	if outer, ok := parent.(*view); ok { // a view of a view is a view of what is below
		v.parent, v.ranks = outer.parent, make([]int, len(ranks))
		for i, r := range ranks {
			v.ranks[i] = outer.ranks[r]
		}
	}
	v.ctx, v.cancel = context.WithCancelCause(context.Background())
	return v
}

func (v *view) Rank() int { return v.rank }
func (v *view) Size() int { return len(v.ranks) }

func (v *view) Close() error {
	v.cancel(net.ErrClosed)
	return nil
}

func (v *view) Send(ctx context.Context, to int, tag transport.Tag, p []byte) error {
	return v.do(ctx, to, tag, p, v.parent.Send)
}

func (v *view) Recv(ctx context.Context, from int, tag transport.Tag, p []byte) error {
	return v.do(ctx, from, tag, p, v.parent.Recv)
}

func (v *view) do(ctx context.Context, peer int, tag transport.Tag, p []byte, f func(context.Context, int, transport.Tag, []byte) error) error {
	if peer < 0 || peer >= len(v.ranks) {
		return argument("rank %d of a group of %d", peer, len(v.ranks))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(v.ctx, func() { cancel(net.ErrClosed) })
	defer stop()
	tag.Group = v.id
	err := f(ctx, v.ranks[peer], tag, p)
	switch e := err.(type) {
	case *transport.PeerError:
		own := *e
		own.Rank = peer
		return &own
	case *transport.TagError:
		own := *e
		own.Rank, own.Want.Group, own.Got.Group = peer, 0, 0
		return &own
	}
	return err
}
