package goccl

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/goccl/goccl/ring"
	"github.com/goccl/goccl/transport"
)

// Verdicts of the health machine: each makes an error of this rank and the notice that tells the others, and the first one
// stands.

// cancelled says that the context of a call was cancelled; what names the call.
func (h *health) cancelled(what string, err error) {
	h.breakBy(fmt.Errorf("goccl: %s cancelled: %w", what, err),
		notice{cause: causePeer, rank: h.rank, a: h.peers[h.rank].addr, b: what + " cancelled: " + err.Error()})
}

// runningCall names the call that is running, or was last.
func (h *health) runningCall() string {
	if h.mine.seq == 0 {
		return "the first call"
	}
	return fmt.Sprintf("%s #%d", opName(h.mine.call), h.mine.seq)
}

// abort tells the others even if the group is broken already: it ends point-to-point too.
func (h *health) abort(err *localAbort) {
	tell := notice{kind: noticeFailure, cause: causeAbort, rank: h.rank, report: h.mine, b: err.Text}
	if h.cause != nil {
		h.sendAll(tell)
		return
	}
	h.breakBy(err, tell)
}

// closedUnder says that this rank's own transport was closed: no peer is to blame, and none can be told.
func (h *health) closedUnder(err error) { h.breakBy(err, notice{}) }

// blame breaks the group because of a rank.
func (h *health) blame(rank int, err error) {
	addr := h.peers[rank].addr
	h.breakBy(&PeerError{Rank: rank, Addr: addr, Op: opName(h.mine.call), Seq: h.mine.seq, Err: err},
		notice{cause: causePeer, rank: rank, value: uint64(h.rank), a: addr, b: err.Error()})
}

// settleSuspicion blames the suspect, unless this rank may be the one that is cut off: to it, those who have given it up look as if
// they had failed. Liveness knows soon.
func (h *health) settleSuspicion(now time.Time, at func(time.Time) bool) {
	if !h.life.hearsNobody(now) {
		h.blame(h.suspect, h.suspectErr)
		return
	}
	h.suspectAt = now.Add(suspectGrace)
	at(h.suspectAt)
}

// watchOver lets time pass for the signs of life: it sends heartbeats that are due and returns who has been found silent, nil
// mostly, and when it wants to be called again; zero: never. It goes on after the group has broken, so that messages end and
// the survivors of a failure know who they are.
func (h *health) watchOver(now time.Time) (found *silence, next time.Time) {
	if h.closing {
		return nil, next
	}
	beat, found, next := h.life.tick(now)
	if beat {
		n := notice{kind: noticeHeartbeat, value: uint64(h.life.every)}
		for r := range h.peers {
			if !h.peers[r].left {
				h.send(r, n)
			}
		}
	}
	if found != nil {
		h.silence(found)
	}
	return found, next
}

// silence takes the verdict that ranks give no sign of life. They are told as well: one that was only stopped reads, when it
// goes on, that it is the one.
func (h *health) silence(s *silence) {
	addr := h.peers[s.culprit].addr
	h.breakBy(&PeerError{Rank: s.culprit, Addr: addr, Op: opName(h.mine.call), Seq: h.mine.seq, Err: &silentError{s.reason}},
		notice{cause: causeSilence, rank: s.culprit, value: uint64(h.rank), a: addr, b: s.reason})
	for _, r := range s.ranks {
		h.peers[r].silent = true
		h.departed(r)
	}
}

func (h *health) mismatch(rank int, want, got string) {
	h.breakBy(&MismatchError{Rank: rank, Want: want, Got: got}, notice{cause: causeMismatch, rank: rank, a: want, b: got})
}

// stall declares the running call stalled.
func (h *health) stall() {
	missing := h.missing()
	err := h.stallError(h.mine, missing, h.limit)
	calls := make([]string, len(missing))
	for i, r := range missing {
		calls[i] = err.Calls[r]
	}
	h.breakBy(err, notice{cause: causeStall, rank: h.rank, missing: missing, a: strings.Join(calls, "\n"), b: h.limit.Error()})
}

// missing is who has not arrived in the running call by what the last probe has brought: who does not answer it, or is idle
// before the call. A rank that is itself waiting in an earlier call is missing only if nobody else is.
func (h *health) missing() []int {
	var missing, behind []int
	for r := range h.peers {
		p := &h.peers[r]
		answers := p.heard && p.answered == h.probe
		switch {
		case r == h.rank, (answers || p.left) && p.report.seq >= h.mine.seq: // it left after it had arrived, perhaps because of this
		case answers && p.report.running:
			behind = append(behind, r)
		default:
			missing = append(missing, r)
		}
	}
	if missing == nil {
		return behind
	}
	return missing
}

func (h *health) stallError(call callReport, missing []int, limit error) *StallError {
	e := &StallError{Missing: missing, Op: opName(call.call), Seq: call.seq, Calls: make([]string, len(h.peers)), Addrs: h.addrs(), Err: limit}
	for r := range h.peers {
		switch p := &h.peers[r]; {
		case r == h.rank:
			e.Calls[r] = h.mine.describe()
		case p.heard:
			e.Calls[r] = p.report.describe()
		}
	}
	return e
}

// addrs returns the addresses of all ranks.
func (h *health) addrs() []string {
	addrs := make([]string, len(h.peers))
	for r := range h.peers {
		addrs[r] = h.peers[r].addr
	}
	return addrs
}

// remote turns a failure that another rank declared into this rank's error.
func (h *health) remote(from int, n *notice) error {
	switch n.cause {
	case causeAbort:
		return &AbortError{Rank: n.rank, Text: n.b}
	case causeMismatch:
		switch {
		case n.rank == h.rank: // the reporter is who disagrees with us
			return &MismatchError{Rank: from, Want: n.b, Got: n.a}
		case n.report.seq != h.mine.seq:
			return &MismatchError{Rank: n.rank, Want: n.a, Got: n.b, Told: true, By: from}
		case !n.report.agrees(h.mine): // with us either: the rank it blames may do what we do
			return &MismatchError{Rank: from, Want: h.mine.describe(), Got: n.a}
		}
		return &MismatchError{Rank: n.rank, Want: n.a, Got: n.b}
	case causeStall:
		err := h.stallError(n.report, n.missing, &remoteCause{fmt.Sprintf("rank %d: %s", from, n.b), context.DeadlineExceeded})
		for i, call := range strings.Split(n.a, "\n")[:min(len(n.missing), 1+strings.Count(n.a, "\n"))] {
			if r := n.missing[i]; r != h.rank && call != "" {
				err.Calls[r] = call
			}
		}
		return err
	}
	var err error
	switch me := n.rank == h.rank; {
	case n.cause == causeSilence && me:
		err = &silentError{fmt.Sprintf("declared dead by rank %d: %s", n.value, n.b)}
	case n.cause == causeSilence:
		err = &silentError{n.b}
	case me:
		err = &remoteCause{text: fmt.Sprintf("blamed by rank %d: %s", n.value, n.b)}
	default:
		err = &remoteCause{text: n.b}
	}
	return &PeerError{Rank: n.rank, Addr: n.a, Op: opName(n.report.call), Seq: n.report.seq, Err: err}
}

// breakBy makes err the first cause unless there is one already, and tells the others unless tell is empty because they
// have been told.
func (h *health) breakBy(err error, tell notice) {
	if h.cause != nil || h.closing {
		return
	}
	h.cause = err
	if tell.cause != 0 {
		tell.kind, tell.report = noticeFailure, h.mine
		h.sendAll(tell)
	}
}

// agrees reports whether two ranks that are in the same call, or have completed it, have made the same calls so far.
func (r callReport) agrees(other callReport) bool {
	return r.call == other.call && r.count == other.count && r.digest == other.digest
}

func (r callReport) describe() string {
	if r.seq == 0 {
		return "no call yet"
	}
	s := ring.Describe(transport.Tag{Match: r.seq, Call: r.call, Count: r.count})
	if !r.running {
		s += " completed"
	}
	return s
}

// opName is the operation of a packed call, "" when there was none.
func opName(call uint64) string {
	if call == 0 {
		return ""
	}
	return ring.Op(call & 0xff).String()
}
