package launch

import (
	"context"
	"fmt"
	"os"
	"os/signal"
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

// IsRank reports whether this process was started as a rank, by this package or by another launcher.
func IsRank() bool {
	for _, name := range ranks {
		if os.Getenv(name) != "" {
			return true
		}
	}
	return false
}

// IsOwnRank reports whether a goccl launcher started this process as a rank.
func IsOwnRank() bool { return os.Getenv("GOCCL_RANK") != "" }
