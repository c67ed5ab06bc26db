package goccl

import (
	"errors"
	"io"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/goccl/goccl/transport"
)

const (
	suspectGrace  = 200 * time.Millisecond // a rank whose stream ended without a word is blamed only after this: the word may be under way
	decideGrace   = 500 * time.Millisecond // how long a stalled call waits for those who do not say where they are before it gives up
	probeAfter    = 500 * time.Millisecond // a call that takes longer asks the others which call they are in
	probeAtMost   = 8 * time.Second        // the gap between two such questions doubles up to this
	statusIdle    = 500 * time.Millisecond // a rank idle for this long tells the next rank what it completed last
	digestPrime   = 0x9E3779B97F4A7C15
	digestInitial = 0xCBF29CE484222325
)

// peerHealth is what this rank knows of another.
type peerHealth struct {
	report    callReport // the newest it told
	heard     bool       // report is valid
	answered  uint64     // newest probe it answered
	lost      bool       // its control stream ended
	hungUp    bool       // its collective stream ended
	left      bool       // it said goodbye
	silent    bool       // it gives no sign of life
	bade      bool       // it answered our goodbye
	lastAlive uint64     // sequence number of the last call it took part in before it left
	addr      string
}

// health is the state machine that turns what one rank sees (its own call, notices, ended streams, time) into the group's
// first cause and into notices for the others. It does no I/O and reads no clock, so every failure can be played through in
// a test and every transport behaves alike. The group holds a mutex around it.
type health struct {
	rank        int
	mine        callReport
	peers       []peerHealth // by rank; the own entry is unused
	life        liveness     // who gives signs of life; goes on after the group has broken
	departures  int          // how often gone has changed
	cause       error        // first cause; nil while the group works
	closing     bool         // no more verdicts: this rank has left
	saidGoodbye bool         // this rank is leaving
	out         []outgoing   // notices to hand to the transport

	suspect    int // rank whose collective stream ended without a word; -1: none
	suspectErr error
	suspectAt  time.Time // when it is blamed

	probe    uint64    // number of the last probe sent
	probeAt  time.Time // next probe of the running call
	probeGap time.Duration

	limit    error     // which limit the running call has passed; nil: none
	decideAt time.Time // when the stall is declared if the call has not ended and not all ranks have answered

	warnAfter time.Duration // how long a call takes before it is warned of; 0: never
	beganAt   time.Time     // when the running call began
	warnAt    time.Time     // when to ask, for a warning of it; zero: done, or never
	warnBy    time.Time     // when to warn though not all ranks have answered; zero: not asking
	warning   *stallWarning // what is to be logged

	statusAt time.Time // when to tell the next rank; zero: told
}

type outgoing struct {
	to int
	notice
}

// gone reports whether a rank is no longer there, for whatever reason.
func (h *health) gone(rank int) bool {
	p := &h.peers[rank]
	return p.lost || p.left || p.silent
}

// newHealth makes a machine that sends no heartbeats and misses none.
func newHealth(rank, size int, addr func(int) string) *health {
	h := &health{rank: rank, peers: make([]peerHealth, size), life: newLiveness(rank, size, 0), suspect: -1}
	h.mine.digest = digestInitial
	for r := range h.peers {
		h.peers[r].addr = addr(r)
	}
	return h
}

// begin says that the next call starts. The tag's Match is its sequence number.
func (h *health) begin(now time.Time, tag transport.Tag) {
	d := h.mine.digest
	for _, word := range [3]uint64{tag.Match, tag.Call, tag.Count} {
		d = (d ^ word) * digestPrime
		d ^= d >> 29
	}
	h.mine = callReport{seq: tag.Match, running: true, call: tag.Call, count: tag.Count, digest: d}
	h.probeGap = probeAfter
	h.probeAt = now.Add(probeAfter)
	h.statusAt = time.Time{}
	h.beganAt = now
	if h.warnAfter > 0 {
		h.warnAt = now.Add(h.warnAfter)
	}
	for r := range h.peers {
		p := &h.peers[r]
		if r == h.rank {
			continue
		}
		if p.left && p.lastAlive < h.mine.seq {
			h.suspects(now, r, errLeft)
		}
		if p.heard {
			h.compare(r, p.report)
		}
	}
}

// end says that the running call returned without an error.
func (h *health) end(now time.Time) {
	h.mine.running = false
	h.limit, h.decideAt = nil, time.Time{}
	h.warnAt, h.warnBy = time.Time{}, time.Time{}
	h.statusAt = now.Add(statusIdle)
	for r := range h.peers {
		if p := &h.peers[r]; p.left && p.lastAlive == h.mine.seq {
			h.send(r, notice{kind: noticeFarewell, report: h.mine}) // it may be waiting for us to get there
		}
	}
}

// failed takes the error of the running call. Unless it names its cause beyond doubt, the verdict comes from a later event
// or tick.
func (h *health) failed(now time.Time, err error) {
	if h.cause != nil || h.closing {
		return
	}
	var mismatch *MismatchError
	var peer *PeerError
	switch {
	case errors.As(err, &mismatch):
		h.mismatch(mismatch.Rank, mismatch.Want, mismatch.Got)
	case errors.Is(err, net.ErrClosed):
		h.closedUnder(err)
	case !errors.As(err, &peer):
		h.breakBy(err, notice{cause: causePeer, rank: h.rank, b: err.Error()})
	default:
		h.peers[peer.Rank].hungUp = true
		h.streamFailed(now, peer.Rank, peer.Err)
	}
}

// streamFailed blames a rank for breaking the protocol at once, for a mere end of its stream after a while.
func (h *health) streamFailed(now time.Time, rank int, err error) {
	switch {
	case !streamEnded(err):
		h.blame(rank, err)
	case h.peers[rank].left:
		h.suspects(now, rank, errLeft)
	default:
		h.suspects(now, rank, err)
	}
}

// suspects blames a rank that is gone, but only after a while: the word of why, or of who failed first, may be under way.
//
// When a single connection between two ranks is cut, each suspects the other. The higher of the two waits longer, so that the
// lower one's verdict stands; not if both of a rank's streams have ended, as they do when it dies.
func (h *health) suspects(now time.Time, rank int, err error) {
	if h.suspect >= 0 && h.suspect != rank {
		return
	}
	at := now.Add(suspectGrace)
	if p := &h.peers[rank]; rank < h.rank && !p.left && !(p.lost && p.hungUp) {
		at = at.Add(suspectGrace)
	}
	if h.suspect < 0 {
		h.suspect, h.suspectErr, h.suspectAt = rank, err, at
	} else if at.Before(h.suspectAt) {
		h.suspectAt = at
	}
}

// streamEnded reports whether err is what a dead, leaving or unreachable peer looks like, rather than one that breaks the
// protocol.
func streamEnded(err error) bool {
	return slices.ContainsFunc(endings, func(e error) bool { return errors.Is(err, e) })
}

var endings = []error{
	io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNABORTED, // closed or reset
	syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ENETDOWN, // given up by this host's network stack
}

// overdue says that the running call has passed a limit. It first asks who is missing.
func (h *health) overdue(now time.Time, limit error) {
	if h.cause != nil || h.limit != nil || !h.mine.running {
		return
	}
	h.limit, h.decideAt = limit, now.Add(decideGrace)
	h.ask()
}

// goodbye tells every rank that this one leaves after its last call, and how many point-to-point messages it has sent it.
func (h *health) goodbye(sent func(to int) uint64) {
	h.saidGoodbye = true
	for r := range h.peers {
		h.send(r, notice{kind: noticeGoodbye, report: h.mine, value: sent(r)})
	}
}

// bidden reports whether every rank has answered our goodbye or said its own, and has come as far as our last call, or is
// gone.
func (h *health) bidden() bool {
	for r := range h.peers {
		p := &h.peers[r]
		if r != h.rank && !p.lost && !p.silent && !((p.left || p.bade) && p.report.seq >= h.mine.seq) {
			return false
		}
	}
	return true
}

// lost says that the control stream from a rank ended or was unreadable.
func (h *health) lost(now time.Time, rank int, err error) {
	p := &h.peers[rank]
	p.lost = true
	h.departed(rank)
	if !p.left {
		h.streamFailed(now, rank, err)
	}
}

// departed notes that a rank is gone.
func (h *health) departed(rank int) {
	h.departures++
	h.life.end(rank)
}

// noticed takes a notice from another rank; kinds that are none of health's business are not given to it.
func (h *health) noticed(now time.Time, from int, n *notice) {
	p := &h.peers[from]
	h.life.heard(now, from)
	switch n.kind {
	case noticeHeartbeat:
		h.life.beaten(from, n.value)
	case noticeFailure:
		if h.saidGoodbye && (n.cause == causePeer || n.cause == causeSilence) && n.rank == h.rank {
			return // they miss us, as we know
		}
		if (n.cause == causePeer || n.cause == causeSilence) && h.cause == nil && n.rank != from {
			h.send(n.rank, *n) // who found out may be the one that cannot reach it
		}
		h.breakBy(h.remote(from, n), notice{})
	case noticeProbe:
		h.heard(from, n.report)
		h.send(from, notice{kind: noticeStatus, report: h.mine, value: n.value})
	case noticeStatus:
		p.answered = max(p.answered, n.value)
		h.heard(from, n.report)
	case noticeFarewell:
		p.bade = true
		h.heard(from, n.report)
	case noticeGoodbye:
		p.left, p.lastAlive = true, n.report.seq
		h.departed(from)
		if n.report.running { // it left in the middle of that call
			p.lastAlive--
		}
		h.heard(from, n.report)
		h.send(from, notice{kind: noticeFarewell, report: h.mine}) // lets the leaver compare its last call with ours
		if h.mine.running && p.lastAlive < h.mine.seq {
			h.suspects(now, from, errLeft)
		}
	}
}

// heard records what a rank says it is in. Two ranks that give the same sequence number to different calls do not agree,
// even if no frame between them could show it.
func (h *health) heard(from int, r callReport) {
	if p := &h.peers[from]; !p.heard || r.seq >= p.report.seq {
		p.report, p.heard = r, true
	}
	h.compare(from, r)
}

// compare breaks the group if a report is about our own call but says something else.
func (h *health) compare(from int, r callReport) {
	if r.seq != h.mine.seq || r.seq == 0 {
		return
	}
	want, got := h.mine.describe(), r.describe()
	switch {
	case r.call != h.mine.call || r.count != h.mine.count:
		h.mismatch(from, want, got)
	case r.digest != h.mine.digest:
		h.mismatch(from, want, got+" after other calls")
	}
}

// tick lets time pass and returns when it wants to be called again at the latest; zero: not before the next event.
func (h *health) tick(now time.Time) time.Time {
	var next time.Time
	at := func(t time.Time) bool { // t has come; otherwise it bounds next
		if t.IsZero() {
			return false
		}
		if !now.Before(t) {
			return true
		}
		if next.IsZero() || t.Before(next) {
			next = t
		}
		return false
	}
	if h.cause != nil || h.closing {
		return next
	}
	if h.suspect >= 0 && at(h.suspectAt) {
		h.settleSuspicion(now, at)
	}
	if h.mine.running && h.limit != nil && (h.allAnswered() || at(h.decideAt)) {
		h.stall()
	}
	if h.cause != nil {
		return time.Time{}
	}
	if h.mine.running && h.limit == nil {
		h.tickWarning(now, at)
	}
	if h.mine.running && h.limit == nil && at(h.probeAt) {
		h.ask()
		h.probeGap = min(2*h.probeGap, probeAtMost)
		h.probeAt = now.Add(h.probeGap)
		at(h.probeAt)
	}
	if at(h.statusAt) {
		h.statusAt = time.Time{}
		h.send((h.rank+1)%len(h.peers), notice{kind: noticeStatus, report: h.mine})
	}
	return next
}

// ask sends a probe to every rank that is still there.
func (h *health) ask() {
	h.probe++
	h.sendAll(notice{kind: noticeProbe, report: h.mine, value: h.probe})
}

func (h *health) allAnswered() bool {
	for r := range h.peers {
		if p := &h.peers[r]; r != h.rank && !p.left && p.answered < h.probe {
			return false
		}
	}
	return true
}

func (h *health) send(to int, n notice) {
	if p := &h.peers[to]; to != h.rank && !p.lost {
		h.out = append(h.out, outgoing{to, n})
	}
}

func (h *health) sendAll(n notice) {
	for r := range h.peers {
		h.send(r, n)
	}
}

// flush takes the notices that are to be sent.
func (h *health) flush() []outgoing {
	out := h.out
	h.out = nil
	return out
}
