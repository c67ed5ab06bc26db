package ring

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/mem"
	"github.com/goccl/goccl/transport/tcp"
	"github.com/goccl/goccl/transport/transporttest"
)

// testTimeout only bounds a test that hangs.
const testTimeout = 2 * time.Minute

// A network is how a test's world is connected.
type network struct {
	name  string
	make  func(t testing.TB, n int) []transport.Transport
	small bool // executors take pieces, blocks and scratch of a few elements
}

func overMem(o mem.Options) func(testing.TB, int) []transport.Transport {
	return func(_ testing.TB, n int) []transport.Transport { return mem.NewWorldWith(n, o) }
}

// hiding takes the optional interfaces from the ranks that which picks.
func hiding(which func(rank int) bool) func(testing.TB, int) []transport.Transport {
	return func(_ testing.TB, n int) []transport.Transport {
		ts := mem.NewWorld(n)
		for i := range ts {
			if which(i) {
				ts[i] = transporttest.Plain(ts[i])
			}
		}
		return ts
	}
}

func overTCP(t testing.TB, n int) []transport.Transport {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ts, errs := make([]transport.Transport, n), make([]error, n)
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() {
			cfg := tcp.Config{Rank: r, Size: n, Coordinator: ln.Addr().String(), Timeout: testTimeout}
			if r == 0 {
				cfg.Listener = ln
			}
			ts[r], errs[r] = tcp.Connect(t.Context(), cfg)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return ts
}

var (
	roomy   = network{name: "mem", make: overMem(mem.Options{})}
	cramped = network{name: "jitter", make: overMem(mem.Options{Buffer: 80, Jitter: 1}), small: true}
	plainly = network{name: "plain", make: hiding(func(int) bool { return true }), small: true}
	mixed   = network{name: "mixed", make: hiding(func(rank int) bool { return rank%2 == 1 }), small: true}
	sockets = network{name: "tcp", make: overTCP}
)

// executor returns one whose limits are reached by small messages, if the network says so.
func (w network) executor(t transport.Transport, o Options) *Executor {
	x := NewExecutor(t, 0, o)
	if w.small {
		x.layout.piece, x.layout.stage, x.scratch = 24, 1, 400
	}
	return x
}

// run runs body for each of n ranks at once and fails the test with their errors. It reports whether there were none.
func (w network) run(t testing.TB, n int, o Options, body func(ctx context.Context, x *Executor) error) bool {
	t.Helper()
	ok := true
	for rank, err := range w.errs(t, n, o, body) {
		if err != nil {
			ok = false
			t.Errorf("%s: rank %d of %d: %v", w.name, rank, n, err)
		}
	}
	return ok
}

// errs is run for bodies that may fail. A rank whose body has failed closes its transport, so that its peers fail too.
func (w network) errs(t testing.TB, n int, o Options, body func(ctx context.Context, x *Executor) error) []error {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), testTimeout, fmt.Errorf("test took longer than %v", testTimeout))
	defer cancel()
	ts := w.make(t, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for rank, tr := range ts {
		wg.Go(func() {
			if errs[rank] = body(ctx, w.executor(tr, o)); errs[rank] != nil {
				tr.Close()
			}
		})
	}
	wg.Wait()
	for _, tr := range ts {
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	}
	return errs
}
