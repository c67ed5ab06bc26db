// Command digits trains a small neural network on handwritten digits, on several ranks at once.
//
//	go run ./examples/digits [-ranks 4] [-dtype f64|f32|f16|bf16] [-epochs 25] [-seed 1]
//
// It starts its ranks as processes of this machine; under a launcher (goccl launch, torchrun, mpirun, srun) and without
// -ranks each process is one of the launcher's ranks. Every rank computes gradients on its own shard of the training
// samples. The gradients are added up over all ranks in a few buckets, asynchronously: the last layer's bucket is under way
// while the gradients of the layers before it are still being computed.
//
// The table shows, per epoch, the mean loss on the training samples, the accuracy on the held-out ones, and mean times of the
// ranks: of the epoch, of that with gradients under way, and of that with nothing left to compute meanwhile. The last two
// include the wait for slower ranks, and there are always some where ranks share processors.
//
// At the end all ranks compare their parameters bit for bit, and rank 0 compares them to those of one process that goes
// through the same batches. The exit code is 1 when the ranks differ, when the distance to the one process is above the
// bound of the gradients' type, or when, with the default number of epochs or more, fewer than 95 % of the held-out fifth
// of the samples are recognized.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/goccl/goccl"
	"github.com/goccl/goccl/dtype"
	"github.com/goccl/goccl/internal/launch"
)

const defaultEpochs = 25

func main() {
	ranks := flag.Int("ranks", 4, "number of `ranks` to start")
	wire := flag.String("dtype", "f64", "`type` of the gradients under way: f64, f32, f16 or bf16")
	o := options{}
	flag.IntVar(&o.epochs, "epochs", defaultEpochs, "`times` to go through the training samples")
	flag.Uint64Var(&o.seed, "seed", 1, "`number` that all random choices follow from")
	flag.DurationVar(&o.wait, "wait", time.Minute, "`time` to wait for the other ranks at the start")
	flag.Parse()
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "ranks" })

	t, err := dtype.ParseType(*wire)
	if o.wire = t; err == nil && bounds[t] == 0 {
		err = fmt.Errorf("-dtype %s is not a floating-point type", t)
	}
	switch {
	case err != nil:
	case *ranks < 1:
		err = fmt.Errorf("-ranks %d: need at least one", *ranks)
	case o.epochs < 1:
		err = fmt.Errorf("-epochs %d: need at least one", o.epochs)
	case flag.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "digits:", err)
		flag.Usage()
		os.Exit(2)
	}
	if launch.StartsRanks(asked) {
		os.Exit(launch.Self("digits", *ranks))
	}
	if err := rankMain(context.Background(), o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// rankMain is one rank, from meeting the others to the verdict.
func rankMain(ctx context.Context, o options) error {
	g, err := goccl.Join(ctx, goccl.JoinConfig{
		Timeout: o.wait,
		Options: map[string]string{"dtype": o.wire.String(), "epochs": fmt.Sprint(o.epochs), "seed": fmt.Sprint(o.seed)},
	})
	if err != nil {
		return err
	}
	out := io.Discard
	if g.IsLeader() {
		out = os.Stdout
	}
	err = run(ctx, g, o, out)
	if err != nil {
		g.Abort(err)
	}
	if e := g.Close(); err == nil {
		err = e
	}
	return err
}

func run(ctx context.Context, g *goccl.ProcessGroup, o options, out io.Writer) error {
	data, test, err := load()
	if err != nil {
		return err
	}
	n := newNetwork(o.seed, layerSizes...)
	fmt.Fprintf(out, "%d ranks, %d training and %d test samples, %d parameters in %d buckets, gradients travel as %v\n\n",
		g.Size(), len(data), len(test), len(n.params), len(n.groups()), o.wire)
	fmt.Fprintf(out, "epoch    loss  test accuracy      time  communication  of that not hidden\n")
	accuracy := 0.0
	n, err = train(ctx, g, data, test, o, func(r epochReport) {
		accuracy = float64(r.correct) / float64(len(test))
		fmt.Fprintf(out, "%5d  %6.4f  %11.1f %%  %5d ms  %10.1f ms  %15.1f ms\n",
			r.epoch, r.loss, 100*accuracy, r.took.Milliseconds(), milliseconds(r.inFlight), milliseconds(r.waited))
	})
	if err != nil {
		return err
	}
	hash, err := sameBits(ctx, g, n.params)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\nall %d ranks hold bit-identical parameters (SHA-256 %x…)\n", g.Size(), hash[:8])
	if !g.IsLeader() {
		return nil
	}
	if err := compare(n, data, g.Size(), o, out); err != nil {
		return err
	}
	return verdict(o.epochs, accuracy)
}

// verdict is on the accuracy on samples that were not trained on.
func verdict(epochs int, accuracy float64) error {
	if epochs >= defaultEpochs && accuracy < requiredAccuracy {
		return fmt.Errorf("digits: test accuracy is %.1f %%, less than %.0f %%", 100*accuracy, 100*requiredAccuracy)
	}
	return nil
}

func compare(n *network, data []sample, size int, o options, out io.Writer) error {
	alone := trainAlone(data, size, o)
	d, bound := distance(n.params, alone.params), bounds[o.wire]
	fmt.Fprintf(out, "one process on the same batches: ‖a−b‖₂/‖b‖₂ = %.2g (bound for %v gradients: %.0e)\n", d, o.wire, bound)
	if !(d <= bound) {
		return fmt.Errorf("digits: parameters are %.2g from those of one process, more than %.0e", d, bound)
	}
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
