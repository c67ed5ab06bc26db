package tcp

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// childEnv tells a test that it runs in a process of its own, which its parent has prepared.
const childEnv = "GOCCL_TEST_CHILD"

// inChild runs the calling test once more as a process of its own, and reports whether this is that process.
func inChild(t *testing.T, attr *syscall.SysProcAttr) bool {
	t.Helper()
	if os.Getenv(childEnv) != "" {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), childEnv+"=1")
	cmd.SysProcAttr = attr
	out, err := cmd.CombinedOutput()
	switch {
	case errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EINVAL):
		t.Logf("this system does not let us have a network namespace: %v", err)
	case err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()):
		t.Errorf("in a process of its own: %v\n%s", err, out)
	}
	return false
}

// ownNetwork is a network namespace with nothing but a loopback interface that is down.
func ownNetwork() *syscall.SysProcAttr {
	id := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	return &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET, UidMappings: id}
}

func loopbackUp(t *testing.T) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		t.Fatal(err)
	}
}

// Scenario 34: only lo, and all fails (oneCCL#157, #209). In a namespace without any network a job of one host works, and says
// once per rank which way it takes.
func TestPeers34_NoNetwork(t *testing.T) {
	if !inChild(t, ownNetwork()) {
		return
	}
	loopbackUp(t)
	var log lines
	cfgs := world(t, 3)
	for r := range cfgs {
		cfgs[r].Logger = logger(&log)
	}
	_, errs := startAll(t, cfgs)
	noErrors(t, errs)
	if n := strings.Count(log.String(), "address for links chosen"); n != 3 || strings.Count(log.String(), "interface=lo") != 3 {
		t.Errorf("log:\n%s", log.String())
	}
}

// Scenario 35: IPv4 and IPv6 peers meet (gloo#399). The coordinator listens on both; one rank has IPv4 only, others come over
// IPv6 with a zone, loopback and link-local.
func TestPeers35_DualStack(t *testing.T) {
	if !inChild(t, ownNetwork()) {
		return
	}
	loopbackUp(t)
	ln, err := net.Listen("tcp", "[::]:0")
	if err != nil {
		t.Logf("no IPv6 here: %v", err)
		return
	}
	meet := func(ln net.Listener, hosts ...string) []error {
		cfgs := make([]Config, len(hosts))
		for r, host := range hosts {
			cfgs[r] = Config{Rank: r, Size: len(hosts), Insecure: true, Timeout: 10 * time.Second}
			cfgs[r].Coordinator = fmt.Sprintf("%s:%d", host, addrPort(ln.Addr()).Port())
		}
		cfgs[0].Listener = ln
		_, errs := startAll(t, cfgs)
		return errs
	}
	const linkLocal = "[fe80::77%lo]"
	out, err := exec.Command("ip", "-6", "addr", "add", "fe80::77/64", "dev", "lo", "nodad").CombinedOutput()
	if err != nil {
		t.Logf("no link-local address: %v %s", err, out)
		noErrors(t, meet(ln, "", "127.0.0.1", "[::1%lo]", "[::1]"))
		return
	}
	noErrors(t, meet(ln, "", "127.0.0.1", "[::1%lo]", "[::1]", linkLocal))

	// A rank with IPv4 only cannot dial a link-local address. That is said at once, and by name.
	if ln, err = net.Listen("tcp", "[::]:0"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	wantAll(t, meet(ln, "", linkLocal, "127.0.0.1"), "rank 1", "advertises the link-local address [fe80::77]:", "met the coordinator from 127.0.0.1")
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("took %v", d)
	}
}

// Scenario 44, the end of descriptors, for real: 16 ranks in a process that may have 200.
func TestPeers44_LowFileLimit(t *testing.T) {
	if !inChild(t, nil) {
		return
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 200, Max: 200}); err != nil {
		t.Fatal(err)
	}
	cfgs := world(t, 16)
	ts, errs := make([]*Transport, len(cfgs)), make([]error, len(cfgs))
	began := time.Now()
	var wg sync.WaitGroup
	for r, cfg := range cfgs {
		wg.Go(func() { ts[r], errs[r] = Connect(t.Context(), cfg) })
	}
	wg.Wait()
	if d := time.Since(began); d > 20*time.Second {
		t.Errorf("took %v", d)
	}
	wantAll(t, errs, "too many open files", "two descriptors per other rank; the limit of this process is 200")
}
