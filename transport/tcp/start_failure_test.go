package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestDuplicateRank(t *testing.T) {
	t.Parallel()
	for name, claims := range map[string][]int{"all others there": {0, 1, 1, 2}, "one still missing": {0, 1, 1}} {
		t.Run(name, func(t *testing.T) {
			cfgs := world(t, 3)
			errs := make([]error, len(claims))
			var wg sync.WaitGroup
			for i, r := range claims {
				wg.Go(func() {
					// Nobody is done before the second claim is in.
					_, errs[i] = join(t.Context(), cfgs[r], func(ctx context.Context, m *mesh) error {
						<-ctx.Done()
						return context.Cause(ctx)
					})
				})
			}
			wg.Wait()
			wantAll(t, errs, "rank 1 is claimed twice: by 127.0.0.1:", " and by 127.0.0.1:", "join at "+cfgs[1].Coordinator)
			for _, err := range errs {
				if e := new(JoinError); errors.As(err, &e) && !slices.Equal(e.Ranks, []int{1}) {
					t.Errorf("ranks at fault %v, want 1", e.Ranks)
				}
			}
		})
	}
}

// TestAfterTheVerdict registers with a coordinator that has just finished: nobody may be left without an answer.
func TestAfterTheVerdict(t *testing.T) {
	t.Parallel()
	for _, failure := range []*outcome{nil, failed(nil, "no luck")} {
		c := newCoordinator(1, "", "here:1", "the coordinator")
		c.roster.admit(&member{rank: 0, size: 1, addr: "there:2"})
		verdict, want := &outcome{}, "this run has begun already: rank 0 is at there:2; set RunID to wait for admission"
		if failure != nil {
			verdict, want = failure, "the start of this run has failed: no luck"
		}
		c.finish(verdict)
		h := &hello{from: 0, size: 1}
		if r := c.check(t.Context(), h, nil); r == nil || r.text != want {
			t.Errorf("refusal %v, want %q", r, want)
		}
		near, far := net.Pipe()
		go c.take(far, h, func() {}) // it was let in a moment before
		near.Write(message(kindRegister, (&registration{}).payload()))
		p, err := expect(near, kindVerdict)
		if err != nil {
			t.Fatal(err)
		}
		if o, err := decodeOutcome(p); err != nil || o.code != outcomeFailed || o.text != want {
			t.Errorf("verdict %+v, %v", o, err)
		}
		near.Close()
	}
}

func TestPeers41_MissingRank(t *testing.T) {
	t.Parallel()
	for name, timeouts := range map[string][3]time.Duration{
		"same deadline":            {500 * time.Millisecond, 500 * time.Millisecond, 500 * time.Millisecond},
		"coordinator's is earlier": {400 * time.Millisecond, 10 * time.Second, 10 * time.Second},
		"another's is earlier":     {10 * time.Second, 400 * time.Millisecond, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			cfgs := world(t, 4)
			started := []Config{cfgs[0], cfgs[1], cfgs[3]}
			for i := range started {
				started[i].Timeout = timeouts[i]
			}
			began := time.Now()
			_, errs := startAll(t, started)
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("took %v", took)
			}
			wantAll(t, errs, "deadline passed")
			for i, err := range errs {
				var e *JoinError
				if !errors.As(err, &e) || !slices.Equal(e.Missing, []int{2}) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("config %d: %#v", i, err)
				}
				if !strings.HasSuffix(err.Error(), ": missing: rank 2") {
					t.Errorf("config %d: %q does not end in exactly who is missing", i, err)
				}
			}
		})
	}
}

func TestCancelledRank(t *testing.T) {
	t.Parallel()
	var both sync.WaitGroup
	for who := range 2 {
		both.Go(func() { cancelRank(t, who) })
	}
	both.Wait()
}

func cancelRank(t *testing.T, who int) {
	cfgs := world(t, 3) // rank 2 never comes
	cause := errors.New("the user thought better of it")
	ctx, cancel := context.WithCancelCause(t.Context())
	errs := make([]error, 2)
	var wg sync.WaitGroup
	waiting := make(chan struct{}, 2)
	for r := range 2 {
		wg.Go(func() {
			own := t.Context()
			if r == who {
				own = ctx
			}
			fake := machine()
			hostID := fake.hostID
			fake.hostID = func() [hostIDSize]byte { waiting <- struct{}{}; return hostID() }
			cfgs[r].net = fake
			_, errs[r] = join(own, cfgs[r], fullMesh)
		})
	}
	<-waiting // both are about to register
	<-waiting
	cancel(cause)
	wg.Wait()
	wantAll(t, errs, fmt.Sprintf("rank %d", who), "gave up: "+cause.Error())
	if !errors.Is(errs[who], cause) {
		t.Errorf("rank %d: %v does not wrap the cause", who, errs[who])
	}
}

func TestPeers42_SizesDisagree(t *testing.T) {
	t.Parallel()
	cfgs := world(t, 3)
	cfgs[1].Size = 2
	_, errs := startAll(t, cfgs[:2])
	wantAll(t, errs, "sizes disagree: rank 1 (127.0.0.1:", "says 2, rank 0 ("+cfgs[1].Coordinator+") says 3")
}

func TestOptionsDiffer(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	for _, test := range []struct {
		one, two map[string]string
		words    []string
	}{
		{map[string]string{"a": "1", "algo": "ring"}, map[string]string{"a": "1", "algo": "direct"},
			[]string{`option "algo" differs: rank 0 (`, `has "ring", rank 2 (`, `has "direct"`}},
		{map[string]string{"a": "1"}, map[string]string{"a": "1", "b": "2"}, []string{`option "b" differs`, "has nothing, rank 2", `has "2"`}},
		{map[string]string{"a": "1"}, nil, []string{`option "a" differs`, `has "1", rank 2`, "has nothing"}},
	} {
		all.Go(func() {
			cfgs := world(t, 3)
			cfgs[0].Options, cfgs[2].Options = test.one, test.two
			_, errs := startAll(t, []Config{cfgs[0], cfgs[2]})
			wantAll(t, errs, test.words...)
		})
	}
	all.Wait()
}

func TestPeers43_ForeignRunRefused(t *testing.T) {
	t.Parallel()
	cfgs := world(t, 3)
	stale := cfgs[1]
	for r := range cfgs {
		cfgs[r].RunID = "B"
	}
	stale.RunID = "A"
	_, errs := startAll(t, append(cfgs, stale))
	noErrors(t, errs[:3])
	wantAll(t, errs[3:], `run id differs: rank 1 belongs to "A", the `, cfgs[0].Coordinator)
}

func TestLateRankRefused(t *testing.T) {
	t.Parallel()
	cfgs := world(t, 2)
	_, errs := startAll(t, cfgs)
	noErrors(t, errs)
	_, errs = startAll(t, cfgs[1:])
	wantAll(t, errs, "this run has begun already: rank 1 is at 127.0.0.1:", "set RunID to wait for admission")
}

func TestLostRank(t *testing.T) {
	t.Parallel()
	cfgs := world(t, 3)
	go func() {
		conn := pretend(t, cfgs[2].Coordinator, &hello{purpose: purposeRegister, from: 2, to: nobody, size: 3})
		defer conn.Close()
		reg := registration{info: peerInfo{tcp: "127.0.0.1:1", host: hostID()}}
		conn.Write(message(kindRegister, reg.payload()))
		expect(conn, kindWaiting) // at least one, or the table
	}()
	_, errs := startAll(t, cfgs[:2])
	wantAll(t, errs, "rank 2 (127.0.0.1:1) was lost before all were connected")
}

// pretend dials and takes the handshake as a rank would.
func pretend(t *testing.T, at string, h *hello) net.Conn {
	conn, err := net.Dial("tcp", at)
	if err != nil {
		t.Error(err)
		return nil
	}
	if _, err := (*credentials)(nil).introduce(t.Context(), conn, "127.0.0.1", h, nil); err != nil {
		t.Error(err)
	}
	return conn
}

func TestFailedOpen(t *testing.T) {
	t.Parallel()
	for _, who := range []int{0, 2} {
		cfgs := world(t, 4)
		broken := errors.New("the disk is on fire")
		errs := make([]error, 4)
		var wg sync.WaitGroup
		for r := range cfgs {
			wg.Go(func() {
				_, errs[r] = join(t.Context(), cfgs[r], func(ctx context.Context, m *mesh) error {
					if m.rank == who {
						return broken
					}
					return fullMesh(ctx, m)
				})
			})
		}
		wg.Wait()
		wantAll(t, errs, fmt.Sprintf("rank %d (127.0.0.1:", who), broken.Error())
		if !errors.Is(errs[who], broken) {
			t.Errorf("rank %d: %v", who, errs[who])
		}
	}
}

// TestStuckOpen has a rank that never connects: at the deadline everybody names it.
func TestStuckOpen(t *testing.T) {
	t.Parallel()
	cfgs := world(t, 3)
	for r := range cfgs {
		cfgs[r].Timeout = 500 * time.Millisecond
	}
	cfgs[1].Timeout = 10 * time.Second
	errs := make([]error, 3)
	var wg sync.WaitGroup
	for r := range cfgs {
		wg.Go(func() {
			_, errs[r] = join(t.Context(), cfgs[r], func(ctx context.Context, m *mesh) error {
				if m.rank == 1 {
					<-ctx.Done()
					return context.Cause(ctx)
				}
				return nil
			})
		})
	}
	wg.Wait()
	wantAll(t, errs, "deadline passed", "not connected to all others: rank 1")
	for r, err := range errs {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

func TestPeers32_LoopbackAmongHosts(t *testing.T) {
	t.Parallel()
	cfgs := world(t, 3)
	other := machine()
	other.hostID = func() [hostIDSize]byte { return [hostIDSize]byte{1} }
	cfgs[2].net = other
	_, errs := startAll(t, cfgs)
	wantAll(t, errs, "advertises the loopback address 127.0.0.1:", "on another host cannot reach")
}

func TestPeers44_OutOfDescriptors(t *testing.T) {
	t.Parallel()
	t.Run("dialling", func(t *testing.T) {
		cfgs := world(t, 2)
		full := machine()
		dial := full.dial
		full.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == cfgs[1].Coordinator && network == "tcp" {
				return dial(ctx, network, address)
			}
			return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.EMFILE}
		}
		cfgs[1].net = full
		_, errs := startAll(t, cfgs)
		wantAll(t, errs, "too many open files", "two descriptors per other rank")
	})
	t.Run("accepting", func(t *testing.T) {
		cfgs := world(t, 3)
		full := machine()
		listen := full.listen
		full.listen = func(ctx context.Context, network, address string) (net.Listener, error) {
			ln, err := listen(ctx, network, address)
			return fullListener{ln}, err
		}
		cfgs[1].net = full
		cfgs[1].Link = "tcp"
		_, errs := startAll(t, cfgs)
		wantAll(t, errs, "rank 1 (127.0.0.1:", "too many open files")
	})
}

// A fullListener is one in a process without free descriptors.
type fullListener struct{ net.Listener }

func (l fullListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c.Close()
	return nil, &net.OpError{Op: "accept", Net: "tcp", Err: syscall.EMFILE}
}

func TestPeers85_VersionsDiffer(t *testing.T) {
	t.Parallel()
	t.Run("a rank is newer", func(t *testing.T) {
		cfgs := world(t, 3)
		answered := make(chan error, 1)
		go func() {
			conn, err := net.Dial("tcp", cfgs[1].Coordinator)
			if err != nil {
				answered <- err
				return
			}
			defer conn.Close()
			h := hello{purpose: purposeRegister, from: 2, to: nobody, size: 3}
			newer := append(h.payload(), "fields of a later version"...)
			conn.Write(messageOf(2, kindHello, newer))
			_, err = answerTo(conn, kindChallenge)
			answered <- err
		}()
		_, errs := startAll(t, cfgs[:2])
		wantAll(t, errs, "versions differ: rank 2 (127.0.0.1:", "speaks start-up protocol 2, the coordinator 1")
		if err := <-answered; err == nil || !strings.Contains(err.Error(), "you speak start-up protocol 2, this end 1") {
			t.Errorf("the newer rank heard %v", err)
		}
	})
	t.Run("the coordinator is newer", func(t *testing.T) {
		ln := listener(t)
		defer ln.Close()
		go func() {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			readMessage(conn)
			conn.Write(messageOf(7, kindReject, refuse("go away").payload()))
			hangUp(conn, time.Second)
		}()
		_, err := join(t.Context(), Config{Rank: 1, Size: 2, Coordinator: ln.Addr().String(), Timeout: time.Minute}, fullMesh)
		wantAll(t, []error{err}, "speaks start-up protocol 7, this rank 1", "go away")
	})
}
