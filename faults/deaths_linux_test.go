package faults

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"
)

// Two ranks that die at the same time leave a majority that goes on.
func TestTwoDeaths(t *testing.T) {
	for i := range times(2) {
		n := 5 + i%2
		t.Run(fmt.Sprintf("%d/n=%d", i, n), func(t *testing.T) {
			j := start(t, n, plan{Role: "survive", Count: 1 << 20})
			j.expectAll(upTo(n), "running")
			j.pause(100 * time.Millisecond)
			victims := rand.Perm(n)[:2]
			for _, v := range victims {
				j.ranks[v].signal(syscall.SIGKILL)
			}
			survivors := upTo(n, victims...)
			j.expectGroupInTheEnd(survivors, victims)
			j.finish(survivors)
		})
	}
}

// A rank that dies while the others agree on who is left, or soon after, is not in the group that they go on with.
func TestDeathInShrink(t *testing.T) {
	for i := range times(2) {
		n := 5 + i%2
		t.Run(fmt.Sprintf("%d/n=%d", i, n), func(t *testing.T) {
			j := start(t, n, plan{Role: "survive", Count: 1 << 20})
			j.expectAll(upTo(n), "running")
			victims := rand.Perm(n)[:2]
			j.ranks[victims[0]].signal(syscall.SIGKILL)
			j.ranks[victims[1]].expect("failed")
			j.pause(time.Duration(i%4) * 10 * time.Millisecond)
			j.ranks[victims[1]].signal(syscall.SIGKILL)
			survivors := upTo(n, victims...)
			j.expectGroupInTheEnd(survivors, victims)
			j.finish(survivors)
		})
	}
}

// expectGroupInTheEnd waits until ranks have a group of their own, perhaps after one with some of the victims. All they may
// fail for is a victim.
func (j *job) expectGroupInTheEnd(ranks, victims []int) {
	j.t.Helper()
	for _, r := range ranks {
		for {
			said, ok := j.ranks[r].next()
			switch {
			case !ok || said.Wrong != "":
				j.t.Fatalf("rank %d says %s, want it to go on", r, said)
			case said.Event == "failed":
				if f := said.Failure; f.Kind != "peer" || !slices.Contains(victims, f.Rank) {
					j.t.Errorf("rank %d failed with %s, want one of ranks %v to be blamed", r, f.Text, victims)
				}
			case said.Event == "not shrunk":
				j.t.Fatalf("rank %d: Shrink: %s", r, said.Failure.Text)
			}
			if said.Event == "running" && slices.Equal(said.Members, ranks) {
				break
			}
		}
	}
}
