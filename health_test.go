package goccl

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goccl/goccl/dtype"
	"github.com/goccl/goccl/ring"
	"github.com/goccl/goccl/transport"
)

// ward is a world of health machines with control streams that are perfect unless told otherwise, and a clock of its own.
type ward struct {
	t       *testing.T
	now     time.Time
	ranks   []*health
	dead    []bool          // neither answers nor ticks
	stopped []bool          // the same, but what is sent to it waits
	blocked map[[2]int]bool // from, to: what is sent is lost
	inbox   [][]letter      // of the stopped, by rank
}

type letter struct {
	from int
	n    notice
}

func newWard(t *testing.T, n int) *ward {
	w := &ward{t: t, now: time.Unix(0, 0), dead: make([]bool, n), stopped: make([]bool, n), blocked: map[[2]int]bool{}, inbox: make([][]letter, n)}
	for r := range n {
		w.ranks = append(w.ranks, newHealth(r, n, func(r int) string { return "host" + string(rune('0'+r)) }))
	}
	return w
}

// deliver carries notices, through their encoding, until none is left.
func (w *ward) deliver() {
	for moved := true; moved; {
		moved = false
		for from, h := range w.ranks {
			for _, o := range h.flush() {
				if w.dead[from] || w.dead[o.to] || w.blocked[[2]int{from, o.to}] {
					continue
				}
				n, err := decodeNotice(o.encode(), len(w.ranks))
				if err != nil {
					w.t.Fatalf("rank %d sent %+v: %v", from, o.notice, err)
				}
				if w.stopped[o.to] {
					w.inbox[o.to] = append(w.inbox[o.to], letter{from, n})
					continue
				}
				w.ranks[o.to].noticed(w.now, from, &n)
				moved = true
			}
		}
	}
}

// pass lets time go by, ticking every machine when it asks for it.
func (w *ward) pass(d time.Duration) {
	w.deliver()
	for end := w.now.Add(d); w.now.Before(end); w.deliver() {
		next := end
		for r := range w.ranks {
			if at := w.tick(r); !at.IsZero() && at.Before(next) {
				next = at
			}
		}
		w.deliver()
		w.now = next
	}
	for r := range w.ranks {
		w.tick(r)
	}
	w.deliver()
}

// tick lets one machine look at the time, as its watcher does.
func (w *ward) tick(r int) time.Time {
	if w.dead[r] || w.stopped[r] {
		return time.Time{}
	}
	next := w.ranks[r].tick(w.now)
	if _, beat := w.ranks[r].watchOver(w.now); next.IsZero() || !beat.IsZero() && beat.Before(next) {
		next = beat
	}
	return next
}

func allReduceTag(seq uint64, count int) transport.Tag {
	b := dtype.Of(make([]float32, count))
	return ring.Tag(&ring.Call{Op: ring.OpAllReduce, Dst: b, Src: b}, 0, seq, ring.Direct)
}

func (w *ward) begin(seq uint64, ranks ...int) {
	for _, r := range ranks {
		w.ranks[r].begin(w.now, allReduceTag(seq, 8))
	}
}

// kill ends a rank: its control streams end everywhere.
func (w *ward) kill(rank int) {
	w.dead[rank] = true
	for r, h := range w.ranks {
		if r != rank {
			h.lost(w.now, rank, io.EOF)
		}
	}
}

func TestHealthDeadPeerIsNamedEverywhere(t *testing.T) {
	w := newWard(t, 4)
	w.begin(1, 0, 1, 2, 3)
	w.dead[2] = true
	w.ranks[1].failed(w.now, &PeerError{Rank: 2, Err: io.EOF}) // its collective stream ends first
	if w.ranks[1].cause != nil {
		t.Fatal("blamed on a bare EOF without waiting for a word")
	}
	w.ranks[3].lost(w.now, 2, io.EOF)
	w.pass(time.Second)
	for _, r := range []int{0, 1, 3} {
		var e *PeerError
		if !errors.As(w.ranks[r].cause, &e) || e.Rank != 2 || e.Op != "all-reduce" || e.Seq != 1 || e.Addr != "host2" {
			t.Errorf("rank %d: %v, want rank 2 at host2 in all-reduce #1", r, w.ranks[r].cause)
		}
	}
}

func TestHealthSuspectIsBlamedAfterGrace(t *testing.T) {
	w := newWard(t, 2)
	w.begin(1, 0, 1)
	w.dead[1] = true // and its control stream hangs
	w.ranks[0].failed(w.now, &PeerError{Rank: 1, Err: io.EOF})
	w.pass(suspectGrace - time.Millisecond)
	if w.ranks[0].cause != nil {
		t.Fatalf("blamed too early: %v", w.ranks[0].cause)
	}
	w.pass(time.Millisecond)
	var e *PeerError
	if !errors.As(w.ranks[0].cause, &e) || e.Rank != 1 || !errors.Is(e, io.EOF) {
		t.Fatalf("got %v", w.ranks[0].cause)
	}
}

// A rank that fails because of another must not be blamed by those who see only its streams end.
func TestHealthFirstCauseWinsOverFollowOnEOF(t *testing.T) {
	w := newWard(t, 3)
	w.begin(1, 0, 1, 2)
	w.dead[1] = true
	w.ranks[2].failed(w.now, &PeerError{Rank: 1, Err: io.EOF})
	w.ranks[2].lost(w.now, 1, io.EOF)
	w.now = w.now.Add(suspectGrace)
	w.ranks[2].tick(w.now)                                     // its verdict is under way
	w.ranks[0].failed(w.now, &PeerError{Rank: 2, Err: io.EOF}) // and its collective stream ends first
	w.pass(time.Second)
	for _, r := range []int{0, 2} {
		var e *PeerError
		if !errors.As(w.ranks[r].cause, &e) || e.Rank != 1 {
			t.Errorf("rank %d blames %v, want rank 1", r, w.ranks[r].cause)
		}
	}
}

func TestHealthMismatchReachesAll(t *testing.T) {
	w := newWard(t, 3)
	w.begin(1, 0, 2)
	w.ranks[1].begin(w.now, allReduceTag(1, 9))
	w.ranks[0].failed(w.now, &MismatchError{Rank: 1, Want: "mine", Got: "theirs"})
	w.pass(time.Second)
	for r, want := range []MismatchError{
		{Rank: 1, Want: "mine", Got: "theirs"}, {Rank: 0, Want: "theirs", Got: "mine"}, {Rank: 1, Want: "mine", Got: "theirs"},
	} {
		var e *MismatchError
		if !errors.As(w.ranks[r].cause, &e) || *e != want {
			t.Errorf("rank %d: %v, want %v", r, w.ranks[r].cause, &want)
		}
	}
}

// Everyone waits for another root: no frame shows it, the probe does.
func TestHealthProbeFindsMismatch(t *testing.T) {
	w := newWard(t, 2)
	b := dtype.Of(make([]float32, 8))
	for r, h := range w.ranks {
		h.begin(w.now, ring.Tag(&ring.Call{Op: ring.OpBroadcast, Dst: b, Root: 1 - r}, 0, 1, ring.Doubling))
	}
	w.pass(probeAfter)
	for r, h := range w.ranks {
		var e *MismatchError
		if !errors.As(h.cause, &e) || !strings.Contains(e.Want+e.Got, "root 0") || !strings.Contains(e.Want+e.Got, "root 1") {
			t.Errorf("rank %d: %v, want a mismatch that names both roots", r, h.cause)
		}
	}
}

// Everyone is the root and is done at once: the idle status shows it.
func TestHealthStatusFindsMismatch(t *testing.T) {
	w := newWard(t, 3)
	for r, h := range w.ranks {
		h.begin(w.now, allReduceTag(1, 8+r/2))
		h.end(w.now)
	}
	w.pass(statusIdle)
	for r, h := range w.ranks {
		var e *MismatchError
		if !errors.As(h.cause, &e) {
			t.Errorf("rank %d: %v, want a mismatch", r, h.cause)
		}
	}
}

func TestHealthDigestFindsOtherHistory(t *testing.T) {
	w := newWard(t, 2)
	for r, h := range w.ranks {
		for seq, count := range [][]int{{1, 2, 3}, {2, 1, 3}}[r] {
			h.begin(w.now, allReduceTag(uint64(seq+1), count))
			h.end(w.now)
		}
	}
	w.pass(statusIdle)
	var e *MismatchError
	if !errors.As(w.ranks[1].cause, &e) {
		t.Errorf("got %v, want a mismatch", w.ranks[1].cause)
	}
}

func TestHealthStallNamesTheMissing(t *testing.T) {
	w := newWard(t, 5)
	w.begin(1, 0, 1, 2, 3, 4)
	for _, h := range w.ranks {
		h.end(w.now)
	}
	w.begin(2, 0, 2, 4) // 1 does not come, 3 is frozen
	w.dead[3] = true
	w.pass(3 * time.Second)
	w.ranks[2].overdue(w.now, context.DeadlineExceeded)
	w.pass(decideGrace)
	for _, r := range []int{0, 1, 2, 4} {
		var e *StallError
		if !errors.As(w.ranks[r].cause, &e) {
			t.Fatalf("rank %d: %v, want a StallError", r, w.ranks[r].cause)
		}
		if !slices.Equal(e.Missing, []int{1, 3}) || e.Op != "all-reduce" || e.Seq != 2 || !errors.Is(e, context.DeadlineExceeded) {
			t.Errorf("rank %d: %+v", r, e)
		}
	}
	var e *StallError
	errors.As(w.ranks[2].cause, &e)
	if !strings.Contains(e.Calls[1], "#1 completed") || !strings.Contains(e.Calls[4], "#2") {
		t.Errorf("calls %q", e.Calls)
	}
}

func TestHealthStallEndsWithTheCall(t *testing.T) {
	w := newWard(t, 2)
	w.begin(1, 0, 1)
	w.ranks[0].overdue(w.now, context.DeadlineExceeded)
	w.ranks[0].end(w.now) // it came through while the others were being asked
	w.ranks[1].end(w.now)
	w.pass(time.Minute)
	if w.ranks[0].cause != nil || w.ranks[1].cause != nil {
		t.Errorf("broken by %v, %v", w.ranks[0].cause, w.ranks[1].cause)
	}
}

func TestHealthGoodbye(t *testing.T) {
	w := newWard(t, 3)
	w.begin(1, 0, 1, 2)
	w.ranks[2].end(w.now)
	w.ranks[2].goodbye(func(int) uint64 { return 0 })
	w.deliver()
	if !w.ranks[2].bidden() {
		t.Error("goodbye was not answered")
	}
	w.ranks[2].closing = true
	w.kill(2)
	w.pass(time.Second)
	if w.ranks[0].cause != nil || w.ranks[1].cause != nil {
		t.Fatalf("an orderly leave broke a call it had completed: %v, %v", w.ranks[0].cause, w.ranks[1].cause)
	}
	w.ranks[0].end(w.now)
	w.begin(2, 0)
	w.pass(suspectGrace)
	var e *PeerError
	if !errors.As(w.ranks[0].cause, &e) || e.Rank != 2 || !errors.Is(e, errLeft) {
		t.Errorf("a call that needs the rank that left: %v", w.ranks[0].cause)
	}
}

func TestHealthGoodbyeInTheMiddle(t *testing.T) {
	w := newWard(t, 2)
	w.begin(1, 0, 1)
	w.ranks[1].goodbye(func(int) uint64 { return 0 })
	w.pass(suspectGrace)
	var e *PeerError
	if !errors.As(w.ranks[0].cause, &e) || e.Rank != 1 {
		t.Errorf("got %v, want rank 1", w.ranks[0].cause)
	}
	if w.ranks[1].cause != nil {
		t.Errorf("the rank that leaves is told of its own leaving: %v", w.ranks[1].cause)
	}
}

// A rank that learns of a failure, tells nobody because all have been told, and leaves before the others have heard, is not to
// be blamed.
func TestHealthMessengerMayLeave(t *testing.T) {
	w := newWard(t, 3)
	w.begin(1, 0, 1, 2)
	w.ranks[0].failed(w.now, &MismatchError{Rank: 1, Want: "mine", Got: "theirs"})
	news := w.ranks[0].flush()
	for _, o := range news[:1] { // to rank 1, who leaves
		n := o.notice
		w.ranks[1].noticed(w.now, 0, &n)
	}
	w.ranks[1].goodbye(func(int) uint64 { return 0 })
	w.pass(suspectGrace / 2)
	if w.ranks[2].cause != nil {
		t.Fatalf("rank 2 has decided on %v", w.ranks[2].cause)
	}
	n := news[1].notice
	w.ranks[2].noticed(w.now, 0, &n)
	w.pass(time.Second)
	if e := new(MismatchError); !errors.As(w.ranks[2].cause, &e) {
		t.Errorf("rank 2: %v", w.ranks[2].cause)
	}
}

// Whatever the deadline, also one that coincides with a probe, those who answer are not missing; nor is who waits in an
// earlier call, when somebody else does not answer at all.
func TestHealthStallIsExact(t *testing.T) {
	for limit := time.Millisecond; limit < 9*time.Second; limit += 50 * time.Millisecond {
		w := newWard(t, 4)
		w.begin(1, 0, 1, 2, 3)
		w.dead[3] = true
		w.pass(limit)
		w.ranks[0].overdue(w.now, context.DeadlineExceeded)
		w.pass(decideGrace)
		var e *StallError
		if !errors.As(w.ranks[0].cause, &e) || !slices.Equal(e.Missing, []int{3}) {
			t.Fatalf("deadline after %v: %v", limit, w.ranks[0].cause)
		}
	}
	w := newWard(t, 3)
	w.begin(1, 0, 1)
	w.ranks[0].end(w.now)
	w.begin(2, 0)
	w.dead[2] = true
	w.ranks[0].overdue(w.now, context.DeadlineExceeded)
	w.pass(decideGrace)
	var e *StallError
	if !errors.As(w.ranks[0].cause, &e) || !slices.Equal(e.Missing, []int{2}) {
		t.Errorf("got %v, want rank 2 alone missing", w.ranks[0].cause)
	}
}

func TestHealthAbort(t *testing.T) {
	w := newWard(t, 3)
	cause := errors.New("enough")
	w.ranks[1].abort(&localAbort{AbortError{1, cause.Error()}, cause})
	w.deliver()
	for r, h := range w.ranks {
		var e *AbortError
		if !errors.As(h.cause, &e) || e.Rank != 1 || e.Text != "enough" || errors.Is(h.cause, cause) != (r == 1) {
			t.Errorf("rank %d: %v", r, h.cause)
		}
	}
}

func TestHealthCancelNamesTheRank(t *testing.T) {
	w := newWard(t, 3)
	w.begin(1, 0, 1, 2)
	w.ranks[1].cancelled("all-reduce #1", context.Canceled)
	w.deliver()
	if !errors.Is(w.ranks[1].cause, context.Canceled) {
		t.Errorf("rank 1: %v", w.ranks[1].cause)
	}
	for _, r := range []int{0, 2} {
		var e *PeerError
		if !errors.As(w.ranks[r].cause, &e) || e.Rank != 1 || !strings.Contains(e.Error(), "cancel") {
			t.Errorf("rank %d: %v", r, w.ranks[r].cause)
		}
	}
}

func TestHealthBreaksOnce(t *testing.T) {
	w := newWard(t, 2)
	w.begin(1, 0, 1)
	w.ranks[0].cancelled("all-reduce #1", context.Canceled)
	first := w.ranks[0].cause
	w.ranks[0].failed(w.now, &PeerError{Rank: 1, Err: io.EOF})
	w.ranks[0].lost(w.now, 1, io.EOF)
	w.ranks[0].overdue(w.now, context.DeadlineExceeded)
	w.pass(time.Minute)
	if w.ranks[0].cause != first {
		t.Errorf("first cause %v was replaced by %v", first, w.ranks[0].cause)
	}
}

// A rank that took part in the call and left in order is not missing from it.
func TestHealthStallSparesThoseWhoLeft(t *testing.T) {
	w := newWard(t, 4)
	w.begin(1, 0, 1, 2)
	w.ranks[2].end(w.now)
	w.ranks[2].goodbye(func(int) uint64 { return 0 })
	w.deliver()
	w.ranks[2].closing = true
	w.kill(2)
	w.ranks[0].overdue(w.now, context.DeadlineExceeded)
	w.pass(decideGrace)
	var e *StallError
	if !errors.As(w.ranks[0].cause, &e) || !slices.Equal(e.Missing, []int{3}) {
		t.Errorf("got %v, want rank 3 missing", w.ranks[0].cause)
	}
}

// A rank that has learned of the stall from another and left at once had arrived all the same.
func TestHealthStallSparesTheMessenger(t *testing.T) {
	w := newWard(t, 4)
	w.begin(1, 0, 2, 3)
	w.pass(probeAfter)
	w.ranks[0].goodbye(func(int) uint64 { return 0 }) // in the middle of the call
	w.ranks[3].overdue(w.now, context.DeadlineExceeded)
	w.deliver()
	w.pass(suspectGrace / 2)
	var e *StallError
	if !errors.As(w.ranks[3].cause, &e) || !slices.Equal(e.Missing, []int{1}) {
		t.Errorf("got %v, want rank 1 missing", w.ranks[3].cause)
	}
}

// What a dead or unreachable peer looks like is blamed after a while, what breaks the protocol at once.
func TestHealthKindsOfFault(t *testing.T) {
	errno := func(e syscall.Errno) error { return &net.OpError{Op: "read", Err: os.NewSyscallError("read", e)} }
	for _, c := range []struct {
		err   error
		grace bool
	}{
		{io.EOF, true}, {io.ErrUnexpectedEOF, true}, {io.ErrClosedPipe, true}, {errno(syscall.ECONNRESET), true}, {errno(syscall.EPIPE), true},
		{errno(syscall.ETIMEDOUT), true}, {errno(syscall.EHOSTUNREACH), true}, {errno(syscall.ENETUNREACH), true},
		{errBadNotice, false}, {errBadEnvelope, false}, {errors.New("protocol error: payload has checksum 1, expected 2"), false},
	} {
		for _, control := range []bool{false, true} {
			w := newWard(t, 3)
			w.begin(1, 0, 1, 2)
			if control {
				w.ranks[0].lost(w.now, 1, c.err)
			} else {
				w.ranks[0].failed(w.now, &PeerError{Rank: 1, Err: c.err})
			}
			if early := w.ranks[0].cause != nil; early == c.grace {
				t.Errorf("%v, on control %v: blamed at once: %v", c.err, control, early)
			}
			w.pass(suspectGrace)
			for r, h := range w.ranks {
				var e *PeerError
				if !errors.As(h.cause, &e) || e.Rank != 1 {
					t.Errorf("%v, on control %v, rank %d: %v", c.err, control, r, h.cause)
				}
			}
		}
	}
}

// When one connection of a pair is cut, whichever end sees it first, all ranks blame the same end: the higher.
func TestHealthCutConnection(t *testing.T) {
	seeded(t, 200, func(t *testing.T, rng *rand.Rand) {
		n := 3 + rng.IntN(3)
		w := newWard(t, n)
		all := rng.Perm(n)
		w.begin(1, all...)
		a, b := min(all[0], all[1]), max(all[0], all[1])
		control := rng.IntN(2) == 0
		cut := func(at, other int) {
			if control {
				w.ranks[at].lost(w.now, other, io.EOF)
			} else {
				w.ranks[at].failed(w.now, &PeerError{Rank: other, Err: io.EOF})
			}
		}
		first, second := a, b
		if rng.IntN(2) == 0 {
			first, second = b, a
		}
		if control {
			w.blocked[[2]int{a, b}], w.blocked[[2]int{b, a}] = true, true
		}
		cut(first, second)
		w.pass(upTo(rng, suspectGrace))
		cut(second, first)
		w.pass(time.Second)
		for r, h := range w.ranks {
			var e *PeerError
			if !errors.As(h.cause, &e) || e.Rank != b {
				t.Errorf("rank %d: %v, want rank %d blamed for the cut between %d and %d", r, h.cause, b, a, b)
			}
		}
	})
}
