package launch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func init() {
	roles["fail first"] = func() { // rank 1 ends well in its third life only
		life := os.Getenv(restartEnv)
		fmt.Println("life", life)
		if os.Getenv("GOCCL_RANK") == "1" && life != "2" {
			os.Exit(3)
		}
	}
	roles["fail2 and wait"] = func() {
		conn := connected()
		if os.Getenv("GOCCL_RANK") == "2" {
			os.Exit(7)
		}
		_, _ = io.Copy(io.Discard, conn)
	}
	roles["fail"] = func() { os.Exit(3) }
}

// The others outlive a rank's failure, the launcher still reports it.
func TestKeepGoing(t *testing.T) {
	ln := listen(t)
	said := &watchWriter{want: "exited with code 7 after ", seen: make(chan struct{})}
	cfg := config("fail2 and wait", 4, "GOCCL_TEST_ADDR="+ln.Addr().String())
	cfg.Name, cfg.Stderr, cfg.KeepGoing = "prog", said, true
	result := make(chan error, 1)
	go func() { result <- Run(testContext(t), cfg) }()
	var conns []*rankConn
	for range 4 {
		conns = append(conns, accept(t, ln))
	}
	<-said.seen
	if !strings.Contains(said.String(), "; the other 3 go on\n") {
		t.Errorf("said %q", said)
	}
	for _, c := range conns {
		if c.rank != 2 {
			c.Close() // now it may end
		}
	}
	err := <-result
	var rank *RankError
	if !errors.As(err, &rank) || rank.Rank != 2 || ExitCode(err) != 7 {
		t.Errorf("got %v", err)
	}
	if strings.Contains(said.String(), "ending") || strings.Contains(said.String(), "too") {
		t.Errorf("ended a rank that was well: %q", said)
	}
}

func TestRestart(t *testing.T) {
	var out, errs bytes.Buffer
	cfg := config("fail first", 2, restartEnv+"=9") // as in a rank that is a launcher itself
	cfg.Name, cfg.Stdout, cfg.Stderr, cfg.Prefix, cfg.Restarts = "prog", &out, &errs, true, 2
	var ranks, pids []int
	cfg.Started = func(rank, pid int) { ranks, pids = append(ranks, rank), append(pids, pid) }
	if err := Run(testContext(t), cfg); err != nil {
		t.Errorf("got %v, want nothing wrong with a rank that ended well in the end", err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	slices.Sort(lines)
	if want := []string{"[0] life ", "[1] life ", "[1] life 1", "[1] life 2"}; !slices.Equal(lines, want) {
		t.Errorf("output %q, want %q", lines, want)
	}
	if !strings.Contains(errs.String(), "starting it again (1 of 2)\n") || !strings.Contains(errs.String(), "starting it again (2 of 2)\n") {
		t.Errorf("said %q", errs.String())
	}
	if want := []int{0, 1, 1, 1}; !slices.Equal(ranks, want) || slices.Contains(pids, 0) {
		t.Errorf("told of ranks %v, processes %v", ranks, pids)
	}
}

func TestRestartsRunOut(t *testing.T) {
	var errs bytes.Buffer
	cfg := config("fail", 2)
	cfg.Name, cfg.Stderr, cfg.Restarts = "prog", &errs, 1
	started := 0
	cfg.Started = func(int, int) { started++ }
	if err := Run(testContext(t), cfg); ExitCode(err) != 3 {
		t.Errorf("got %v", err)
	}
	if started != 4 || strings.Count(errs.String(), "again (1 of 1)") != 2 || strings.Count(errs.String(), "\n") != 4 {
		t.Errorf("%d starts, said %q", started, errs.String())
	}
}

// The end of a run does not wait for a rank that was to be started again, which has failed then.
func TestEndInBackoff(t *testing.T) {
	said := &watchWriter{want: "again (1 of 100)", seen: make(chan struct{})}
	cfg := config("fail", 1)
	signals := make(chan os.Signal, 1)
	cfg.Name, cfg.Stderr, cfg.Restarts, cfg.Signals, cfg.backoff = "prog", said, 100, signals, time.Hour
	result := make(chan error, 1)
	go func() { result <- Run(testContext(t), cfg) }()
	<-said.seen
	signals <- terminate
	if err := <-result; ExitCode(err) != 3 || strings.Count(said.String(), "again") != 1 {
		t.Errorf("got %v, said %q", err, said)
	}
}

func TestRestartDelay(t *testing.T) {
	for n, want := range []time.Duration{200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond, 1600 * time.Millisecond, 3200 * time.Millisecond, restartAtMost} {
		if got := restartDelay(restartAfter, n); got != want {
			t.Errorf("delay %d is %v, want %v", n, got, want)
		}
	}
	if got := restartDelay(restartAfter, 1<<20); got != restartAtMost {
		t.Errorf("got %v", got)
	}
	if err := Run(testContext(t), Config{Size: 1, Program: os.Args[0], Restarts: -1}); err == nil || !strings.Contains(err.Error(), "restarts "+strconv.Itoa(-1)) {
		t.Errorf("got %v", err)
	}
}
