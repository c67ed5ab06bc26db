package faults

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// A rank whose packets are lost, in both directions or in one, is noticed within the bound and left behind. No connection ends
// by it, and what is held up is not lost: after the others have gone on, all of it arrives.
func TestBlackHole(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		lost func(victim int, w way) bool
	}{
		{"both ways", func(victim int, w way) bool { return w.from == victim || w.to == victim }},
		{"mute", func(victim int, w way) bool { return w.from == victim }},
		{"deaf", func(victim int, w way) bool { return w.to == victim }},
	} {
		for i := range times(1) {
			for _, heartbeat := range heartbeats() {
				n := 3 + (i+2)%4
				t.Run(fmt.Sprintf("%s/%d/n=%d/%v", c.name, i, n, heartbeat), func(t *testing.T) { blackHole(t, n, heartbeat, c.lost) })
			}
		}
	}
}

func blackHole(t *testing.T, n int, heartbeat time.Duration, lost func(int, way) bool) {
	w := newWire(t, n, plan{Role: "survive", Count: 1 << 16, Heartbeat: heartbeat})
	j := start(t, n, w.plan)
	j.expectAll(upTo(n), "running")
	j.pause(heartbeat)
	victim := rand.IntN(n)
	j.losesOne(victim, w.block(func(w way) bool { return lost(victim, w) }), heartbeat)
	w.block(nil)
	j.work(upTo(n, victim), 20)
	j.finish(upTo(n, victim))
}

// losesOne checks that all hold the victim for lost in time, also the victim, and go on without it.
func (j *job) losesOne(victim int, at int64, heartbeat time.Duration) {
	j.t.Helper()
	survivors := upTo(len(j.ranks), victim)
	for _, r := range append(j.expectAll(survivors, "failed"), j.ranks[victim].expect("failed")) {
		j.blames(r, victim)
		// The victim can be the one to find out, a little later than the others would.
		if took := time.Duration(r.At - at); took > silenceBound(heartbeat)+heartbeat {
			j.t.Errorf("rank %d noticed after %v, want %v", r.Rank, took, silenceBound(heartbeat))
		}
	}
	j.expectGroup(survivors)
	j.expectLeftBehind(victim)
}

// expectLeftBehind waits for a rank to find that it is not among those who go on.
func (j *job) expectLeftBehind(victim int) {
	j.t.Helper()
	if r := j.ranks[victim].expect("not shrunk"); r.Failure.Kind != "excluded" && r.Failure.Kind != "no majority" {
		j.t.Errorf("rank %d is left behind, and its Shrink says %s", victim, r.Failure.Text)
	}
	j.expectDone([]int{victim})
}

// What comes late, and in small pieces, is right all the same, and no reason to miss anybody.
func TestTrickle(t *testing.T) {
	t.Parallel()
	for i := range times(1) {
		n := 3 + i%3
		t.Run(fmt.Sprintf("%d/n=%d", i, n), func(t *testing.T) {
			w := newWire(t, n, plan{Role: "survive", Count: 100_003})
			w.pace = trickle
			j := start(t, n, w.plan)
			j.expectAll(upTo(n), "running")
			j.work(upTo(n), 10)
			j.finish(upTo(n))
		})
	}
}
