package main

import (
	"flag"
	"io"
	"net"
	"strings"

	"github.com/goccl/goccl/internal/launch"
)

const launchAbout = `
Each rank's environment, which goccl.Join reads:
  GOCCL_RANK, GOCCL_WORLD_SIZE       its number, and how many there are
  GOCCL_COORDINATOR, GOCCL_RUN_ID    where they meet, and which run it is
  GOCCL_SECRET                       a fresh one, so that other users of the machine cannot join; not with -coordinator, and
                                     not where the environment has GOCCL_SECRET or GOCCL_SECRET_FILE: those hold then
  GOCCL_RESTART                      how often this rank was started again; not set in its first life
and all else that the launcher's own environment has.

Signals are passed on to all ranks: SIGUSR1 makes a program that has called ProcessGroup.TraceOnSignal write down its last
calls; SIGINT, SIGTERM, SIGHUP and SIGQUIT are to end it, and SIGKILL follows after -grace, or when a second one comes.

The exit code is that of the first rank to fail, 128 + s if signal s ended it or the launcher, 0 if none failed, 1 if the
launcher failed, 2 for wrong usage, 126 or 127 if the program cannot be executed or does not exist.
`

func launchMain(args []string, stdout, stderr io.Writer) int {
	fs := flags("launch", "-n N [flags] [--] program args…", stderr)
	n := fs.Int("n", 0, "number of `ranks`")
	coordinator := fs.String("coordinator", "", "`host:port` where rank 0 listens, or several to try, separated by commas (default: the launcher meets the ranks itself, on a free loopback port)")
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
		for addr := range strings.SplitSeq(*coordinator, ",") {
			if _, _, err := net.SplitHostPort(strings.TrimSpace(addr)); err != nil {
				return misused(fs, "-coordinator %s: %v: want host:port, or several separated by commas", *coordinator, err)
			}
		}
	}
	return launch.Main(launch.Config{
		Name: "goccl launch", Size: *n, Program: fs.Arg(0), Args: fs.Args()[1:],
		Coordinator: *coordinator, RunID: *runID, Grace: *grace,
		KeepGoing: *keepGoing, Restarts: *restarts,
		Stdout: stdout, Stderr: stderr, Prefix: true,
	})
}
