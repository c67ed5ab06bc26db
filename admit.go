package goccl

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/goccl/goccl/dtype"
	"github.com/goccl/goccl/ring"
	"github.com/goccl/goccl/transport"
)

const (
	opAdmit     = "admit"
	admitBound  = 10 * time.Second // how long newcomers may take to come in
	admitOffers = 64 << 10         // bytes with which one rank may name those who wait at it
	admitReport = 256              // bytes of a rank's word on how it went
)

// Admit takes in the processes that wait to join this run (see [Join] and JoinConfig.RunID), whichever rank they wait at. All
// ranks call it; it takes its place in the order of collectives. Nobody waits: it returns the group itself. Otherwise it
// returns the next, larger group on all ranks, in which these ranks keep their numbers and the newcomers follow
// (ParentRanks has -1 for them), and retires this one as Shrink does. What newcomers need to know, such as the state of a
// model, is the caller's next line: a Broadcast.
//
// Newcomers have 10 s, or until ctx ends, to come in. When one does not, all ranks get an error that names it, mostly a
// [*PeerError] with its rank in the group that was not to be, and this group works as before. When a rank of this group
// dies meanwhile the group breaks; Shrink then makes the next one, which is the larger one if others may have it already.
// When anybody dies after all have agreed, Admit returns the larger group without an error, but it may be broken already (see
// Err). Over a transport that is no [transport.Regrouper] nobody can come in.
func (g *ProcessGroup) Admit(ctx context.Context) (*ProcessGroup, error) {
	r, ok := g.t.(transport.Regrouper)
	switch {
	case g.parent != nil:
		return nil, argument("admit: this is a sub-group")
	case !ok:
		return g, nil
	}
	g.order.enter(ctx, func() { g.endedInLine(ctx, ring.OpAllGather) })
	next, err := g.admitInTurn(ctx, r)
	g.order.leave()
	if err != nil {
		return nil, err
	}
	if next != g {
		g.retire()
	}
	return next, nil
}

func (g *ProcessGroup) admitInTurn(ctx context.Context, r transport.Regrouper) (*ProcessGroup, error) {
	newcomers, number, err := g.gatherNewcomers(ctx, r)
	if err != nil {
		return nil, err
	}
	if len(newcomers) == 0 {
		return g, nil
	}
	larger, err := g.openLarger(ctx, r, number, newcomers)
	switch {
	case larger != nil:
		err = g.offer(larger)
	case errors.Is(ctx.Err(), context.Canceled):
		err = context.Cause(ctx) // and not whom that made fail
	}
	if err := g.agreeOnLarger(ctx, err); err != nil {
		return nil, err
	}
	if !g.conclude(larger) {
		return nil, net.ErrClosed
	}
	larger.stand(ctx)
	return larger, nil
}

// conclude goes over to the larger group, which all ranks have. It reports false if Close or Shrink has been faster.
func (g *ProcessGroup) conclude(larger *ProcessGroup) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shrink.larger == nil {
		return false
	}
	g.shrink.larger = nil
	g.followedBy(larger) // calls that wait their turn behind this one are too late
	g.agreed().conclude()
	g.postAgreed()
	return true
}

// stand tells the newcomers of a larger group that it stands: every rank that takes it, from Admit or from Shrink, begins
// with this call. If it fails the group is broken, but it is the group.
func (g *ProcessGroup) stand(ctx context.Context) {
	ctx, stop := context.WithTimeoutCause(context.WithoutCancel(ctx), admitBound, &timeoutError{admitBound})
	defer stop()
	g.Barrier(ctx)
}

// gatherNewcomers returns all who wait at any rank, and the number of the next epoch; the same on all ranks.
func (g *ProcessGroup) gatherNewcomers(ctx context.Context, r transport.Regrouper) (newcomers [][]byte, number uint64, err error) {
	mine := encodeNewcomers(r.Waiting())
	g.mu.Lock()
	words := []int64{int64(len(mine)), int64(g.tried)}
	g.mu.Unlock()
	all := make([]int64, 2*g.size)
	if _, err := g.runInTurn(ctx, ring.Call{Op: ring.OpAllGather, Dst: dtype.Of(all), Src: dtype.Of(words)}); err != nil {
		return nil, 0, err
	}
	counts, total := make([]int, g.size), 0
	for i := range counts {
		if all[2*i] < 0 || all[2*i] > admitOffers {
			return nil, 0, &PeerError{Rank: i, Addr: g.addr(i), Op: opAdmit, Err: fmt.Errorf("it names newcomers with %d bytes, at most %d allowed", all[2*i], admitOffers)}
		}
		counts[i] = int(all[2*i])
		total += counts[i]
		number = max(number, uint64(all[2*i+1])+1)
	}
	if total == 0 {
		return nil, 0, nil
	}
	names := make([]byte, total)
	if _, err := g.runInTurn(ctx, ring.Call{Op: ring.OpAllGather, Dst: dtype.Of(names), Src: dtype.Of(mine), RecvCounts: counts}); err != nil {
		return nil, 0, err
	}
	for i, at := 0, 0; i < g.size; i++ {
		list, ok := decodeNewcomers(names[at : at+counts[i]])
		if !ok {
			return nil, 0, &PeerError{Rank: i, Addr: g.addr(i), Op: opAdmit, Err: errors.New("malformed list of newcomers")}
		}
		newcomers = append(newcomers, list...)
		at += counts[i]
	}
	g.mu.Lock()
	g.tried = number
	g.mu.Unlock()
	slices.SortFunc(newcomers, bytes.Compare)
	return slices.CompactFunc(newcomers, bytes.Equal), number, nil
}

// encodeNewcomers writes as many as fit, each after its length.
func encodeNewcomers(list [][]byte) []byte {
	var p []byte
	for _, n := range list {
		if len(p)+4+len(n) <= admitOffers {
			p = append(binary.LittleEndian.AppendUint32(p, uint32(len(n))), n...)
		}
	}
	return p
}

func decodeNewcomers(p []byte) (list [][]byte, ok bool) {
	for len(p) > 0 {
		if len(p) < 4 {
			return nil, false
		}
		n := binary.LittleEndian.Uint32(p)
		if uint64(n) > uint64(len(p)-4) {
			return nil, false
		}
		list = append(list, p[4:4+n])
		p = p[4+n:]
	}
	return list, true
}

// openLarger makes the group with the newcomers; it has passed a barrier if there is no error.
func (g *ProcessGroup) openLarger(ctx context.Context, r transport.Regrouper, number uint64, newcomers [][]byte) (*ProcessGroup, error) {
	ctx, stop := context.WithTimeoutCause(ctx, admitBound, &timeoutError{admitBound})
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(g.life, func() { cancel(broken(context.Cause(g.life))) })()
	next := transport.Epoch{Number: number, Newcomers: newcomers}
	parents := make([]int, g.size+len(newcomers))
	for i := range parents {
		parents[i] = -1
		if i < g.size {
			parents[i] = i
			next.Ranks = append(next.Ranks, i)
		}
	}
	t, err := r.Regroup(ctx, next)
	if err != nil {
		return nil, err
	}
	larger := g.succeed(t, number, parents)
	if err := larger.Barrier(ctx); err != nil {
		larger.retire()
		return nil, err
	}
	return larger, nil
}

// offer notes that the larger group is ready here, before the others are told. A group that is closed meanwhile ends it.
func (g *ProcessGroup) offer(larger *ProcessGroup) error {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		larger.retire()
		return net.ErrClosed
	}
	defer g.mu.Unlock()
	all := slices.Clone(larger.ranks[:g.size])
	g.agreed().offer = proposal{commit: true, epoch: larger.epoch, ranks: all}
	g.shrink.larger = larger
	return nil
}

// withdrawOffer closes the larger group that is ready here, if there is one: the others have not got it.
func (g *ProcessGroup) withdrawOffer() {
	g.mu.Lock()
	larger := g.shrink.larger
	g.shrink.larger = nil
	if a := g.shrink.agreement; a != nil && !a.committed {
		a.offer = proposal{}
	}
	g.mu.Unlock()
	if larger != nil {
		larger.retire()
	}
}

// takeLarger returns the larger group if it is the one of that epoch, which has been agreed on; otherwise nobody has it.
func (g *ProcessGroup) takeLarger(epoch uint64) *ProcessGroup {
	g.mu.Lock()
	larger := g.shrink.larger
	if larger != nil && larger.epoch == epoch {
		g.shrink.larger = nil
		g.mu.Unlock()
		return larger
	}
	g.mu.Unlock()
	g.withdrawOffer()
	return nil
}

// agreeOnLarger tells all ranks how it went on each; err is how it went here. It returns nil if it went well everywhere. If it
// fails itself, nobody knows whether it did, and Shrink finds out.
func (g *ProcessGroup) agreeOnLarger(ctx context.Context, err error) error {
	all := make([]byte, admitReport*g.size)
	mine := g.reportAdmission(err)
	ctx = context.WithoutCancel(ctx) // the end of the caller's context costs the admission, not the group
	if _, err := g.runInTurn(ctx, ring.Call{Op: ring.OpAllGather, Dst: dtype.Of(all), Src: dtype.Of(mine)}); err != nil {
		return err
	}
	culprit, text := -1, ""
	for i := range g.size {
		p := all[i*admitReport : (i+1)*admitReport]
		rank, words := int(int32(binary.LittleEndian.Uint32(p))), p[6:][:min(int(binary.LittleEndian.Uint16(p[4:])), admitReport-6)]
		if rank >= 0 && (culprit < 0 || culprit < g.size && rank >= g.size) { // a newcomer is to blame rather than who waited for it
			culprit, text = rank, string(words)
		}
	}
	if culprit < 0 {
		return nil
	}
	g.withdrawOffer()
	if err != nil && int(int32(binary.LittleEndian.Uint32(mine))) == culprit {
		return fmt.Errorf("goccl: admit: %w", err)
	}
	return &PeerError{Rank: culprit, Op: opAdmit, Err: &remoteCause{text: text}}
}

// reportAdmission writes down how it went here: who is to blame, as a rank of the larger group, -1 if nobody, and why.
func (g *ProcessGroup) reportAdmission(err error) []byte {
	p := make([]byte, admitReport)
	culprit := -1
	if err != nil {
		culprit = g.rank
		var peer *PeerError
		var stall *StallError
		text := err.Error()
		switch {
		case errors.As(err, &peer) && peer.Rank >= 0:
			culprit, text = peer.Rank, peer.Err.Error()
		case errors.As(err, &stall) && len(stall.Missing) > 0:
			culprit = stall.Missing[0]
		}
		text = truncate(text, admitReport-6)
		binary.LittleEndian.PutUint16(p[4:], uint16(len(text)))
		copy(p[6:], text)
	}
	binary.LittleEndian.PutUint32(p, uint32(int32(culprit)))
	return p
}

func (g *ProcessGroup) addr(rank int) string { return g.health.peers[rank].addr }
