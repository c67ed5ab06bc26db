// Command bench measures the collectives and checks their results, in the manner and with the columns of nccl-tests.
//
//	go run ./bench -ranks 4                                all-reduce of f32, 4 B to 16 MiB
//	go run ./bench -ranks 2 -op all -b 1K -e 1M -f 32      every operation
//	go run ./bench -ranks 4 -d all -o all -b 64K -e 64K    every type and reduction
//	goccl launch -n 4 ./bench -b 8 -e 64M -f 2             as ranks of a launcher
//
// It starts its ranks as processes of this machine; under a launcher and without -ranks each process is one of the
// launcher's ranks. With -transport mem the ranks are goroutines of one process.
//
// # What is measured
//
// An iteration lasts as long as its slowest rank takes. The time is the median over the iterations (with -average the mean,
// which is what nccl-tests shows). Their number depends on size and time alone, unless -n sets it: at most 2000 up to 4
// KiB, 600 up to 128 KiB, 120 up to 2 MiB, 24 up to 32 MiB, 10 above, as many as fit into -budget, at least 5. Every four
// iterations the buffers are filled again, outside the measured time and followed by a barrier; operations with a root have a
// barrier before each iteration, since their ranks would not wait for each other.
//
// Each row is also a test: the results of the first and of one more call after the measured ones are compared, bit by bit, to
// values computed without the library. Wrong elements are counted over all ranks; any makes the exit code 1.
//
// # Size, count and bandwidth
//
// As in nccl-tests' PERFORMANCE.md: size is the buffer of one rank for all_reduce, broadcast, reduce, sendrecv; the whole output
// of one rank for all_gather, gather (the root's), all_to_all; the whole input for reduce_scatter, scatter (the root's). It is
// rounded up to whole elements, the same number for each rank. Count is what one rank contributes or gets: a rank's part where
// size is the whole, except in the operations with uneven parts, which end in _v. Algbw is size / time. Busbw
// multiplies it by a factor that makes it comparable to the speed of the links, whatever the number n of ranks:
//
//	all_reduce                               2(n-1)/n
//	all_gather, reduce_scatter, all_to_all,
//	gather, scatter                          (n-1)/n
//	broadcast, reduce, sendrecv              1
//
// 1 GB is 10⁹ bytes; sizes on the command line take K, M, G for powers of 1024.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/goccl/goccl"
	"github.com/goccl/goccl/internal/launch"
	"github.com/goccl/goccl/transport/mem"
)

// errWrong says that a collective gave a wrong result; the rows have said where.
var errWrong = errors.New("bench: wrong results")

func main() {
	cfg, err := parseFlags(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case err != nil:
		os.Exit(2)
	}
	switch {
	case cfg.transport == "mem":
		err = runGoroutines(context.Background(), cfg)
	case launch.StartsRanks(cfg.asked):
		os.Exit(launch.Self("bench", cfg.ranks))
	default:
		err = runRank(context.Background(), cfg)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// runRank is one rank of a launcher's.
func runRank(ctx context.Context, cfg *config) error {
	g, err := goccl.Join(ctx, goccl.JoinConfig{
		Link:    cfg.transport,
		Options: map[string]string{"bench flags": cfg.key()},
		Config:  goccl.Config{Algorithm: cfg.algorithm, Timeout: cfg.timeout},
	})
	if err != nil {
		return err
	}
	return runGroup(ctx, g, cfg)
}

// runGoroutines is all ranks in this process.
func runGoroutines(ctx context.Context, cfg *config) error {
	if !launch.StartsRanks(cfg.asked) {
		return errors.New("bench: -transport mem has its ranks in one process: start it without a launcher")
	}
	results := make(chan error)
	for _, t := range mem.NewWorld(cfg.ranks) {
		go func() {
			g, err := goccl.New(t, goccl.Config{Algorithm: cfg.algorithm, Timeout: cfg.timeout})
			if err == nil {
				err = runGroup(ctx, g, cfg)
			}
			results <- err
		}()
	}
	var all []error
	for range cfg.ranks {
		all = append(all, <-results)
	}
	return errors.Join(all...)
}

// runGroup measures all there is to measure. Wrong results are rank 0's to report.
func runGroup(ctx context.Context, g *goccl.ProcessGroup, cfg *config) error {
	err := sweep(ctx, g, cfg, os.Stdout)
	if err != nil && !errors.Is(err, errWrong) {
		g.Abort(err)
	}
	if e := g.Close(); err == nil {
		err = e
	}
	if errors.Is(err, errWrong) && !g.IsLeader() {
		return nil
	}
	return err
}
