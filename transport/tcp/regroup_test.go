package tcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccl/goccl/transport"
)

// TestManyEpochs goes from epoch to epoch and grows in nothing.
func TestManyEpochs(t *testing.T) {
	rounds := uint64(1000)
	if testing.Short() {
		rounds = 100
	}
	ts := newWorld(t, 2, Config{})
	files, goroutines := 0, 0
	for number := range rounds {
		if number == 10 { // what is started once is there
			files, goroutines = openFiles(t), runtime.NumGoroutine()
		}
		fresh, errs := regroup(t.Context(), ts, number+1, nil)
		noErrors(t, errs)
		closeTransports(ts)
		ts = fresh
	}
	talk(t, ts)
	h := ts[0].mesh.host
	eventually(t, "descriptors and goroutines to end", func() (bool, string) {
		f, g := openFiles(t), runtime.NumGoroutine()
		return f <= files+8 && g <= goroutines+8, fmt.Sprintf("%d descriptors (had %d), %d goroutines (had %d)", f, files, g, goroutines)
	})
	h.mu.Lock()
	if len(h.worlds) != 1 || len(h.ended) > endedWorlds {
		t.Errorf("%d worlds, %d ended ones", len(h.worlds), len(h.ended))
	}
	h.mu.Unlock()
	closeTransports(ts)
	eventually(t, "the listeners to end with the last world", func() (bool, string) {
		f := openFiles(t)
		return f < files, fmt.Sprintf("%d descriptors (had %d)", f, files)
	})
}

// TestGivenUpAttemptsLeaveNothing has attempts that only one rank makes and gives up: nothing of them stays at the other.
func TestGivenUpAttemptsLeaveNothing(t *testing.T) {
	ts := newWorld(t, 2, Config{})
	defer closeTransports(ts)
	attempt := func(rank int, number uint64) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err := ts[rank].Regroup(ctx, transport.Epoch{Number: number, Ranks: []int{0, 1}})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	}
	attempt(0, 1)
	attempt(1, 2)
	files, goroutines := openFiles(t), runtime.NumGoroutine()
	for number := range uint64(50) {
		attempt(int(number%2), number+3)
	}
	eventually(t, "what was given up to end", func() (bool, string) {
		f, g := openFiles(t), runtime.NumGoroutine()
		return f <= files && g <= goroutines, fmt.Sprintf("%d descriptors (had %d), %d goroutines (had %d)", f, files, g, goroutines)
	})
	fresh, errs := regroup(t.Context(), ts, 100, nil)
	noErrors(t, errs)
	talk(t, fresh)
	closeTransports(fresh)
}

// TestCalledOff: what one rank alone has seen reaches those that wait for others, and one that has yet to begin.
func TestCalledOff(t *testing.T) {
	t.Parallel()
	ts := newWorld(t, 4, Config{})
	defer closeTransports(ts)
	next := transport.Epoch{Number: 1, Ranks: []int{0, 1, 2, 3}}
	errs := make([]error, 4)
	ctx, giveUp := context.WithCancelCause(t.Context())
	var wg sync.WaitGroup
	for r := range 3 {
		its := t.Context()
		if r == 1 {
			its = ctx
		}
		wg.Go(func() { _, errs[r] = ts[r].Regroup(its, next) })
	}
	m := ts[0].mesh.host
	eventually(t, "the attempt to begin", func() (bool, string) {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.worlds) == 2, ""
	})
	why := errors.New("enough of this")
	giveUp(why)
	wg.Wait()
	_, errs[3] = ts[3].Regroup(t.Context(), next)
	if !errors.Is(errs[1], why) {
		t.Errorf("rank 1: %v", errs[1])
	}
	wantPeer(t, slices.Delete(errs, 1, 2), 1)
}

// TestCalledOffBeforehand: the same when the rank had given up before it called.
func TestCalledOffBeforehand(t *testing.T) {
	t.Parallel()
	ts := newWorld(t, 3, Config{})
	defer closeTransports(ts)
	next := transport.Epoch{Number: 1, Ranks: []int{0, 1, 2}}
	ended, giveUp := context.WithCancelCause(t.Context())
	why := errors.New("enough of this")
	giveUp(why)
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	errs := make([]error, 3)
	var wg sync.WaitGroup
	for r, its := range []context.Context{ctx, ended, ctx} {
		wg.Go(func() { _, errs[r] = ts[r].Regroup(its, next) })
	}
	wg.Wait()
	if !errors.Is(errs[1], why) {
		t.Errorf("rank 1: %v", errs[1])
	}
	wantPeer(t, slices.Delete(errs, 1, 2), 1)
	if ctx.Err() != nil {
		t.Error("the others were not told")
	}
}

// TestWhoLeftIsNamed: a rank that dies in the middle of an attempt is named by all, although those that see it first give up
// before the others do.
func TestWhoLeftIsNamed(t *testing.T) {
	t.Parallel()
	for victim := range 4 {
		ts := newWorld(t, 4, Config{})
		errs := make([]error, 4)
		var wg sync.WaitGroup
		for r := range 4 {
			if r != (victim+1)%4 { // who never calls, so that the attempt lasts
				wg.Go(func() { _, errs[r] = ts[r].Regroup(t.Context(), transport.Epoch{Number: 1, Ranks: []int{3, 2, 1, 0}}) })
			}
		}
		m := ts[victim].mesh.host
		eventually(t, "the attempt to begin", func() (bool, string) {
			m.mu.Lock()
			defer m.mu.Unlock()
			return len(m.worlds) == 2, ""
		})
		ts[victim].Close()
		wg.Wait()
		if !errors.Is(errs[victim], net.ErrClosed) {
			t.Errorf("rank %d has closed: %v", victim, errs[victim])
		}
		wantPeer(t, []error{errs[(victim+2)%4], errs[(victim+3)%4]}, 3-victim)
		closeTransports(ts)
	}
}

// TestStrangeTickets: what did not come from Waiting is refused before anything is opened.
func TestStrangeTickets(t *testing.T) {
	t.Parallel()
	ts := newWorld(t, 2, Config{})
	defer closeTransports(ts)
	good := newTicket([ticketSize]byte{1}, &peerInfo{tcp: "127.0.0.1:1"})
	for what, tickets := range map[string][][]byte{
		"empty": {{}}, "cut": {good[:len(good)-1]}, "long": {append(slices.Clone(good), 0)}, "twice": {good, good},
		"shared": {newTicket([ticketSize]byte{1}, &peerInfo{tcp: "127.0.0.1:1", shared: true})},
	} {
		if _, err := ts[0].Regroup(t.Context(), transport.Epoch{Number: 1, Ranks: []int{0, 1}, Newcomers: tickets}); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if n := len(ts[0].mesh.host.ended); n != 0 {
		t.Errorf("%d attempts", n)
	}
}

// TestGuide keeps where ranks listen, the latest of many, and never sends a process to itself.
func TestGuide(t *testing.T) {
	g := &guide{}
	g.add("a:1")
	g.add("b:1")
	g.add("a:1")
	if to := g.send("c:1"); !slices.Equal(to, []string{"a:1", "b:1"}) {
		t.Errorf("%v", to)
	}
	if to := g.send("a:1"); !slices.Equal(to, []string{"b:1", "c:1"}) {
		t.Errorf("%v", to)
	}
	for i := range 3 * maxRedirect {
		if to := g.send(fmt.Sprintf("x:%d", i)); len(to) > maxRedirect {
			t.Fatalf("%d addresses", len(to))
		}
	}
	if to := g.send("y:1"); len(to) != maxRedirect || to[maxRedirect-1] != fmt.Sprintf("x:%d", 3*maxRedirect-1) {
		t.Errorf("%d addresses", len(to))
	}
}

// A call-off that comes between a world's first connections and its opening is not lost.
func TestCalledOffBeforeItOpens(t *testing.T) {
	h := &host{worlds: map[[16]byte]*mesh{}, changed: make(chan struct{})}
	m := newMesh(h, 0, 1, &table{world: [16]byte{1}, peers: make([]peerInfo, 3)}, netip.AddrPort{}, netip.Addr{})
	if err := h.enter(m); err != nil {
		t.Fatal(err)
	}
	h.calledOff(m.world, &callOff{2, "it had enough"})
	var err error
	m.failing(func(e error) { err = e })
	var peer *transport.PeerError
	if !errors.As(err, &peer) || peer.Rank != 2 || !strings.Contains(err.Error(), "it had enough") {
		t.Errorf("told %v, want what rank 2 is said to have done", err)
	}
}

// A coordinator that is told to go in the moment in which it began another start keeps nobody waiting for that.
func TestMeetingPointEnds(t *testing.T) {
	for _, first := range []string{"start", "end"} {
		p := &meetingPoint{cfg: RendezvousConfig{Size: 2, RunID: "run 7", Stay: true}, again: make(chan struct{}, 1)}
		p.restart()
		p.srv = newServer(nil, roleRunning, slog.New(slog.DiscardHandler), nil)
		old := &guide{}
		p.guide = old
		if first == "end" {
			p.start.finish(&outcome{})
			p.end()
		}
		c := p.startOver(old)
		if first == "start" {
			p.end()
		}
		enlisted := make(chan bool, 1)
		near, far := net.Pipe()
		go func() { enlisted <- c.enlist(near, &hello{}, &registration{}) }()
		select {
		case in := <-enlisted:
			if in {
				t.Errorf("%s first: a rank was enlisted", first)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("%s first: a rank waits for a start that nobody runs", first)
		}
		far.Close()
	}
}
