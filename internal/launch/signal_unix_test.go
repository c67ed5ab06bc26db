//go:build unix

package launch

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"
)

func init() {
	roles["die"] = func() {
		if os.Getenv("GOCCL_RANK") == "1" {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		forever()
	}
	roles["graceful"] = func() {
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM)
		connected()
		<-c
		fmt.Println("saved")
	}
	roles["stubborn"] = func() {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
		connected()
		forever()
	}
	roles["family"] = func() { // a rank with a child that inherits its output and ends later
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), roleEnv+"=wait")
		cmd.Stdout = os.Stdout
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		if os.Getenv("GOCCL_RANK") == "0" {
			conn := connected()
			_, _ = conn.Read(make([]byte, 1)) // the child is there
			os.Exit(5)
		}
		forever()
	}
}

func TestKilledRank(t *testing.T) {
	err := Run(testContext(t), config("die", 3))
	var rank *RankError
	if !errors.As(err, &rank) || rank.Rank != 1 || rank.Code != 128+9 || !strings.Contains(rank.Text, "signal: killed") {
		t.Errorf("got %v", err)
	}
}

// start runs cfg with its ranks connected and returns the connections, the way to signal and the result.
func start(t *testing.T, role string, size int, change func(*Config)) ([]*rankConn, chan os.Signal, chan error) {
	ln := listen(t)
	cfg := config(role, size, "GOCCL_TEST_ADDR="+ln.Addr().String())
	signals := make(chan os.Signal, 2)
	cfg.Signals = signals
	if change != nil {
		change(&cfg)
	}
	result := make(chan error, 1)
	go func() { result <- Run(testContext(t), cfg) }()
	var conns []*rankConn
	for range size {
		conns = append(conns, accept(t, ln))
	}
	return conns, signals, result
}

func TestSignalIsPassedOn(t *testing.T) {
	_, signals, result := start(t, "wait", 3, nil)
	signals <- syscall.SIGINT
	var sig *SignalError
	if err := <-result; !errors.As(err, &sig) || ExitCode(err) != 130 {
		t.Errorf("got %v, exit code %d", err, ExitCode(err))
	}
}

func TestRanksMayEndInOrderAfterASignal(t *testing.T) {
	var out bytes.Buffer
	_, signals, result := start(t, "graceful", 2, func(cfg *Config) { cfg.Stdout = &out })
	signals <- syscall.SIGTERM
	if err := <-result; err != nil || out.String() != "saved\nsaved\n" {
		t.Errorf("got %v, output %q", err, out.String())
	}
}

func TestStubbornRanksAreKilled(t *testing.T) {
	for _, c := range []struct {
		name  string
		grace time.Duration
		sigs  []os.Signal
	}{
		{"after the grace period", time.Millisecond, []os.Signal{syscall.SIGTERM}},
		{"by a second signal", time.Hour, []os.Signal{syscall.SIGINT, syscall.SIGINT}},
	} {
		t.Run(c.name, func(t *testing.T) {
			conns, signals, result := start(t, "stubborn", 2, func(cfg *Config) { cfg.Grace = c.grace })
			for _, s := range c.sigs {
				signals <- s
			}
			if err := <-result; ExitCode(err) != signalCode(c.sigs[0]) {
				t.Errorf("got %v", err)
			}
			for _, conn := range conns {
				conn.ended(t)
			}
		})
	}
}

// What a rank started is ended with it, and does not keep Run waiting for its output.
func TestWholeProcessGroupEnds(t *testing.T) {
	ln := listen(t)
	cfg := config("family", 2, "GOCCL_TEST_ADDR="+ln.Addr().String())
	var out bytes.Buffer
	cfg.Stdout = &out
	result := make(chan error, 1)
	go func() { result <- Run(testContext(t), cfg) }()
	var conns []*rankConn
	for range 3 { // rank 0 and both children; all of rank 0's say 0
		conns = append(conns, accept(t, ln))
	}
	for _, c := range conns {
		_, _ = c.Write([]byte{1})
	}
	if err := <-result; ExitCode(err) != 5 {
		t.Errorf("got %v", err)
	}
	for _, c := range conns {
		c.ended(t)
	}
}
