package faults

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/goccl/goccl/internal/launch"
)

// A rank that is killed and started again is admitted by those that went on, also when it was the coordinator. It finds them
// by the launcher, which has met the ranks and stays, or by the list of their addresses.
func TestRejoin(t *testing.T) {
	for i := range times(1) {
		for _, by := range []string{"launcher", "addresses"} {
			for _, first := range []int{0, 1 + rand.IntN(2)} {
				t.Run(fmt.Sprintf("%d/%s/rank %d", i, by, first), func(t *testing.T) { rejoin(t, 3+i%3, by, first) })
			}
		}
	}
}

// rejoin kills two ranks, one after the other.
func rejoin(t *testing.T, n int, by string, victim int) {
	p := plan{Role: "survive", Elastic: true, Count: 1 << 16}
	list := ""
	if by == "addresses" {
		p.Listen = loopbackAddrs(n)
		list = strings.Join(p.Listen, ",")
		p.Listen[0] = "" // it listens at the first address as the coordinator
	}
	j := start(t, n, p, func(cfg *launch.Config) { cfg.Restarts, cfg.Coordinator = 2, list })
	j.expectAll(upTo(n), "running")
	members := upTo(n)
	for range 2 {
		members = j.dieAndReturn(members, victim)
		j.work(members, 10)
		victim = rand.IntN(n)
	}
	j.finish(members)
	if err := j.end(); err != nil {
		t.Errorf("every rank's last life ended well, yet the launcher says %v", err)
	}
}

// dieAndReturn returns the members of the group in the end, in their order.
func (j *job) dieAndReturn(members []int, victim int) []int {
	j.t.Helper()
	j.ranks[victim].signal(syscall.SIGKILL)
	survivors := slices.DeleteFunc(slices.Clone(members), func(r int) bool { return r == victim })
	for _, r := range j.expectAll(survivors, "failed") {
		j.blames(r, victim)
	}
	j.expectGroup(survivors)
	if l := j.nextLife(); l.rank != victim || l.number == 0 {
		j.t.Errorf("life %d of rank %d has begun, want one of rank %d", l.number, l.rank, victim)
	}
	j.expectAll(survivors, "grown")
	grown := append(survivors, victim)
	for _, r := range j.expectAll(grown, "running") {
		if !slices.Equal(r.Members, grown) {
			j.t.Errorf("rank %d is with ranks %v, want %v", r.Rank, r.Members, grown)
		}
	}
	return grown
}

// loopbackAddrs are addresses of this machine where ranks can listen.
func loopbackAddrs(n int) []string {
	// Any loopback address but 127.0.0.1 is free for us, and the port is below those that the system gives away.
	host := fmt.Sprintf("127.%d.%d.", 1+rand.IntN(250), 1+rand.IntN(250))
	port := 20000 + rand.IntN(10000)
	addrs := make([]string, n)
	for r := range addrs {
		addrs[r] = fmt.Sprintf("%s%d:%d", host, 1+r, port)
	}
	return addrs
}
