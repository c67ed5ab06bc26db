//go:build !race

package goccl

import (
	"context"
	"math"
	"testing"

	"github.com/goccl/goccl/dtype"
)

// The race detector allocates, hence the constraint.

// In steady state no synchronous collective allocates, with a cancellable context and the default timeout, on either rank.
func TestCollectivesAllocateNothing(t *testing.T) {
	const runs = 50
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	counts := []int{1000, 1000}
	programs := map[string]func(g *ProcessGroup, all, half []float32) error{
		"AllReduce":     func(g *ProcessGroup, all, _ []float32) error { return AllReduce(ctx, g, all, Sum) },
		"AllReduce f32": func(g *ProcessGroup, all, _ []float32) error { return AllReduce(ctx, g, all[:8], Mean) },
		"AllReduceTo":   func(g *ProcessGroup, all, half []float32) error { return AllReduceTo(ctx, g, half, all[:1000], Max) },
		"ReduceScatter": func(g *ProcessGroup, all, half []float32) error { return ReduceScatter(ctx, g, half, all, Sum) },
		"ReduceScatterV": func(g *ProcessGroup, all, half []float32) error {
			return ReduceScatterV(ctx, g, half, all, counts, Sum)
		},
		"AllGather":  func(g *ProcessGroup, all, half []float32) error { return AllGather(ctx, g, all, half) },
		"AllGatherV": func(g *ProcessGroup, all, half []float32) error { return AllGatherV(ctx, g, all, half, counts) },
		"Broadcast":  func(g *ProcessGroup, all, _ []float32) error { return Broadcast(ctx, g, all, 1) },
		"Reduce":     func(g *ProcessGroup, all, half []float32) error { return Reduce(ctx, g, half, all[:1000], Sum, 0) },
		"Gather":     func(g *ProcessGroup, all, half []float32) error { return Gather(ctx, g, all, half, 0) },
		"Scatter":    func(g *ProcessGroup, all, half []float32) error { return Scatter(ctx, g, half, all, 0) },
		"AllToAll":   func(g *ProcessGroup, all, _ []float32) error { return AllToAll(ctx, g, make2000[g.Rank()], all) },
		"Barrier":    func(g *ProcessGroup, _, _ []float32) error { return g.Barrier(ctx) },
		"AllReduce 4 MiB": func(g *ProcessGroup, _, _ []float32) error {
			return g.AllReduce(ctx, large[g.Rank()], Sum)
		},
	}
	for _, link := range []string{"tcp", "unix"} {
		gs := groups(t, tcpWorld(link), 2, Config{})
		for name, program := range programs {
			t.Run(link+"/"+name, func(t *testing.T) {
				done := make(chan error, 1)
				all, half := make([]float32, 2000), make([]float32, 1000)
				go func() { // AllocsPerRun calls once more to warm up
					all, half := make([]float32, 2000), make([]float32, 1000)
					var err error
					for range tries*(runs+1) + warmUp {
						if err == nil {
							err = program(gs[1], all, half)
						}
					}
					done <- err
				}()
				var err error
				call := func() {
					if err == nil {
						err = program(gs[0], all, half)
					}
				}
				for range warmUp {
					call()
				}
				n := math.Inf(1)
				for range tries { // what allocates in steady state does so each time; others in the process may now and then
					n = min(n, testing.AllocsPerRun(runs, call))
				}
				if err != nil || <-done != nil {
					t.Fatal(err)
				}
				if n != 0 {
					t.Errorf("%v allocations per call", n)
				}
			})
		}
	}
}

const (
	warmUp = 5
	tries  = 3
)

var (
	make2000 = [2][]float32{make([]float32, 2000), make([]float32, 2000)}
	large    = [2]dtype.Buffer{dtype.Of(make([]float32, 1<<20)), dtype.Of(make([]float32, 1<<20))}
)
