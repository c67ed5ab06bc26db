package main

import (
	"context"
	"slices"
	"time"

	"github.com/goccl/goccl"
	"github.com/goccl/goccl/dtype"
)

const (
	refillEvery   = 4       // iterations: sums in place stay in the type's range
	clearAtOnce   = 1 << 20 // bytes: what clears gigabytes holds up the collector, and that this process's heartbeats
	minIterations = 5
)

// maxIterations bounds the number of iterations by the size of the data.
func maxIterations(nbytes int64) int {
	switch {
	case nbytes <= 4<<10:
		return 2000
	case nbytes <= 128<<10:
		return 600
	case nbytes <= 2<<20:
		return 120
	case nbytes <= 32<<20:
		return 24
	}
	return 10
}

// iterations is how often a call of that size, which takes about that long, is repeated.
func iterations(nbytes int64, estimate, budget time.Duration) int {
	fit := int(budget / max(estimate, time.Microsecond))
	return max(min(fit, maxIterations(nbytes)), minIterations)
}

// A measurement is what one rank finds out about one cell.
type measurement struct {
	times []time.Duration // on rank 0: of each iteration, on its slowest rank
	wrong int64           // elements, on all ranks together
}

// measure times c and checks its results. All ranks call it.
func measure(ctx context.Context, cfg *config, c *cell) (m measurement, err error) {
	if m.wrong, err = c.checked(ctx, cfg.check); err != nil {
		return m, err
	}
	for range cfg.warmups {
		if err := c.op.run(ctx, c); err != nil {
			return m, err
		}
	}
	n, err := c.pickIterations(ctx, cfg)
	if err != nil {
		return m, err
	}
	own := make([]int64, n)
	for i := range own {
		if i%refillEvery == 0 {
			c.fill()
		}
		if i%refillEvery == 0 || c.op.rooted {
			if err := c.group.Barrier(ctx); err != nil {
				return m, err
			}
		}
		begun := time.Now()
		err := c.op.run(ctx, c)
		own[i] = int64(time.Since(begun))
		if err != nil {
			return m, err
		}
	}
	wrong, err := c.checked(ctx, cfg.check)
	if err != nil {
		return m, err
	}
	m.wrong += wrong
	sums := []int64{m.wrong}
	if err := goccl.AllReduce(ctx, c.group, sums, goccl.Sum); err != nil {
		return m, err
	}
	m.wrong = sums[0]
	m.times, err = slowest(ctx, c.group, own)
	return m, err
}

// slowest gathers all ranks' times on rank 0.
func slowest(ctx context.Context, g *goccl.ProcessGroup, own []int64) ([]time.Duration, error) {
	var all []int64
	if g.IsLeader() {
		all = make([]int64, len(own)*g.Size())
	}
	if err := goccl.Gather(ctx, g, all, own, 0); err != nil || all == nil {
		return nil, err
	}
	times := make([]time.Duration, len(own))
	for i, t := range all {
		times[i%len(own)] = max(times[i%len(own)], time.Duration(t))
	}
	return times, nil
}

// pickIterations lets rank 0 decide on the number of iterations, from two calls if need be.
func (c *cell) pickIterations(ctx context.Context, cfg *config) (int, error) {
	if cfg.iterations > 0 {
		return cfg.iterations, nil
	}
	if err := c.group.Barrier(ctx); err != nil {
		return 0, err
	}
	begun := time.Now()
	for range 2 {
		if err := c.op.run(ctx, c); err != nil {
			return 0, err
		}
	}
	n := []int64{int64(iterations(c.nbytes(), time.Since(begun)/2, cfg.budget))}
	err := goccl.Broadcast(ctx, c.group, n, 0)
	return int(n[0]), err
}

// checked makes one call on fresh data and counts this rank's wrong elements.
func (c *cell) checked(ctx context.Context, check bool) (wrong int64, err error) {
	c.fill()
	if err := c.op.run(ctx, c); err != nil || !check {
		return 0, err
	}
	got := c.dst.HostBytes()
	for _, r := range c.out {
		n := r.count * c.typ.Size()
		wrong += c.pattern(r).wrong(got[:n], r.start)
		got = got[n:]
	}
	if !c.inPlace { // inputs are the caller's: nothing may have been written there
		left := c.src.HostBytes()
		for _, r := range c.in {
			n := r.count * c.typ.Size()
			wrong += c.pattern(r).wrong(left[:n], r.start)
			left = left[n:]
		}
	}
	return wrong, nil
}

// clearPart is a function of its own because the runtime stops a goroutine surely only where it enters a function.
//
//go:noinline
func clearPart(p []byte) { clear(p) }

// fill writes the input, and rubbish where the output will be.
func (c *cell) fill() {
	if !c.inPlace || len(c.in) == 0 {
		for part := range slices.Chunk(c.dst.HostBytes(), clearAtOnce) {
			clearPart(part)
		}
	}
	src := c.src.HostBytes()
	for _, r := range c.in {
		n := r.count * c.typ.Size()
		c.pattern(r).fill(src[:n], r.start)
		src = src[n:]
	}
}

func (c *cell) pattern(r run) pattern {
	if r.from == reduced {
		return reducedPattern(c.typ, c.reduction, c.size)
	}
	return inputPattern(c.typ, c.valuesFor(), r.from)
}

// valuesFor is the reduction that the input values suit.
func (c *cell) valuesFor() dtype.ReduceOp {
	if c.op.reduces {
		return c.reduction
	}
	return dtype.Sum
}
