package main

import (
	"flag"
	"io"
	"net"

	"github.com/goccl/goccl/internal/launch"
)

func launchMain(args []string, stdout, stderr io.Writer) int {
	fs := flags("launch", "-n N [flags] [--] program args…", stderr)
	n := fs.Int("n", 0, "number of `ranks`")
	coordinator := fs.String("coordinator", "", "`host:port` where rank 0 listens (default: the launcher meets the ranks itself, on a free loopback port)")
	runID := fs.String("run-id", "", "`id` that keeps runs at one coordinator apart (default: a fresh one)")
	grace := fs.Duration("grace", launch.DefaultGrace, "`time` between asking ranks to end and killing them")
	keepGoing := fs.Bool("keep-going", false, "do not end the other ranks when one fails")
	restarts := fs.Int("restarts", 0, "start a rank that fails again, up to `k` times, after 0.2 s to 5 s; implies -keep-going")
	if ok, code := parse(fs, args, stdout); !ok {
		return code
	}
	given := false
	fs.Visit(func(f *flag.Flag) { given = given || f.Name == "n" })
	switch {
	case !given:
		return misused(fs, "-n is missing: how many ranks?")
	case *n < 1:
		return misused(fs, "-n %d: need at least one rank", *n)
	case *grace <= 0:
		return misused(fs, "-grace %v: must be positive", *grace)
	case *restarts < 0:
		return misused(fs, "-restarts %d: must not be negative", *restarts)
	case fs.NArg() == 0:
		return misused(fs, "no program to run")
	}
	if *coordinator != "" {
		if _, _, err := net.SplitHostPort(*coordinator); err != nil {
			return misused(fs, "-coordinator %s: %v", *coordinator, err)
		}
	}
	return launch.Main(launch.Config{
		Name: "goccl launch", Size: *n, Program: fs.Arg(0), Args: fs.Args()[1:],
		Coordinator: *coordinator, RunID: *runID, Grace: *grace,
		KeepGoing: *keepGoing, Restarts: *restarts,
		Stdout: stdout, Stderr: stderr, Prefix: true,
	})
}
