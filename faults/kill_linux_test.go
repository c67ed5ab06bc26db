package faults

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"
)

// killed is 64 MiB of float32.
const killed = 16 << 20

// A rank is killed at a random moment while 64 MiB all-reduces run. Every survivor names it, soon, and the survivors go on.
func TestKill(t *testing.T) {
	var took, slowest []time.Duration
	sizes := []int{2, 4, 2, 6, 3, 5}
	for i := range times(4) {
		n := sizes[i%len(sizes)]
		minority := i%len(sizes) == 0
		t.Run(fmt.Sprintf("%d/n=%d", i, n), func(t *testing.T) {
			before := len(took)
			if kill(t, n, minority, &took); len(took) > before {
				slowest = append(slowest, slices.Max(took[before:]))
			}
		})
	}
	checkDelays(t, took, slowest)
}

// kill notes how long each survivor took to fail.
func kill(t *testing.T, n int, minority bool, took *[]time.Duration) {
	j := start(t, n, plan{Role: "survive", Count: killed, Minority: minority})
	j.expectAll(upTo(n), "running")
	j.pause(400 * time.Millisecond)
	victim := rand.IntN(n)
	survivors := upTo(n, victim)
	at := j.ranks[victim].signal(syscall.SIGKILL)
	for _, r := range j.expectAll(survivors, "failed") {
		*took = append(*took, time.Duration(r.At-at))
		j.blames(r, victim)
	}
	if n == 2 && !minority {
		j.expectNoMajority(survivors)
		return
	}
	j.goOn(survivors)
}

// pause lets the ranks work for a random time.
func (j *job) pause(most time.Duration) {
	if most <= 0 {
		return
	}
	select {
	case <-time.After(rand.N(most)):
	case <-j.ctx.Done():
	}
}

// blames checks that a rank holds another, by its number in the launched world, for the culprit.
func (j *job) blames(r report, culprit int) {
	j.t.Helper()
	if f := r.Failure; f.Kind != "peer" || f.Rank != culprit {
		j.t.Errorf("rank %d failed with %s (%s of rank %d), want rank %d to be blamed", r.Rank, f.Text, f.Kind, f.Rank, culprit)
	}
}

// goOn waits until ranks that have failed have a group of their own and compute right results in it, and ends that.
func (j *job) goOn(ranks []int) {
	j.t.Helper()
	j.expectGroup(ranks)
	j.finish(ranks)
}

// expectGroup waits until ranks that have failed have a group of their own.
func (j *job) expectGroup(ranks []int) {
	j.t.Helper()
	j.expectAll(ranks, "shrunk")
	for _, r := range j.expectAll(ranks, "running") {
		if !slices.Equal(r.Members, ranks) {
			j.t.Errorf("rank %d goes on with ranks %v, want %v", r.Rank, r.Members, ranks)
		}
	}
}

// expectNoMajority waits for ranks to find that they are too few, and to leave.
func (j *job) expectNoMajority(ranks []int) {
	j.t.Helper()
	for _, r := range j.expectAll(ranks, "not shrunk") {
		if r.Failure.Kind != "no majority" {
			j.t.Errorf("rank %d: Shrink: %s, want ErrNoMajority", r.Rank, r.Failure.Text)
		}
	}
	j.expectDone(ranks)
}

// checkDelays says how long detection took: all within 5 s, and in one trial of a hundred at most longer than 1 s on the slowest
// survivor. A few trials beside other tests prove only the former.
func checkDelays(t *testing.T, took, slowest []time.Duration) {
	if len(took) == 0 {
		t.Fatal("nothing was measured")
	}
	slices.Sort(took)
	late := 0
	for _, d := range slowest {
		if d > time.Second {
			late++
		}
	}
	longest := took[len(took)-1]
	t.Logf("%d errors after %d kills: p50 %v, p99 %v, max %v; in %d trials later than 1 s", len(took), len(slowest),
		took[len(took)/2].Round(time.Millisecond), took[len(took)*99/100].Round(time.Millisecond), longest.Round(time.Millisecond), late)
	if longest > 5*time.Second || *trials > 0 && late > (len(slowest)+99)/100 {
		t.Errorf("a death was noticed after %v, in %d of %d trials later than 1 s", longest, late, len(slowest))
	}
}
