package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/goccl/goccl/dtype"
)

const defaultEpochs = 25

// options are what the command line says.
type options struct {
	ranks   int
	asked   bool // for that number of ranks
	restart bool
	wait    time.Duration // for the other ranks, at the start
	wire    dtype.Type    // of gradients under way
	epochs  int
	seed    uint64
	kill    kill
}

// parseFlags says on stderr what is wrong with the arguments.
func parseFlags(args []string, stderr io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("digits", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // it would print all flags after each mistake
	fs.IntVar(&o.ranks, "ranks", 4, "number of `ranks` to start")
	wire := fs.String("dtype", "f64", "`type` of the gradients under way: f64, f32, f16 or bf16")
	fs.IntVar(&o.epochs, "epochs", defaultEpochs, "`times` to go through the training samples")
	fs.Uint64Var(&o.seed, "seed", 1, "`number` that all random choices follow from")
	fs.IntVar(&o.kill.rank, "kill-rank", -1, "`rank` that shall kill itself")
	fs.IntVar(&o.kill.step, "at-step", 50, "`step` at which -kill-rank does so, counted from 0 at the start of the training")
	fs.BoolVar(&o.restart, "restart", false, "start a rank again that has died, once (default with -kill-rank)")
	fs.DurationVar(&o.wait, "wait", time.Minute, "`time` to wait for the other ranks at the start")
	err := fs.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(stderr, "usage: digits [flags]")
		fs.SetOutput(stderr)
		fs.PrintDefaults()
		return o, err
	}
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	o.asked = given["ranks"]
	if !given["restart"] {
		o.restart = o.kill.rank >= 0
	}
	if err == nil {
		err = o.check(fs, given, *wire)
	}
	if err != nil {
		fmt.Fprintln(stderr, "digits:", err)
	}
	return o, err
}

func (o *options) check(fs *flag.FlagSet, given map[string]bool, wire string) error {
	t, err := dtype.ParseType(wire)
	o.wire = t
	switch {
	case err != nil || bounds[t] == 0:
		return fmt.Errorf("-dtype %s: want f64, f32, f16 or bf16", wire)
	case o.ranks < 1:
		return fmt.Errorf("-ranks %d: need at least one", o.ranks)
	case o.wait <= 0:
		return fmt.Errorf("-wait %v: must be positive", o.wait)
	case o.epochs < 1:
		return fmt.Errorf("-epochs %d: need at least one", o.epochs)
	case given["kill-rank"] && o.kill.rank < 0:
		return fmt.Errorf("-kill-rank %d: ranks are counted from 0", o.kill.rank)
	case given["at-step"] && !given["kill-rank"]:
		return errors.New("-at-step needs -kill-rank")
	case o.kill.step < 0:
		return fmt.Errorf("-at-step %d: steps are counted from 0", o.kill.step)
	case fs.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	return nil
}
