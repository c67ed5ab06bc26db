package ring

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/mem"
)

// testTimeout only bounds a test that hangs.
const testTimeout = 2 * time.Minute

// bare hides the optional interfaces of a transport.
type bare struct{ transport.Transport }

// A network is how a test's world is connected.
type network struct {
	name  string
	make  func(n int) []transport.Transport
	small bool // executors take pieces, blocks and scratch of a few elements
}

func overMem(o mem.Options) func(int) []transport.Transport {
	return func(n int) []transport.Transport { return mem.NewWorldWith(n, o) }
}

func overBare(n int) []transport.Transport {
	ts := mem.NewWorld(n)
	for i := range ts {
		ts[i] = bare{ts[i]}
	}
	return ts
}

var (
	roomy   = network{name: "mem", make: mem.NewWorld}
	cramped = network{name: "jitter", make: overMem(mem.Options{Buffer: 80, Jitter: 1}), small: true}
	plainly = network{name: "bare", make: overBare, small: true}
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
	ts := w.make(n)
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
