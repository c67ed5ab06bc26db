package faults

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goccl/goccl/internal/launch"
)

var needNamespaces = flag.Bool("namespaces", false, "fail, rather than skip, if this machine does not allow the tests in network namespaces: they need root, ip and nft")

// enteredEnv says that a rank is in its namespace already.
const enteredEnv = "GOCCL_FAULTS_ENTERED"

// enter moves this process into its rank's namespace by starting it again there: a namespace belongs to a thread, and the
// runtime has several.
func (p *plan) enter(rank int) {
	if p.Spaces == nil || os.Getenv(enteredEnv) != "" {
		return
	}
	runtime.LockOSThread()
	space, err := os.Open("/run/netns/" + p.Spaces[rank])
	if err == nil {
		err = unix.Setns(int(space.Fd()), unix.CLONE_NEWNET)
	}
	if err == nil {
		err = syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), enteredEnv+"=1"))
	}
	panic(err)
}

// hosts are network namespaces, one per rank, that a bridge connects. All of it goes when the test ends.
type hosts struct {
	t      *testing.T
	name   string
	spaces []string
	addrs  []string
}

// newHosts is where tests in namespaces end that this machine does not allow.
func newHosts(t *testing.T, n int) *hosts {
	var missing []string
	if os.Geteuid() != 0 {
		missing = append(missing, "root")
	}
	for _, program := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, program)
		}
	}
	switch {
	case missing != nil && *needNamespaces:
		t.Fatalf("no network namespaces without %s", strings.Join(missing, ", "))
	case missing != nil:
		t.Skipf("no network namespaces without %s; with -namespaces this is a failure", strings.Join(missing, ", "))
	}
	h := &hosts{t: t, name: fmt.Sprintf("gf%x", rand.Uint32())}
	bridge := h.name + "b" // in a namespace of its own: it concerns nobody here
	h.run("ip", "netns", "add", bridge)
	t.Cleanup(func() { h.run("ip", "netns", "delete", bridge) })
	h.run("ip", "-n", bridge, "link", "add", "br0", "type", "bridge")
	h.run("ip", "-n", bridge, "link", "set", "br0", "up")
	for r := range n {
		space, port := fmt.Sprintf("%sr%d", h.name, r), h.port(r)
		h.run("ip", "netns", "add", space)
		t.Cleanup(func() { h.run("ip", "netns", "delete", space) })
		h.spaces, h.addrs = append(h.spaces, space), append(h.addrs, fmt.Sprintf("10.9.0.%d", r+1))
		h.run("ip", "link", "add", "eth0", "netns", space, "type", "veth", "peer", "name", port, "netns", bridge)
		h.run("ip", "-n", bridge, "link", "set", port, "master", "br0", "up")
		h.run("ip", "-n", space, "address", "add", h.addrs[r]+"/24", "dev", "eth0")
		h.run("ip", "-n", space, "link", "set", "eth0", "up")
		h.run("ip", "-n", space, "link", "set", "lo", "up")
		h.run("ip", "netns", "exec", space, "nft", "add table ip faults; add chain ip faults in { type filter hook input priority 0; }")
	}
	return h
}

func (h *hosts) run(name string, args ...string) {
	h.t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		h.t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

func (h *hosts) port(rank int) string { return fmt.Sprint("port", rank) }

// link takes a host's link down, or up again. The host itself sees a cable that was pulled.
func (h *hosts) link(rank int, state string) {
	h.t.Helper()
	h.run("ip", "-n", h.name+"b", "link", "set", h.port(rank), state)
}

// drop makes hosts lose all packets that come from some others.
func (h *hosts) drop(at, from []int) {
	h.t.Helper()
	for _, r := range at {
		for _, f := range from {
			h.run("ip", "netns", "exec", h.spaces[r], "nft", "add rule ip faults in ip saddr "+h.addrs[f]+" drop")
		}
	}
}

// heal ends all losses of packets.
func (h *hosts) heal() {
	h.t.Helper()
	for _, space := range h.spaces {
		h.run("ip", "netns", "exec", space, "nft", "flush chain ip faults in")
	}
}

// start launches the ranks on the hosts. Rank 0 is the coordinator.
func (h *hosts) start(p plan) *job {
	h.t.Helper()
	p.Spaces, p.Secret = h.spaces, []byte("only the ranks know")
	j := start(h.t, len(h.spaces), p, func(cfg *launch.Config) { cfg.Coordinator = h.addrs[0] + ":29500" })
	j.expectAll(upTo(len(h.spaces)), "running")
	return j
}

// A host whose cable is pulled is left behind. When it is plugged in again, that changes nothing.
func TestLinkDown(t *testing.T) {
	t.Parallel()
	for i := range times(1) {
		for _, heartbeat := range heartbeats() {
			n := 3 + i%3
			t.Run(fmt.Sprintf("%d/n=%d/%v", i, n, heartbeat), func(t *testing.T) {
				h, victim := newHosts(t, n), rand.IntN(n)
				j := h.start(plan{Role: "survive", Count: 1 << 16, Heartbeat: heartbeat})
				at := now()
				h.link(victim, "down")
				j.losesOne(victim, at, heartbeat)
				h.link(victim, "up")
				j.work(upTo(n, victim), 20)
				j.finish(upTo(n, victim))
			})
		}
	}
}

// The same when packets are lost in one direction only, from the host or to it.
func TestPacketsDropped(t *testing.T) {
	t.Parallel()
	for i := range times(2) {
		for _, heartbeat := range heartbeats() {
			n := 3 + i%3
			t.Run(fmt.Sprintf("%d/n=%d/%v", i, n, heartbeat), func(t *testing.T) {
				h, victim := newHosts(t, n), rand.IntN(n)
				j := h.start(plan{Role: "survive", Count: 1 << 16, Heartbeat: heartbeat})
				at, others := now(), upTo(n, victim)
				if i%2 == 0 {
					h.drop(others, []int{victim})
				} else {
					h.drop([]int{victim}, others)
				}
				j.losesOne(victim, at, heartbeat)
				h.heal()
				j.work(others, 20)
				j.finish(others)
			})
		}
	}
}

// Of the two halves of a network that has fallen apart, the one with most of the ranks goes on, and the other does not, also
// when the network is whole again.
func TestPartition(t *testing.T) {
	t.Parallel()
	const n = 5
	for i := range times(1) {
		for _, heartbeat := range heartbeats() {
			t.Run(fmt.Sprintf("%d/%v", i, heartbeat), func(t *testing.T) {
				h := newHosts(t, n)
				few := rand.Perm(n)[:2]
				slices.Sort(few)
				many := upTo(n, few...)
				j := h.start(plan{Role: "survive", Count: 1 << 16, Heartbeat: heartbeat})
				at := now()
				h.drop(few, many)
				h.drop(many, few)
				for _, r := range j.expectAll(upTo(n), "failed") {
					if r.Failure.Kind != "peer" {
						t.Errorf("rank %d failed with %s", r.Rank, r.Failure.Text)
					}
					if took := time.Duration(r.At - at); took > silenceBound(heartbeat)+heartbeat {
						t.Errorf("rank %d noticed after %v, want %v", r.Rank, took, silenceBound(heartbeat))
					}
				}
				j.expectGroup(many)
				j.expectNoMajority(few)
				h.heal()
				j.work(many, 20)
				j.finish(many)
			})
		}
	}
}
