package main

import (
	"context"
	"sync"
	"time"

	"github.com/goccl/goccl"
	"github.com/goccl/goccl/dtype"
)

// An exchange adds up a network's gradients over all ranks, group of units by group of units, while the network still
// computes the others.
type exchange interface {
	start(ctx context.Context, i int)       // gradients of group i are final: send them off
	finish() error                          // all groups hold the sums over all ranks
	took() (inFlight, waited time.Duration) // since the last call: with a group under way; of that, in finish
}

func newExchange(t dtype.Type, g *goccl.ProcessGroup, n *network) exchange {
	switch t {
	case dtype.F16:
		return newBuckets[dtype.Float16](g, n)
	case dtype.BF16:
		return newBuckets[dtype.BFloat16](g, n)
	case dtype.F32:
		return newBuckets[float32](g, n)
	}
	return newBuckets[float64](g, n)
}

// buckets is the exchange whose gradients travel as type T.
type buckets[T dtype.Float] struct {
	group   *goccl.ProcessGroup
	buckets []bucket[T]
	landing sync.WaitGroup
	flight  flight
	waited  time.Duration
}

type bucket[T dtype.Float] struct {
	grad []float64 // part of the network's
	wire []T
	err  error
}

func newBuckets[T dtype.Float](g *goccl.ProcessGroup, n *network) *buckets[T] {
	b := &buckets[T]{group: g}
	for _, u := range n.groups() {
		from, to := n.span(u)
		b.buckets = append(b.buckets, bucket[T]{grad: n.grad[from:to], wire: make([]T, to-from)})
	}
	return b
}

func (b *buckets[T]) start(ctx context.Context, i int) {
	k := &b.buckets[i]
	if k.err = dtype.Convert(dtype.Of(k.wire), dtype.Of(k.grad)); k.err != nil {
		return
	}
	b.flight.begin(time.Now())
	work := goccl.AllReduceAsync(ctx, b.group, k.wire, goccl.Sum)
	b.landing.Go(func() {
		<-work.Done()
		b.flight.end(time.Now())
		if k.err = work.Err(); k.err == nil {
			k.err = dtype.Convert(dtype.Of(k.grad), dtype.Of(k.wire))
		}
	})
}

func (b *buckets[T]) finish() error {
	begun := time.Now()
	b.landing.Wait()
	b.waited += time.Since(begun)
	for i := range b.buckets {
		if err := b.buckets[i].err; err != nil {
			return err
		}
	}
	return nil
}

func (b *buckets[T]) took() (inFlight, waited time.Duration) {
	inFlight, waited = b.flight.total, b.waited
	b.flight.total, b.waited = 0, 0
	return inFlight, waited
}

// A flight measures how long at least one of several overlapping things was under way.
type flight struct {
	mu    sync.Mutex
	count int
	since time.Time
	total time.Duration
}

func (f *flight) begin(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count == 0 {
		f.since = now
	}
	f.count++
}

func (f *flight) end(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count--
	if f.count == 0 {
		f.total += now.Sub(f.since)
	}
}
