package goccl

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/goccl/goccl/internal/testca"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/mem"
	"github.com/goccl/goccl/transport/tcp"
	"github.com/goccl/goccl/transport/transporttest"
)

// A world makes the transports of n ranks.
type world func(t *testing.T, n int) []transport.Transport

func memWorld(_ *testing.T, n int) []transport.Transport { return mem.NewWorld(n) }

// plainWorld has nothing but the five methods.
func plainWorld(_ *testing.T, n int) []transport.Transport {
	ts := mem.NewWorld(n)
	for i := range ts {
		ts[i] = transporttest.Plain(ts[i])
	}
	return ts
}

func tcpWorld(link string) world { return netWorld(tcp.Config{Link: link}) }

// netWorld meets on loopback; common is what all ranks' configurations have in common.
func netWorld(common tcp.Config) world {
	return func(t *testing.T, n int) []transport.Transport {
		t.Helper()
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ts := make([]transport.Transport, n)
		errs := make([]error, n)
		var wg sync.WaitGroup
		for r := range n {
			wg.Go(func() {
				cfg := common
				cfg.Rank, cfg.Size, cfg.Coordinator, cfg.Timeout = r, n, ln.Addr().String(), 20*time.Second
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
}

// worlds are what tests of behaviour run over.
var worlds = map[string]world{
	"mem": memWorld, "plain": plainWorld, "tcp": tcpWorld("tcp"), "unix": tcpWorld("unix"),
	"tls": netWorld(tcp.Config{Link: "tcp", Secret: []byte("the harness's"), TLS: testca.New("the harness's CA").Loopback("a rank")}),
}

// groups returns the n ranks of a world; the test closes them at its end.
func groups(t *testing.T, w world, n int, cfg Config) []*ProcessGroup {
	t.Helper()
	gs := make([]*ProcessGroup, n)
	for r, tr := range w(t, n) {
		g, err := New(tr, cfg)
		if err != nil {
			t.Fatal(err)
		}
		gs[r] = g
	}
	t.Cleanup(func() { each(gs, func(g *ProcessGroup) error { return g.Close() }) })
	return gs
}

// each runs one program on every rank and returns the errors by rank.
func each(gs []*ProcessGroup, program func(g *ProcessGroup) error) []error {
	errs := make([]error, len(gs))
	var wg sync.WaitGroup
	for r, g := range gs {
		wg.Go(func() { errs[r] = program(g) })
	}
	wg.Wait()
	return errs
}

// runRanks runs one rank's program on n ranks of a world; any error fails the test.
func runRanks(t *testing.T, w world, n int, program func(ctx context.Context, g *ProcessGroup) error) {
	t.Helper()
	runRanksWith(t, w, n, Config{}, program)
}

func runRanksWith(t *testing.T, w world, n int, cfg Config, program func(ctx context.Context, g *ProcessGroup) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	gs := groups(t, w, n, cfg)
	for r, err := range each(gs, func(g *ProcessGroup) error { return program(ctx, g) }) {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// overWorlds runs a test once for each world.
func overWorlds(t *testing.T, test func(t *testing.T, w world)) {
	for name, w := range worlds {
		t.Run(name, func(t *testing.T) { test(t, w) })
	}
}
