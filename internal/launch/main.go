package launch

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
)

// Main is Run for a main function: it passes signals on, uses the process's own streams unless told others, and returns
// the exit code.
func Main(cfg Config) int {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, Forwarded...)
	defer signal.Stop(signals)
	cfg.Signals = signals
	if cfg.Stdout == nil {
		cfg.Stdout = os.Stdout
	}
	if cfg.Stderr == nil {
		cfg.Stderr = os.Stderr
	}
	return ExitCode(Run(context.Background(), cfg))
}

// Self runs this very program again, size times, with the same arguments. It is how a program starts its own ranks.
func Self(name string, size int) int {
	exe, err := os.Executable()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return 1
	}
	return Main(Config{Name: name, Size: size, Program: exe, Args: os.Args[1:]})
}

// ranks are the variables that make a process a rank of something; the root package's Join reads them, in this order.
var ranks = []string{"GOCCL_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "JOB_COMPLETION_INDEX"}

// StartsRanks reports whether a program that can start its own ranks should: it is not a rank of a goccl launcher, and
// either the user asked for ranks (asked) or no other launcher made it one.
func StartsRanks(asked bool) bool {
	if os.Getenv("GOCCL_RANK") != "" {
		return false
	}
	return asked || !slices.ContainsFunc(ranks, func(name string) bool { return os.Getenv(name) != "" })
}
