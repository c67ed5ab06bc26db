// Command goccl starts programs that use package goccl.
//
//	goccl launch -n N [-coordinator addr] [-run-id id] [-grace d] [-keep-going] [-restarts k] [--] program args…
//	goccl rendezvous -listen addr -size N [-run-id id] [-timeout d] [-secret-file path] [-insecure]
//	goccl trace-merge file…
//	goccl version
//	goccl help [command]
//
// Launch runs a program as N ranks on this machine. Each gets GOCCL_RANK, GOCCL_WORLD_SIZE, GOCCL_COORDINATOR and
// GOCCL_RUN_ID, which goccl.Join reads, and a fresh GOCCL_SECRET, so that other users of the machine cannot join: unless the
// environment has one or GOCCL_SECRET_FILE, or -coordinator is given. Each line of output is marked with its rank. Signals are
// passed on, SIGUSR1 among them. When a rank fails the others are ended, unless -keep-going leaves them to go on without it or -restarts has it
// started again: with the same environment, and GOCCL_RESTART set to how often that has happened.
//
// Rendezvous is the meeting point of ranks on several machines, apart from rank 0. The secret that it asks for is in
// -secret-file, or in GOCCL_SECRET_FILE or GOCCL_SECRET as for the ranks.
//
// Trace-merge reads what the ranks of a job wrote down about their last calls (goccl.Config.TraceDir) and says where they
// part.
//
// # Exit codes
//
//	0        all went well: every rank ended with 0, those that were started again in their last life
//	1        the launcher itself failed, the ranks did not meet, or a trace could not be read
//	2        wrong usage
//	126      the program cannot be executed
//	127      there is no such program
//	128 + s  the first rank to fail was killed by signal s, or signal s to the launcher ended the ranks
//	other    the exit code of the first rank to fail
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
)

const exitUsage = 2

// A command parses its arguments and runs. Its flag set prints its own mistakes.
type command struct {
	name, line string
	run        func(args []string, stdout, stderr io.Writer) int
	about      string // what its help says after the flags
}

func commands() []command {
	return []command{
		{"launch", "run a program as several ranks on this machine", launchMain, launchAbout},
		{"rendezvous", "be the meeting point of ranks on several machines", rendezvousMain, rendezvousAbout},
		{"trace-merge", "compare what ranks wrote down about their last calls", traceMergeMain, traceMergeAbout},
		{"version", "print the version of this program", versionMain, ""},
	}
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		usage(stderr)
		return exitUsage
	}
	name, rest := args[0], args[1:]
	switch name {
	case "help", "-h", "-help", "--help":
		if len(rest) == 0 {
			usage(stdout)
			return 0
		}
		name, rest = rest[0], []string{"-h"}
	}
	for _, c := range commands() {
		if c.name == name {
			code := c.run(rest, stdout, stderr)
			if asksForHelp(rest) {
				io.WriteString(stdout, c.about)
			}
			return code
		}
	}
	fmt.Fprintf(stderr, "goccl: unknown command %q\n", name)
	usage(stderr)
	return exitUsage
}

func usage(w io.Writer) {
	fmt.Fprint(w, "usage: goccl command [flags] …\n\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-11s %s\n", c.name, c.line)
	}
	fmt.Fprint(w, "\n\"goccl help command\" tells more.\n")
}

// flags makes the flag set of a command; synopsis follows its name in the usage.
func flags(name, synopsis string, stderr io.Writer) *flag.FlagSet {
	fs := flag.NewFlagSet("goccl "+name, flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		fmt.Fprintf(fs.Output(), "usage: goccl %s %s\n", name, synopsis)
		fs.PrintDefaults()
	}
	return fs
}

// parse reports whether the command shall go on, else its exit code.
func parse(fs *flag.FlagSet, args []string, stdout io.Writer) (ok bool, code int) {
	if asksForHelp(args) {
		fs.SetOutput(stdout)
	}
	err := fs.Parse(args)
	switch {
	case err == nil:
		return true, 0
	case errors.Is(err, flag.ErrHelp):
		return false, 0
	}
	return false, exitUsage
}

func asksForHelp(args []string) bool {
	return len(args) == 1 && slices.Contains([]string{"-h", "-help", "--help"}, args[0])
}

// misused says what is wrong with the arguments.
func misused(fs *flag.FlagSet, format string, args ...any) int {
	fmt.Fprintf(fs.Output(), "%s: %s\n", fs.Name(), fmt.Sprintf(format, args...))
	fs.Usage()
	return exitUsage
}
