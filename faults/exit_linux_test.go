package faults

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/goccl/goccl"
)

func init() { roles["leave"] = leave }

// A rank that exits while the others are in a collective is to blame, whatever it exits with.
func TestExitInCollective(t *testing.T) {
	for i := range times(2) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			n := 3 + i%3
			j := start(t, n, plan{Role: "survive", Count: 1 << 20})
			j.expectAll(upTo(n), "running")
			j.pause(100 * time.Millisecond)
			victim := rand.IntN(n)
			j.ranks[victim].tell("exit", i%2)
			for _, r := range j.expectAll(upTo(n, victim), "failed") {
				j.blames(r, victim)
			}
			j.goOn(upTo(n, victim))
		})
	}
}

// leave does a few collectives and leaves, in its own time.
func leave(s *self) {
	g := s.join(context.Background())
	err := lastCalls(g, 5)
	if err == nil {
		time.Sleep(rand.N(50 * time.Millisecond))
		err = g.Close()
	}
	s.done(err, "")
}

// lastCalls does collectives that end at different times on different ranks.
func lastCalls(g *goccl.ProcessGroup, n int) error {
	ctx, buf := context.Background(), make([]float32, 1<<12)
	for i := range n {
		if err := goccl.AllReduce(ctx, g, buf, goccl.Sum); err != nil {
			return err
		}
		if err := goccl.Broadcast(ctx, g, buf, i%g.Size()); err != nil {
			return err
		}
	}
	return goccl.Reduce(ctx, g, buf, buf, goccl.Max, 0)
}

// Ranks that leave one after the other, when all is done, are missed by nobody.
func TestStaggeredExits(t *testing.T) {
	for i := range times(5) {
		n := 2 + i%4
		j := start(t, n, plan{Role: "leave"})
		for _, r := range j.expectAll(upTo(n), "done") {
			if r.Failure != nil || r.Log != nil || !r.Now.within(r.Calm) {
				t.Errorf("run %d, rank %d of %d: %s", i, r.Rank, n, r)
			}
		}
		if err := j.end(); err != nil {
			t.Errorf("run %d: %v", i, err)
		}
	}
}

// The same with goroutines as ranks, which is faster.
func TestStaggeredExitsInOneProcess(t *testing.T) {
	for i := range times(100) {
		if t.Failed() {
			return
		}
		oneProcess(t, 2+i%5, func(g *goccl.ProcessGroup) error {
			if err := lastCalls(g, 1); err != nil {
				return fmt.Errorf("run %d: %w", i, err)
			}
			time.Sleep(rand.N(5 * time.Millisecond))
			return g.Close()
		})
	}
}

// oneProcess runs n ranks over tcp as goroutines. None may fail or log a warning.
func oneProcess(t *testing.T, n int, rank func(g *goccl.ProcessGroup) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	var log logLines
	var wg sync.WaitGroup
	for r := range n {
		cfg := goccl.JoinConfig{Rank: r, Size: n, Coordinator: addr}
		cfg.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})).With("rank", r)
		if r == 0 {
			cfg.Listener = ln
		}
		wg.Go(func() {
			g, err := goccl.Join(ctx, cfg)
			if err == nil {
				err = rank(g)
			}
			if err != nil {
				t.Errorf("rank %d of %d: %v", r, n, err)
			}
		})
	}
	wg.Wait()
	if lines := log.all(); lines != nil {
		t.Errorf("%d ranks: logged %q", n, lines)
	}
}
