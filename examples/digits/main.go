// Command digits trains a small neural network on handwritten digits, on several ranks at once, and goes on when one dies.
//
//	go run ./examples/digits [-ranks 4] [-dtype f64|f32|f16|bf16] [-epochs 25] [-seed 1]
//	go run ./examples/digits -kill-rank 2 -at-step 50
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
// With -kill-rank a rank ends as by kill -9, in the middle of the training. The others share the samples anew and go on from the
// state of the lowest of them. The rank is started again and let in at the beginning of an epoch. recover.go is all there is to it.
// With -restart=false the rank stays away; digits then exits as that rank did, although the others finish. -restart alone is
// for a rank that you kill yourself.
//
// At the end all ranks compare their parameters bit for bit, and rank 0 compares them to those of one process that goes
// through the same batches, unless ranks were lost on the way. The exit code is 1 when the ranks differ, when the distance to
// the one process is above the bound of the gradients' type, or when, with the default number of epochs or more, fewer than
// 95 % of the held-out fifth of the samples are recognized.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/goccl/goccl"
	"github.com/goccl/goccl/internal/launch"
)

// admissionWait is what a process that was started again waits for the others: longer than they take for an epoch.
const admissionWait = 10 * time.Second

func main() {
	o, err := parseFlags(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case err != nil:
		os.Exit(2)
	case launch.StartsRanks(o.asked):
		os.Exit(startRanks(o, os.Stderr))
	}
	if err := rankMain(context.Background(), o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// startRanks runs this program as o.ranks ranks and returns the exit code.
func startRanks(o options, stderr io.Writer) int {
	exe, err := os.Executable()
	if err != nil {
		fmt.Fprintln(stderr, "digits:", err)
		return 1
	}
	data, _, err := load()
	if err == nil {
		err = o.kill.check(o.ranks, o.epochs*newSchedule(len(data), o.ranks, o.seed).steps)
	}
	if err != nil {
		fmt.Fprintln(stderr, "digits:", err)
		return 2
	}
	cfg := launch.Config{Name: "digits", Size: o.ranks, Program: exe, Args: os.Args[1:], KeepGoing: o.kill.rank >= 0}
	if o.restart {
		cfg.Restarts = 1
	}
	return launch.Main(cfg)
}

// rankMain is one rank, from meeting the others to the verdict.
func rankMain(ctx context.Context, o options) error {
	data, test, err := load()
	if err != nil {
		return err
	}
	again := os.Getenv("GOCCL_RESTART") != "" // says the launcher
	if again {
		o.wait = min(o.wait, admissionWait)
	}
	g, err := goccl.Join(ctx, goccl.JoinConfig{
		Timeout: o.wait,
		Options: map[string]string{"dtype": o.wire.String(), "epochs": fmt.Sprint(o.epochs), "seed": fmt.Sprint(o.seed)},
	})
	if again && errors.Is(err, context.DeadlineExceeded) { // the others have finished, or say themselves why not
		fmt.Fprintln(os.Stderr, "digits: came back, but nobody was there to train with:", err)
		return nil
	}
	if err != nil {
		return err
	}
	t := newTrainer(g, data, test, o)
	if g.Epoch() == 0 { // the rank that returns does not die again
		err = o.kill.check(g.Size(), o.epochs*t.plan.steps)
		t.atStep = o.kill.asRank(g.Rank())
	}
	if err == nil {
		err = run(ctx, t, os.Stdout)
	}
	if err != nil {
		t.group.Abort(err)
	}
	if e := t.group.Close(); err == nil {
		err = e
	}
	return err
}

// run trains and judges the result. Whoever is rank 0 by then prints.
func run(ctx context.Context, t *trainer, out io.Writer) error {
	say := func(format string, args ...any) {
		if t.group.IsLeader() {
			fmt.Fprintf(out, format, args...)
		}
	}
	say("%d ranks, %d training and %d test samples, %d parameters in %d buckets, gradients travel as %v\n\n",
		t.group.Size(), len(t.data), len(t.test), len(t.network.params), len(t.network.groups()), t.options.wire)
	say("epoch    loss  test accuracy      time  communication  of that not hidden\n")
	accuracy := 0.0
	t.report = func(r epochReport) {
		accuracy = float64(r.correct) / float64(len(t.test))
		say("%5d  %6.4f  %11.1f %%  %5d ms  %10.1f ms  %15.1f ms\n",
			r.epoch, r.loss, 100*accuracy, r.took.Milliseconds(), milliseconds(r.inFlight), milliseconds(r.waited))
	}
	t.changed = func(what string) { say("epoch %d: %s\n", t.epoch+1, what) }
	var hash []byte
	err := t.survive(ctx, func(ctx context.Context) (err error) {
		if err = t.train(ctx); err == nil {
			hash, err = sameBits(ctx, t.group, t.network.params)
		}
		return err
	})
	if err != nil {
		return err
	}
	say("\nall %d ranks hold bit-identical parameters (SHA-256 %x…)\n", t.group.Size(), hash[:8])
	if !t.group.IsLeader() {
		return nil
	}
	if t.group.Epoch() > 0 {
		say("no comparison with one process: the ranks changed on the way, and so did the batches\n")
	} else if err := compare(t.network, t.data, t.group.Size(), t.options, out); err != nil {
		return err
	}
	return verdict(t.options.epochs, accuracy)
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
