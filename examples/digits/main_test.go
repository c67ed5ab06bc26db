package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// asDigits makes the test binary the digits program.
const asDigits = "GOCCL_TEST_DIGITS"

// raceDetector says that this binary is slow.
var raceDetector bool

func TestMain(m *testing.M) {
	if os.Getenv(asDigits) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// Real processes: one kills itself, the others go on, it returns, and all four finish.
func TestKilledRankReturns(t *testing.T) {
	for _, rank := range []int{2, 0} {
		t.Run(fmt.Sprint("rank ", rank), func(t *testing.T) {
			epochs := 60 // it takes the rank a quarter of a second to return, and longer on a busy machine
			if raceDetector {
				epochs = 12 // each takes ten times as long
			}
			out := runDigits(t, "-kill-rank", fmt.Sprint(rank), "-at-step", "20", "-epochs", fmt.Sprint(epochs))
			for _, want := range []string{
				fmt.Sprintf(`(?m)^epoch 2: rank %d lost in all-reduce #\d+, going on with 3 ranks$`, rank),
				`(?m)^epoch \d+: a process returned, 4 ranks$`,
				`(?m)^all 4 ranks hold bit-identical parameters`,
				`(?m)^no comparison with one process`,
			} {
				if n := len(regexp.MustCompile(want).FindAllString(out, -1)); n != 1 {
					t.Errorf("%d lines match %s", n, want)
				}
			}
			for e := 1; e <= epochs; e++ {
				if !regexp.MustCompile(fmt.Sprintf(`(?m)^ *%d  [0-9.]+ +[0-9.]+ %%  `, e)).MatchString(out) {
					t.Errorf("no row for epoch %d", e)
				}
			}
			if t.Failed() {
				t.Log(out)
			}
		})
	}
}

// A rank that comes back when there is nothing left to come back to is no failure.
func TestKilledRankReturnsTooLate(t *testing.T) {
	out := runDigits(t, "-ranks", "3", "-kill-rank", "1", "-at-step", "23", "-epochs", "2", "-wait", "5s")
	for _, want := range []string{"epoch 2: rank 1 lost in", "all 2 ranks hold bit-identical parameters"} {
		if !strings.Contains(out, want) {
			t.Errorf("no line with %q in\n%s", want, out)
		}
	}
}

// runDigits runs the program with ranks of its own and returns what it prints.
func runDigits(t *testing.T, args ...string) string {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(withoutGoccl(os.Environ()), asDigits+"=1")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // its ranks end with it
	cmd.WaitDelay = 20 * time.Second
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, out.String(), errs.String())
	}
	return out.String()
}

// withoutGoccl drops what would make the program a rank of somebody else's.
func withoutGoccl(env []string) (rest []string) {
	for _, v := range env {
		if !strings.HasPrefix(v, "GOCCL_") {
			rest = append(rest, v)
		}
	}
	return rest
}
