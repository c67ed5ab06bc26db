package faults

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
)

// heartbeats are the intervals that scenarios with silent ranks run with.
func heartbeats() []time.Duration {
	if *trials > 0 {
		return []time.Duration{500 * time.Millisecond, 2 * time.Second} // the second is the default
	}
	return []time.Duration{500 * time.Millisecond}
}

// silenceBound is how long it may take until a silent rank is noticed.
func silenceBound(heartbeat time.Duration) time.Duration { return 3*heartbeat + time.Second }

// A stopped rank is noticed within its bound, and the others go on without it. When it wakes up it blames nobody but itself,
// and cannot go on.
func TestStop(t *testing.T) {
	t.Parallel()
	for i := range times(1) {
		for _, heartbeat := range heartbeats() {
			n := 3 + i%4
			t.Run(fmt.Sprintf("%d/n=%d/%v", i, n, heartbeat), func(t *testing.T) { stop(t, n, heartbeat) })
		}
	}
}

func stop(t *testing.T, n int, heartbeat time.Duration) {
	j := start(t, n, plan{Role: "survive", Count: 1 << 18, Heartbeat: heartbeat})
	j.expectAll(upTo(n), "running")
	j.pause(heartbeat)
	victim := rand.IntN(n)
	survivors := upTo(n, victim)
	at := j.ranks[victim].signal(syscall.SIGSTOP)
	for _, r := range j.expectAll(survivors, "failed") {
		j.blames(r, victim)
		if took := time.Duration(r.At - at); took > silenceBound(heartbeat) {
			t.Errorf("rank %d noticed after %v, want %v", r.Rank, took, silenceBound(heartbeat))
		}
	}
	j.expectGroup(survivors)
	j.wake(victim)
	j.finish(survivors)
}

// wake continues a rank that the others have given up.
func (j *job) wake(victim int) {
	j.t.Helper()
	l := j.ranks[victim]
	l.signal(syscall.SIGCONT)
	j.blames(l.expect("failed"), victim)
	j.expectLeftBehind(victim)
}

// A rank that is stopped for less than the bound is not missed.
func TestStopBriefly(t *testing.T) {
	t.Parallel()
	for i := range times(1) {
		n := 2 + i%4
		t.Run(fmt.Sprintf("%d/n=%d", i, n), func(t *testing.T) { stopBriefly(t, n, time.Second) })
	}
}

func stopBriefly(t *testing.T, n int, heartbeat time.Duration) {
	j := start(t, n, plan{Role: "survive", Count: 1 << 18, Heartbeat: heartbeat})
	j.expectAll(upTo(n), "running")
	l := j.ranks[rand.IntN(n)]
	l.signal(syscall.SIGSTOP)
	time.Sleep(heartbeat * 3 / 2)
	l.signal(syscall.SIGCONT)
	j.work(upTo(n), 50)
	time.Sleep(heartbeat * 2) // what came late has had its effect
	j.work(upTo(n), 50)
	j.finish(upTo(n))
}

// work waits until every rank has done that many more steps.
func (j *job) work(ranks []int, steps int) {
	j.t.Helper()
	for _, r := range ranks {
		j.ranks[r].tell("steps", steps)
	}
	j.expectAll(ranks, "reached")
}
