package main

import (
	"context"
	"time"

	"github.com/goccl/goccl"
)

const (
	batchSize = 128 // of all ranks together, about
	rate      = 0.15
	momentum  = 0.9
)

var layerSizes = []int{pixels, 128, 64, classes}

// An epochReport is the same on all ranks. Times are means over the ranks; a rank's communication includes its wait for ranks that
// are still computing.
type epochReport struct {
	epoch            int
	loss             float64 // mean over the samples of the epoch
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

// A trainer is one rank's part. Network, optimizer, epoch and step are the state of the training: equal on all ranks, but that
// a failure may stop some of them before a step and others after it.
type trainer struct {
	options    options
	data, test []sample

	group    *goccl.ProcessGroup // replaced when a rank is lost or one returns
	exchange exchange            // of the group
	plan     schedule            // for the group's size

	network     *network
	optimizer   optimizer
	epoch, step int // that come next, from 0

	batch []sample
	sums  sums // of the epoch

	atStep  func(step int)    // before each, counted from the start of the training
	report  func(epochReport) // after each epoch
	changed func(what string) // to the group
}

// sums are one rank's, over the steps of an epoch that it was there for.
type sums struct{ loss, samples float64 }

func newTrainer(g *goccl.ProcessGroup, data, test []sample, o options) *trainer {
	n := newNetwork(o.seed, layerSizes...)
	t := &trainer{
		options: o, data: data, test: test, network: n, optimizer: optimizer{make([]float64, len(n.params))},
		atStep: func(int) {}, report: func(epochReport) {}, changed: func(string) {},
	}
	t.use(g)
	return t
}

// use makes g the group and shares out the samples anew.
func (t *trainer) use(g *goccl.ProcessGroup) {
	t.group = g
	t.exchange = newExchange(t.options.wire, g, t.network)
	t.plan = newSchedule(len(t.data), g.Size(), t.options.seed)
}

// train goes on from rank 0's state until the last epoch is done.
func (t *trainer) train(ctx context.Context) error {
	if err := t.agree(ctx); err != nil {
		return err
	}
	for t.epoch < t.options.epochs {
		if err := t.admit(ctx); err != nil {
			return err
		}
		if err := t.trainEpoch(ctx); err != nil {
			return err
		}
	}
	return nil
}

// trainEpoch does what is left of the epoch.
func (t *trainer) trainEpoch(ctx context.Context) error {
	begun := time.Now()
	batches := t.plan.batches(t.group.Rank(), t.epoch)
	for t.step < t.plan.steps {
		t.atStep(t.epoch*t.plan.steps + t.step)
		if err := t.trainStep(ctx, batches[t.step]); err != nil {
			return err
		}
	}
	r := epochReport{epoch: t.epoch + 1, took: time.Since(begun)}
	if err := t.summarize(ctx, &r); err != nil {
		return err
	}
	t.epoch, t.step, t.sums = t.epoch+1, 0, sums{}
	t.report(r)
	return nil
}

// trainStep moves the parameters against the gradient of all ranks' batches. Batches may differ in length, so ranks add up
// gradient sums and sample counts, and each divides the one by the other. When it fails the state is as before.
func (t *trainer) trainStep(ctx context.Context, batch []int) error {
	samples := []int64{int64(len(batch))}
	counted := goccl.AllReduceAsync(ctx, t.group, samples, goccl.Sum)
	t.batch = pick(t.batch, t.data, batch)
	loss := t.network.gradient(t.batch, func(i int) { t.exchange.start(ctx, i) })
	if err := t.exchange.finish(); err != nil {
		return err
	}
	if err := counted.Wait(ctx); err != nil {
		return err
	}
	t.optimizer.step(t.network, samples[0])
	t.step++
	t.sums.loss += loss
	t.sums.samples += float64(len(batch))
	return nil
}

// summarize turns one rank's numbers of an epoch into those of all.
func (t *trainer) summarize(ctx context.Context, r *epochReport) error {
	from, to := shard(len(t.test), t.group.Rank(), t.group.Size())
	all := []float64{t.sums.loss, t.sums.samples, float64(t.network.correct(t.test[from:to]))}
	if err := goccl.AllReduce(ctx, t.group, all, goccl.Sum); err != nil {
		return err
	}
	inFlight, waited := t.exchange.took()
	times := []int64{int64(r.took), int64(inFlight), int64(waited)}
	if err := goccl.AllReduce(ctx, t.group, times, goccl.Mean); err != nil {
		return err
	}
	r.loss, r.correct = all[0]/max(all[1], 1), int(all[2])
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
