package tcp

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccl/goccl/transport"
)

// A run is a world under a run id, for newcomers to come to.
type run struct {
	t    *testing.T
	cfgs []Config
	ts   []*Transport
}

// startRun connects n ranks that meet at the addresses at; change, if not nil, changes their configurations.
func startRun(t *testing.T, n int, at string, change func(r int, c *Config)) *run {
	t.Helper()
	r := &run{t: t, cfgs: make([]Config, n), ts: make([]*Transport, n)}
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range r.cfgs {
		r.cfgs[i] = Config{Rank: i, Size: n, Coordinator: at, RunID: "run 7", Timeout: 30 * time.Second}
		if change != nil {
			change(i, &r.cfgs[i])
		}
		wg.Go(func() { r.ts[i], errs[i] = Connect(t.Context(), r.cfgs[i]) })
	}
	wg.Wait()
	noErrors(t, errs)
	t.Cleanup(func() { closeTransports(r.ts) })
	return r
}

func closeTransports(ts []*Transport) {
	var wg sync.WaitGroup
	for _, tr := range ts {
		if tr != nil {
			wg.Go(func() { tr.Close() })
		}
	}
	wg.Wait()
}

// A joined is what a process got that came later.
type joined struct {
	tr  *Transport
	err error
}

// rejoin starts a process that comes to the run in place of rank i, with another configuration if change makes it one.
func (r *run) rejoin(ctx context.Context, i int, change func(c *Config)) <-chan joined {
	cfg := r.cfgs[i]
	cfg.Listener = nil
	if change != nil {
		change(&cfg)
	}
	got := make(chan joined, 1)
	go func() {
		tr, err := Connect(ctx, cfg)
		if err == nil {
			r.t.Cleanup(func() { tr.Close() })
		}
		got <- joined{tr, err}
	}()
	return got
}

// waiting returns the tickets of n newcomers that wait at members, once they do.
func (r *run) waiting(n int, members ...*Transport) (tickets [][]byte) {
	r.t.Helper()
	eventually(r.t, "newcomers to wait", func() (bool, string) {
		tickets = nil
		for _, m := range members {
			tickets = append(tickets, m.Waiting()...)
		}
		return len(tickets) == n, ""
	})
	return tickets
}

// regroup runs Regroup on all members; ranks are theirs in the world they are from.
func regroup(ctx context.Context, members []*Transport, number uint64, newcomers [][]byte) ([]*Transport, []error) {
	next := transport.Epoch{Number: number, Newcomers: newcomers}
	for _, m := range members {
		next.Ranks = append(next.Ranks, m.Rank())
	}
	ts, errs := make([]*Transport, len(members)), make([]error, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		wg.Go(func() {
			var tr transport.Transport
			if tr, errs[i] = m.Regroup(ctx, next); errs[i] == nil {
				ts[i] = tr.(*Transport)
			}
		})
	}
	wg.Wait()
	return ts, errs
}

// admit is regroup that works, and makes the newcomers part of what it returns.
func (r *run) admit(members []*Transport, number uint64, newcomers [][]byte, come ...<-chan joined) []*Transport {
	r.t.Helper()
	ts, errs := regroup(r.t.Context(), members, number, newcomers)
	noErrors(r.t, errs)
	r.t.Cleanup(func() { closeTransports(ts) })
	fresh := make([]*Transport, len(newcomers))
	for _, c := range come {
		got := <-c
		if got.err != nil {
			r.t.Fatal(got.err)
		}
		if e := got.tr.Epoch(); e != number || got.tr.Size() != len(ts)+len(fresh) || got.tr.Rank() < len(ts) {
			r.t.Fatalf("newcomer is rank %d of %d in epoch %d", got.tr.Rank(), got.tr.Size(), e)
		}
		fresh[got.tr.Rank()-len(ts)] = got.tr
	}
	ts = append(ts, fresh...)
	talk(r.t, ts)
	return ts
}

// talk sends a message of each class from every rank to every other.
func talk(t *testing.T, ts []*Transport) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for _, from := range ts {
		for _, to := range ts {
			for class := transport.Collective; class <= transport.Control; class++ {
				if from == to {
					continue
				}
				tag := transport.Tag{Class: class, Match: 1}
				wg.Go(func() {
					if err := from.Send(ctx, to.Rank(), tag, []byte{byte(from.Rank()), byte(class)}); err != nil {
						t.Errorf("rank %d to rank %d: %v", from.Rank(), to.Rank(), err)
					}
				})
				wg.Go(func() {
					var got [2]byte
					if err := to.Recv(ctx, from.Rank(), tag, got[:]); err != nil || got != [2]byte{byte(from.Rank()), byte(class)} {
						t.Errorf("rank %d from rank %d: %v, %v", to.Rank(), from.Rank(), got, err)
					}
				})
			}
		}
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// addressList gives n addresses at which nobody listens yet, and their list.
func addressList(t *testing.T, n int) (each []string, all string) {
	for range n {
		each = append(each, freePort(t))
	}
	return each, strings.Join(each, ",")
}

// listening makes every rank listen at its own address of the list; rank 0 does as it meets the others.
func listening(each []string) func(r int, c *Config) {
	return func(r int, c *Config) {
		if r > 0 {
			c.Listen = each[r]
		}
	}
}

// TestRejoin loses a rank, is met by another process in its place, and admits it; then once more, the coordinator.
func TestRejoin(t *testing.T) {
	t.Parallel()
	each, all := addressList(t, 3)
	r := startRun(t, 3, all, func(r int, c *Config) {
		listening(each)(r, c)
		c.Secret = []byte("of this run alone")
	})
	got := <-r.rejoin(t.Context(), 1, func(c *Config) { c.Secret, c.Listen = []byte("of another run"), "" })
	wantAll(t, []error{got.err}, "the secrets differ")
	r.ts[1].Close()
	came := r.rejoin(t.Context(), 1, nil)
	tickets := r.waiting(1, r.ts[0], r.ts[2])
	now := r.admit([]*Transport{r.ts[0], r.ts[2]}, 1, tickets, came)
	closeTransports(r.ts)
	talkOnce(t, now)

	now[0].Close() // rank 0, which coordinated
	came = r.rejoin(t.Context(), 0, nil)
	tickets = r.waiting(1, now[1:]...)
	now = r.admit(now[1:], 2, tickets, came)
	if now[2].Rank() != 2 {
		t.Errorf("the process that was rank 0 is rank %d", now[2].Rank())
	}
}

// talkOnce is talk in another group, so that it may follow one.
func talkOnce(t *testing.T, ts []*Transport) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for i, tr := range ts {
		next := ts[(i+1)%len(ts)]
		tag := transport.Tag{Class: transport.Control, Match: 2}
		if err := tr.Send(ctx, next.Rank(), tag, nil); err != nil {
			t.Fatal(err)
		}
		if err := next.Recv(ctx, tr.Rank(), tag, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRejoinAtTheCoordinatorsAddress: with the one address of rank 0, whatever rank comes waits there, another rank 0 too.
func TestRejoinAtTheCoordinatorsAddress(t *testing.T) {
	t.Parallel()
	r := startRun(t, 2, freePort(t), nil)
	zero := r.rejoin(t.Context(), 0, nil)
	one := r.rejoin(t.Context(), 1, nil)
	tickets := r.waiting(2, r.ts[0])
	r.admit(r.ts, 1, tickets, zero, one)
}

// TestRejoinWithoutRunID: nobody waits in a run without a name.
func TestRejoinWithoutRunID(t *testing.T) {
	t.Parallel()
	r := startRun(t, 2, freePort(t), func(_ int, c *Config) { c.RunID = "" })
	got := <-r.rejoin(t.Context(), 1, nil)
	wantAll(t, []error{got.err}, "this run has begun already: rank 1 is at 127.0.0.1:", "set RunID to wait for admission")
}

// TestTwoNewcomersAtTwoMembers admits two at once that wait at different ranks.
func TestTwoNewcomersAtTwoMembers(t *testing.T) {
	t.Parallel()
	each, all := addressList(t, 3)
	r := startRun(t, 3, all, listening(each))
	a := r.rejoin(t.Context(), 1, func(c *Config) { c.Coordinator, c.Listen = each[1], "" })
	first := r.waiting(1, r.ts[1])
	b := r.rejoin(t.Context(), 1, func(c *Config) { c.Coordinator, c.Listen = each[2], "" })
	second := r.waiting(1, r.ts[2])
	r.admit(r.ts, 3, append(first, second...), a, b)
	r.waiting(0, r.ts...)
}

// TestNewcomersOptionsDiffer: a newcomer with another option is told which, and does not wait.
func TestNewcomersOptionsDiffer(t *testing.T) {
	t.Parallel()
	r := startRun(t, 2, freePort(t), func(_ int, c *Config) { c.Options = map[string]string{"batch": "32"} })
	got := <-r.rejoin(t.Context(), 1, func(c *Config) { c.Options = map[string]string{"batch": "64"} })
	wantAll(t, []error{got.err}, `option "batch" differs`, `has "64"`, `has "32"`)
	got = <-r.rejoin(t.Context(), 1, func(c *Config) { c.RunID = "run 8" })
	wantAll(t, []error{got.err}, `run id differs: rank 1 belongs to "run 8", the run at `, ` to "run 7"`)
	r.waiting(0, r.ts...)
}

// TestNewcomerGivesUp: at its deadline a newcomer says who runs, and nobody keeps it in mind.
func TestNewcomerGivesUp(t *testing.T) {
	t.Parallel()
	r := startRun(t, 2, freePort(t), nil)
	got := <-r.rejoin(t.Context(), 1, func(c *Config) { c.Timeout = 1500 * time.Millisecond })
	wantAll(t, []error{got.err}, `run "run 7" is running with 2 ranks at `+r.cfgs[0].Coordinator, "did not admit this process within 1.5")
	if !errors.Is(got.err, context.DeadlineExceeded) {
		t.Errorf("%v is no deadline", got.err)
	}
	r.waiting(0, r.ts...)

	ctx, cancel := context.WithCancelCause(t.Context())
	came := r.rejoin(ctx, 1, nil)
	tickets := r.waiting(1, r.ts[0])
	why := errors.New("no more patience")
	cancel(why)
	if got := <-came; !errors.Is(got.err, why) {
		t.Errorf("cancelled: %v", got.err)
	}
	r.waiting(0, r.ts...)
	_, errs := regroup(t.Context(), r.ts, 1, tickets)
	wantPeer(t, errs, 2)
	r.admit(r.ts, 2, nil)
}

// wantPeer checks that every error names the same rank.
func wantPeer(t *testing.T, errs []error, rank int) {
	t.Helper()
	for i, err := range errs {
		if pe := (*transport.PeerError)(nil); !errors.As(err, &pe) || pe.Rank != rank {
			t.Errorf("member %d: %v, want a PeerError of rank %d", i, err, rank)
		}
	}
}

// TestNewcomerDiesWhileAdmitted has a newcomer that hangs up when it is called in, and one that reports a failure.
func TestNewcomerDiesWhileAdmitted(t *testing.T) {
	t.Parallel()
	r := startRun(t, 3, freePort(t), nil)
	for i, end := range []func(conn net.Conn){
		func(conn net.Conn) { conn.Close() },
		func(conn net.Conn) { conn.Write(message(kindResult, failed(nil, "no descriptors left").payload())) },
	} {
		conn := pretend(t, r.cfgs[0].Coordinator, &hello{purpose: purposeRegister, from: 1, to: nobody, size: 3, runID: "run 7"})
		reg := registration{info: peerInfo{tcp: "127.0.0.1:1", host: hostID()}}
		conn.Write(message(kindRegister, reg.payload()))
		go func() {
			for {
				h, _, err := readMessage(conn)
				if err != nil {
					return
				}
				if h.kind == kindAdmit {
					end(conn)
				}
			}
		}()
		_, errs := regroup(t.Context(), r.ts, uint64(i+1), r.waiting(1, r.ts...))
		wantPeer(t, errs, 3)
		conn.Close()
		r.waiting(0, r.ts...)
	}
	r.admit(r.ts, 9, nil)
}

// TestAdmissionCalledOff: when the members give an attempt up, the newcomer waits on and gets in with the next.
func TestAdmissionCalledOff(t *testing.T) {
	t.Parallel()
	r := startRun(t, 3, freePort(t), nil)
	came := r.rejoin(t.Context(), 1, nil)
	tickets := r.waiting(1, r.ts...)
	for number := range uint64(3) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		members := r.ts
		if number > 0 { // rank 1 never calls
			members = []*Transport{r.ts[0], r.ts[2]}
		}
		next := transport.Epoch{Number: number + 1, Ranks: []int{0, 1, 2}, Newcomers: tickets}
		if number == 0 { // no time at all
			cancel()
		}
		var wg sync.WaitGroup
		for _, m := range members {
			wg.Go(func() {
				if _, err := m.Regroup(ctx, next); err == nil {
					t.Errorf("attempt %d: rank %d has an epoch without rank 1", number, m.Rank())
				}
			})
		}
		wg.Wait()
		cancel()
		tickets = r.waiting(1, r.ts...)
	}
	r.admit(r.ts, 10, tickets, came)
}

// TestWaitingSurvivesTheRank: a newcomer that waits at a rank which ends finds another, and waits through epochs.
func TestWaitingSurvivesTheRank(t *testing.T) {
	t.Parallel()
	each, all := addressList(t, 3)
	r := startRun(t, 3, all, listening(each))
	came := r.rejoin(t.Context(), 2, func(c *Config) { c.Listen = "" })
	r.waiting(1, r.ts[0])
	r.ts[0].Close()
	r.waiting(1, r.ts[1:]...)
	now := r.admit(r.ts[1:], 1, nil)
	closeTransports(r.ts)
	r.admit(now, 2, r.waiting(1, now...), came)
}

// TestLobbyIsBounded fills a lobby.
func TestLobbyIsBounded(t *testing.T) {
	t.Parallel()
	r := startRun(t, 2, freePort(t), nil)
	h := func() *hello { return &hello{purpose: purposeRegister, from: 1, to: nobody, size: 2, runID: "run 7"} }
	reg := registration{info: peerInfo{tcp: "127.0.0.1:1", host: hostID()}}
	var conns []net.Conn
	for range maxLobby {
		conn := pretend(t, r.cfgs[0].Coordinator, h())
		defer conn.Close()
		conn.Write(message(kindRegister, reg.payload()))
		conns = append(conns, conn)
	}
	r.waiting(maxLobby, r.ts[0])
	conn, err := net.Dial("tcp", r.cfgs[0].Coordinator)
	if err != nil {
		t.Fatal(err)
	}
	var none *credentials
	_, err = none.introduce(t.Context(), conn, "127.0.0.1", h(), nil)
	if busy := (*rejection)(nil); !errors.As(err, &busy) || busy.code != rejectBusy {
		t.Errorf("one too many: %v", err)
	}
	conns[0].Close()
	r.waiting(maxLobby-1, r.ts[0])
}

// A rank that leaves while a process is on its way in hangs up, as it does on those that wait: the run goes on elsewhere.
func TestLobbyClosesAtTheDoor(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	l := &lobby{host: &host{runID: "run 7"}, closed: true, log: slog.New(slog.DiscardHandler)}
	reg := registration{info: peerInfo{host: [hostIDSize]byte{1}, tcp: "127.0.0.1:1"}}
	l.own.host = reg.info.host
	go l.take(near, &hello{}, func() {})
	if _, err := far.Write(message(kindRegister, reg.payload())); err != nil {
		t.Fatal(err)
	}
	if n, err := far.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("%d bytes, %v: want to be hung up on", n, err)
	}
}

// A process without a run id that registers just when the run begins does not wait: nobody would tell it that it is not wanted.
func TestLobbyWithoutRunID(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	l := &lobby{host: &host{}, log: slog.New(slog.DiscardHandler)}
	go l.take(near, &hello{from: 1}, func() {})
	if _, err := far.Write(message(kindRegister, (&registration{info: peerInfo{tcp: "127.0.0.1:1"}}).payload())); err != nil {
		t.Fatal(err)
	}
	p, err := expect(far, kindVerdict)
	if err != nil {
		t.Fatal(err)
	}
	if o, err := decodeOutcome(p); err != nil || o.code == outcomeFine {
		t.Errorf("verdict %v, %v: want a refusal", o, err)
	}
}

// TestFailedNewcomerIsPassedOver: who does not come in twice is not asked again for a while, then for longer.
func TestFailedNewcomerIsPassedOver(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	go io.Copy(io.Discard, far)
	l := &lobby{host: &host{runID: "run 7"}}
	n := &newcomer{lobby: l, conn: near, ticket: []byte("ticket")}
	l.inside = []*newcomer{n}
	var last time.Duration
	for failures := range 20 {
		if shown := len(l.waiting()); shown != 1 {
			t.Fatalf("after %d failures and the time for them %d wait, want 1", failures, shown)
		}
		party{n}.conclude(false)
		wait := max(time.Until(n.notAgain), 0)
		switch shown := len(l.waiting()); {
		case failures == 0 && shown != 1:
			t.Error("it is passed over after its first failure")
		case failures > 0 && shown != 0:
			t.Errorf("it is asked again at once after %d failures", failures+1)
		case failures > 0 && wait < last || wait > retryAtMost:
			t.Errorf("it is passed over for %v after %d failures, before for %v", wait, failures+1, last)
		}
		last = max(wait-time.Second, 0)
		n.notAgain = time.Time{}
	}
}

// TestRedirect has a coordinator apart that stays, and sends those who come later to the ranks, living or dead; when none is
// left it coordinates another start.
func TestRedirect(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	ln := listener(t)
	stayed := make(chan error, 1)
	go func() {
		stayed <- Rendezvous(ctx, ln, RendezvousConfig{Size: 3, RunID: "run 7", Stay: true, Timeout: 30 * time.Second})
	}()
	r := startRun(t, 3, ln.Addr().String(), nil)
	r.ts[0].Close()
	came := r.rejoin(t.Context(), 0, nil)
	now := r.admit(r.ts[1:], 1, r.waiting(1, r.ts[1:]...), came)
	closeTransports(r.ts)
	// The only one left is the one that came later.
	closeTransports(now[:2])
	came = r.rejoin(t.Context(), 1, nil)
	last := r.admit(now[2:], 2, r.waiting(1, now[2]), came)
	closeTransports(append(now, last...))

	r = startRun(t, 3, ln.Addr().String(), nil)
	if e := r.ts[1].Epoch(); e != 0 {
		t.Errorf("epoch %d after everybody had left", e)
	}
	talk(t, r.ts)
	cancel()
	if err := <-stayed; err != nil {
		t.Errorf("the coordinator: %v", err)
	}
}
