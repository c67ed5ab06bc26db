package tcp

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goccl/goccl/transport"
)

// A sink takes bytes into memory.
type sink struct {
	b   []byte
	got int
}

func (s *sink) Window() []byte      { return s.b[s.got:] }
func (s *sink) Advance(n int) error { s.got += n; return nil }
func (s *sink) Final() int64        { return int64(s.got) }

// A swap is an exchange of size bytes with one peer, ready to be run again and again.
type swap struct {
	t     *Transport
	in    *sink
	steps []transport.Step
}

func newSwap(t *Transport, peer, size int) *swap {
	in := &sink{b: make([]byte, size)}
	return &swap{t, in, []transport.Step{
		{Peer: peer, Out: bytes.Repeat([]byte{byte(t.Rank() + 1)}, size)},
		{Peer: peer, In: in, InLen: int64(size)},
	}}
}

var collective = transport.Tag{Class: transport.Collective}

func (s *swap) run(ctx context.Context) error {
	s.in.got = 0
	return s.t.Exchange(ctx, collective, s.steps)
}

// pair connects two ranks whose engines spin for as long as told.
func pair(t *testing.T, cfg Config, spin time.Duration) (a, b *Transport) {
	ts := newWorld(t, 2, cfg)
	for _, tr := range ts {
		tr.waiter.spin = spin
		t.Cleanup(func() { tr.Close() })
	}
	return ts[0], ts[1]
}

// Exchanges in steady state allocate nothing, whether they spin or sleep, under a context that can be cancelled.
func TestExchangeAllocatesNothing(t *testing.T) {
	for name, c := range exchangeKinds {
		t.Run(name, func(t *testing.T) {
			if n := exchangeAllocations(t, Config{}, c.size, c.spin); n != 0 {
				t.Errorf("%v allocations per exchange", n)
			}
		})
	}
}

var exchangeKinds = map[string]struct {
	size int
	spin time.Duration
}{"spin": {4, time.Second}, "sleep": {4, 0}, "large": {3 << 20, 0}}

// exchangeAllocations is how often two ranks of this process allocate in an exchange.
func exchangeAllocations(t *testing.T, cfg Config, size int, spin time.Duration) float64 {
	a, b := pair(t, cfg, spin)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	here, there := newSwap(a, 1, size), newSwap(b, 0, size)
	const runs = 100
	done := make(chan error, 1)
	go func() {
		for range runs + 10 + 1 { // AllocsPerRun runs once more to warm up
			if err := there.run(ctx); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for range 10 {
		if err := here.run(ctx); err != nil {
			t.Fatal(err)
		}
	}
	allocs := testing.AllocsPerRun(runs, func() {
		if err := here.run(ctx); err != nil {
			t.Fatal(err)
		}
	})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return allocs
}

// A rank that waits for a peer sleeps: it uses no processor time to speak of.
func TestPeers65_WaitingIsFree(t *testing.T) {
	for _, link := range []string{"tcp", "auto"} {
		a, b := pair(t, Config{Link: link}, spinTime)
		here, there := newSwap(a, 1, 1000), newSwap(b, 0, 1000)
		done := make(chan error, 1)
		go func() { done <- here.run(t.Context()) }()
		before, begun := cpuTime(t), time.Now()
		<-time.After(time.Second)
		used, waited := cpuTime(t)-before, time.Since(begun)
		if used > waited/5 {
			t.Errorf("%s: waiting for %v used %v", link, waited, used)
		}
		if err := errors.Join(there.run(t.Context()), <-done); err != nil {
			t.Error(err)
		}
	}
}

func cpuTime(t *testing.T) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// The engine listens to the context of the present exchange and to no earlier one.
func TestContextsInTurn(t *testing.T) {
	a, b := pair(t, Config{}, 0)
	here, there := newSwap(a, 1, 100), newSwap(b, 0, 100)
	cause := errors.New("the test's own cause")
	exchange := func(ctx context.Context) {
		t.Helper()
		done := make(chan error, 1)
		go func() { done <- here.run(ctx) }()
		if err := errors.Join(there.run(t.Context()), <-done); err != nil {
			t.Fatal(err)
		}
	}
	var cancels []context.CancelCauseFunc
	for range 5 {
		ctx, cancel := context.WithCancelCause(t.Context())
		exchange(ctx)
		exchange(context.Background())
		cancels = append(cancels, cancel)
		cancels[len(cancels)/2](errors.New("of an earlier exchange"))
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- here.run(ctx) }()
	// Once the peer has the bytes, the exchange is under way and waits for those of the peer.
	if err := b.Recv(t.Context(), 0, collective, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	cancel(cause)
	if err := <-done; !errors.Is(err, cause) {
		t.Errorf("cancelled exchange: %v", err)
	}
}

// Close at any moment ends the exchanges under way, and never touches a descriptor that is another file's by now: worlds that
// open meanwhile, and so get the descriptors just given back, work undisturbed.
func TestCloseDuringExchange(t *testing.T) {
	files := openFiles(t)
	for round := range 8 {
		ts := newWorld(t, 3, Config{Link: []string{"tcp", "auto"}[round%2]})
		var wg sync.WaitGroup
		for _, tr := range ts {
			for d := 1; d < 3; d++ {
				s := newSwap(tr, (tr.Rank()+d)%3, 1<<20)
				wg.Go(func() {
					for {
						err := s.run(t.Context())
						var peer *transport.PeerError
						if errors.Is(err, net.ErrClosed) || errors.As(err, &peer) {
							return
						}
						if err != nil {
							t.Errorf("round %d, rank %d: %v", round, tr.Rank(), err)
							return
						}
					}
				})
			}
		}
		next := newWorld(t, 2, Config{})
		for _, tr := range ts {
			wg.Go(func() {
				<-time.After(time.Duration(rand.IntN(20)) * time.Millisecond)
				tr.Close()
			})
		}
		for _, tr := range next {
			s := newSwap(tr, 1-tr.Rank(), 100_000)
			wg.Go(func() {
				for range 50 {
					if err := s.run(t.Context()); err != nil || s.in.b[99_999] != byte(2-tr.Rank()) {
						t.Errorf("round %d: a world beside: %v", round, err)
						return
					}
				}
			})
		}
		wg.Wait()
		for _, tr := range next {
			tr.Close()
		}
	}
	if now := openFiles(t); now > files {
		t.Errorf("%d open files before, %d after", files, now)
	}
}

// Close does not wait for long for a peer that has stopped reading.
func TestCloseWithDeafPeer(t *testing.T) {
	a, _ := pair(t, Config{Link: "tcp"}, spinTime)
	done := make(chan error, 1)
	go func() {
		for {
			if err := a.Send(t.Context(), 1, transport.Tag{Class: transport.Control}, make([]byte, 1<<20)); err != nil {
				done <- err
				return
			}
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	for ctx.Err() == nil { // until the buffers are full
		if err := a.Send(ctx, 1, transport.Tag{Class: transport.Collective}, make([]byte, 1<<20)); err != nil && ctx.Err() == nil {
			t.Fatal(err)
		}
	}
	begun := time.Now()
	a.Close()
	if d := time.Since(begun); d > 4*time.Second {
		t.Errorf("Close took %v", d)
	}
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("pending Send: %v", err)
	}
}

// Sleeping ranks hold no threads.
func TestSleepersHoldNoThreads(t *testing.T) {
	const n = 24
	ts := newWorld(t, n, Config{})
	threads := func() int {
		list, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	before := threads()
	done := make(chan error, n)
	for _, tr := range ts[1:] {
		tr.waiter.spin = 0 // many threads that poll at once could make the runtime start more
		s := newSwap(tr, 0, 1)
		go func() { done <- s.run(t.Context()) }()
	}
	for peer := 1; peer < n; peer++ { // whose bytes are here has nothing left to do but to wait
		if err := ts[0].Recv(t.Context(), peer, collective, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if now := threads(); now > before+n/3 {
		t.Errorf("%d threads before, %d with %d ranks asleep", before, now, n-1)
	}
	for _, tr := range ts {
		go tr.Close()
	}
	for range ts[1:] {
		if err := <-done; err == nil {
			t.Error("an exchange ended without its bytes")
		}
	}
	for _, tr := range ts {
		tr.Close()
	}
}
