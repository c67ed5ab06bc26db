package goccl

import (
	"context"
	"io"
)

// opShrink is what errors call it.
const opShrink = "shrink"

// Epoch numbers the groups that follow each other: 0 for the one that the ranks started as, and more after each Shrink or
// Admit. A sub-group is of its parent's epoch.
func (g *ProcessGroup) Epoch() uint64 { return g.epoch }

// Shrink makes the next group of those that are left after a failure. Every living rank calls it, in whatever order and
// whatever the first cause was for it; it waits for all that are not known to be gone, at most until ctx or Config.Timeout
// ends, and needs no answer of those that are. The ranks keep their order and are numbered anew (see
// [ProcessGroup.ParentRanks]); Epoch grows. It takes no place in the order of calls. Messages between a rank that is in Shrink
// and one that is not end after half a second, with an error that wraps [ErrBroken]: nobody waits for one who waits for it.
//
// More than half of the group must be left, else the error wraps [ErrNoMajority] (see Config.ShrinkMinority); two parts of a
// group that cannot reach each other never both go on. A rank that the others hold for dead, or that came too late, gets an
// [*ExcludedError] or ErrNoMajority. When time is up the error is a [*StallError] that names who has not called Shrink. A
// rank that dies meanwhile is left out too, or breaks the new group as any death does.
//
// After success the old group is retired: its connections close, its sub-groups and pending messages end with
// net.ErrClosed, and its Close does nothing. After an error it is as before and Shrink can be called again. A group that
// works, with all its ranks there, cannot be shrunk (ErrArgument). What follows a sub-group is a sub-group of the same parent,
// which ends it, and a Shrink that is running, as it ends any: by Close, by Abort, or retired itself.
func (g *ProcessGroup) Shrink(ctx context.Context) (*ProcessGroup, error) {
	ctx, stop := g.within(ctx)
	defer stop()
	decided, err := g.beginShrink()
	if err != nil {
		return nil, err
	}
	s := shrinking{g: g, seen: decided}
	next, err := s.run(ctx)
	if err == nil {
		err = g.handDown(next)
	}
	g.endShrink(next, err)
	s.open.discard()
	if err != nil {
		g.control.handOver(tellBound)
		return nil, err
	}
	if s.larger {
		next.stand(ctx)
	}
	g.retire()
	return next, nil
}

// within returns ctx bounded by the group's Timeout.
func (g *ProcessGroup) within(ctx context.Context) (context.Context, context.CancelFunc) {
	d := g.cfg.timeout()
	if d == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, d, &timeoutError{d})
}

// shrink is a group's side of the agreement. The group's mu guards it.
type shrink struct {
	agreement *agreement     // nil until Shrink or a message needs it
	readers   []agreedReader // by rank
	deserters []bool         // by rank: its messages are about to end
	seen      int            // health.departures that the agreement knows of
	news      chan struct{}  // something has changed; only Shrink listens
	done      chan struct{}  // closed when the running call of Shrink has ended; nil: none is running
	larger    *ProcessGroup  // what Admit has made when the group broke; perhaps the others have gone on to it
}

// agreed returns the group's part in the agreement. The caller holds g.mu.
func (g *ProcessGroup) agreed() *agreement {
	if g.shrink.agreement == nil {
		g.shrink.agreement = newAgreement(g.rank, g.size, g.tried, g.cfg.ShrinkMinority)
		g.shrink.readers, g.shrink.deserters = make([]agreedReader, g.size), make([]bool, g.size)
	}
	return g.shrink.agreement
}

// beginShrink enters the agreement and returns how many decisions were known before. A group that has lost a rank breaks now
// if nobody has noticed.
func (g *ProcessGroup) beginShrink() (decided uint32, err error) {
	g.mu.Lock()
	defer g.settle()
	switch {
	case g.closed:
		return 0, g.over()
	case g.shrink.done != nil:
		return 0, argument("shrink: another call of Shrink is running")
	}
	if g.health.cause == nil {
		if err := g.breakByLoss(); err != nil {
			return 0, err
		}
	}
	a := g.agreed()
	a.tried = max(a.tried, g.tried)
	decided = a.instance
	g.shrink.done, g.shrink.seen = make(chan struct{}), g.health.departures
	a.enter(g.health.gone)
	g.postAgreed()
	return decided, nil
}

// breakByLoss breaks the group because a rank is gone. The caller holds g.mu.
func (g *ProcessGroup) breakByLoss() error {
	h := g.health
	for r := range h.peers {
		switch p := &h.peers[r]; {
		case r == g.rank || !h.gone(r):
			continue
		case p.left:
			h.blame(r, errLeft)
		case h.suspect == r:
			h.blame(r, h.suspectErr)
		default:
			h.blame(r, io.ErrUnexpectedEOF)
		}
		return nil
	}
	return argument("shrink: the group works and every rank is there")
}

// endShrink ends a call that has brought the next group, or an error: then the others are to know that this rank goes no
// further.
func (g *ProcessGroup) endShrink(next *ProcessGroup, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil {
		g.followedBy(next)
	} else {
		g.shrink.agreement.leave()
		g.postAgreed()
	}
	close(g.shrink.done)
	g.shrink.done = nil
}

// followShrink tells the agreement who is gone. The caller holds g.mu.
func (g *ProcessGroup) followShrink() {
	if g.shrink.done == nil || g.shrink.seen == g.health.departures {
		return
	}
	g.shrink.seen = g.health.departures
	for r := range g.health.peers {
		if r != g.rank && g.health.gone(r) {
			g.shrink.agreement.lose(r)
		}
	}
	g.postAgreed()
}

// postAgreed sends what the agreement has to say and wakes Shrink. The caller holds g.mu, so that messages leave in the
// order of their events.
func (g *ProcessGroup) postAgreed() {
	var out []outgoing
	for _, o := range g.shrink.agreement.flush() {
		for _, n := range o.encode(g.size) {
			out = append(out, outgoing{o.to, n})
		}
	}
	g.control.post(g, out)
	g.wakeShrink()
}

func (g *ProcessGroup) wakeShrink() {
	select {
	case g.shrink.news <- struct{}{}:
	default:
	}
}

// noticedAgreement takes a message of the agreement, also while Shrink has not been called here.
func (g *ProcessGroup) noticedAgreement(from int, n *notice) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.agreed()
	m, err := g.shrink.readers[from].decode(n.b, g.size)
	if err != nil || m == nil {
		return err
	}
	a.receive(from, m)
	if m.kind == agreedVote && a.peers[from].present {
		g.deserted(from)
	}
	g.postAgreed()
	return nil
}
