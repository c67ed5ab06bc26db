package main

import (
	"context"
	"time"

	"github.com/goccl/goccl"
	"github.com/goccl/goccl/dtype"
)

const (
	batchSize = 128 // of all ranks together, about
	rate      = 0.15
	momentum  = 0.9
)

var layerSizes = []int{pixels, 128, 64, classes}

// options are equal on all ranks, but for wait.
type options struct {
	wait   time.Duration
	wire   dtype.Type // of gradients under way
	epochs int
	seed   uint64
}

// An epochReport is the same on all ranks. Times are means over the ranks; a rank's communication includes its wait for ranks that
// are still computing.
type epochReport struct {
	epoch            int
	loss             float64 // mean over the training samples
	correct          int     // test samples
	took             time.Duration
	inFlight, waited time.Duration // with gradients under way; of that, with nothing left to compute
}

func newSchedule(samples, size int, seed uint64) schedule {
	return schedule{samples: samples, size: size, seed: seed, steps: (samples + batchSize - 1) / batchSize}
}

// An optimizer is gradient descent with momentum. The conversions keep the compiler from fusing a product into a sum on
// processors that can: then ranks on different processors would end with different parameters.
type optimizer struct{ velocity []float64 }

func (o *optimizer) step(n *network, samples int64) {
	if samples == 0 {
		return
	}
	scale := 1 / float64(samples)
	for i, g := range n.grad {
		o.velocity[i] = float64(momentum*o.velocity[i]) + float64(scale*g)
		n.params[i] -= float64(rate * o.velocity[i])
	}
}

// train trains one network on all ranks together and returns it.
func train(ctx context.Context, g *goccl.ProcessGroup, data, test []sample, o options, report func(epochReport)) (*network, error) {
	n := newNetwork(o.seed, layerSizes...)
	if err := goccl.Broadcast(ctx, g, n.params, 0); err != nil {
		return nil, err
	}
	t := &trainer{group: g, data: data, network: n, exchange: newExchange(o.wire, g, n)}
	t.optimizer.velocity = make([]float64, len(n.params))
	from, to := shard(len(test), g.Rank(), g.Size())
	plan := newSchedule(len(data), g.Size(), o.seed)
	for epoch := range o.epochs {
		begun := time.Now()
		loss := 0.0
		for _, batch := range plan.batches(g.Rank(), epoch) {
			l, err := t.step(ctx, batch)
			if err != nil {
				return nil, err
			}
			loss += l
		}
		r := epochReport{epoch: epoch + 1, took: time.Since(begun)}
		if err := t.summarize(ctx, &r, loss, n.correct(test[from:to])); err != nil {
			return nil, err
		}
		report(r)
	}
	return n, nil
}

// A trainer is one rank's part.
type trainer struct {
	group     *goccl.ProcessGroup
	data      []sample
	network   *network
	optimizer optimizer
	exchange  exchange
	batch     []sample
}

// step moves the parameters against the gradient of all ranks' batches. Batches may differ in length, so ranks add up
// gradient sums and sample counts, and each divides the one by the other.
func (t *trainer) step(ctx context.Context, batch []int) (loss float64, err error) {
	samples := []int64{int64(len(batch))}
	counted := goccl.AllReduceAsync(ctx, t.group, samples, goccl.Sum)
	t.batch = pick(t.batch, t.data, batch)
	loss = t.network.gradient(t.batch, func(i int) { t.exchange.start(ctx, i) })
	if err := t.exchange.finish(); err != nil {
		return 0, err
	}
	if err := counted.Wait(ctx); err != nil {
		return 0, err
	}
	t.optimizer.step(t.network, samples[0])
	return loss, nil
}

// summarize turns one rank's numbers of an epoch into those of all.
func (t *trainer) summarize(ctx context.Context, r *epochReport, loss float64, correct int) error {
	sums := []float64{loss, float64(correct)}
	if err := goccl.AllReduce(ctx, t.group, sums, goccl.Sum); err != nil {
		return err
	}
	inFlight, waited := t.exchange.took()
	times := []int64{int64(r.took), int64(inFlight), int64(waited)}
	if err := goccl.AllReduce(ctx, t.group, times, goccl.Mean); err != nil {
		return err
	}
	r.loss, r.correct = sums[0]/float64(len(t.data)), int(sums[1])
	r.took, r.inFlight, r.waited = time.Duration(times[0]), time.Duration(times[1]), time.Duration(times[2])
	return nil
}

// trainAlone goes through the same batches as size ranks together, in this process and without goccl.
func trainAlone(data []sample, size int, o options) *network {
	n := newNetwork(o.seed, layerSizes...)
	opt := optimizer{velocity: make([]float64, len(n.params))}
	plan := newSchedule(len(data), size, o.seed)
	var batch []sample
	for epoch := range o.epochs {
		ranks := make([][][]int, size)
		for r := range ranks {
			ranks[r] = plan.batches(r, epoch)
		}
		for k := range plan.steps {
			var all []int
			for r := range ranks {
				all = append(all, ranks[r][k]...)
			}
			batch = pick(batch, data, all)
			n.gradient(batch, func(int) {})
			opt.step(n, int64(len(all)))
		}
	}
	return n
}

// pick copies the samples at the given indices into dst's memory.
func pick(dst, data []sample, indices []int) []sample {
	dst = dst[:0]
	for _, i := range indices {
		dst = append(dst, data[i])
	}
	return dst
}
