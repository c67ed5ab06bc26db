package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goccl/goccl/transport"
)

// Scenario 32: a rank advertises 127.0.x.x to other hosts, because its host's name maps to that (ray#37461, Paddle#37951,
// aws-do-eks PR#69). It advertises the local address of its connection to the coordinator, and asks no resolver about itself.
func TestPeers32_RouteIsAdvertised(t *testing.T) {
	t.Parallel()
	fake := machine()
	fake.resolve = func(_ context.Context, host string) ([]netip.Addr, error) {
		if host != "node0.example" {
			t.Errorf("%s was looked up", host)
			return []netip.Addr{ip("127.0.1.1")}, nil
		}
		return []netip.Addr{ip("192.0.2.77")}, nil
	}
	fake.listen = func(_ context.Context, network, address string) (net.Listener, error) {
		if network == "tcp" && address != "192.0.2.5:0" {
			t.Errorf("listens on %s", address)
		}
		return net.Listen("tcp", "127.0.0.1:0") // the test stays on loopback
	}
	near, far := net.Pipe()
	fake.dial = func(context.Context, string, string) (net.Conn, error) { return &elsewhere{near}, nil }
	c := newCoordinator(2, "", "192.0.2.77:5000", "the coordinator")
	s := newServer(nil, roleApart, orDiscard(nil), map[purpose]handler{purposeRegister: c})
	s.admit(far)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { c.run(ctx) })
	cfg := Config{Rank: 1, Size: 2, Coordinator: "node0.example:5000", Insecure: true, Link: "tcp", Timeout: 5 * time.Second, net: fake}
	_, err := join(t.Context(), cfg, fullMesh)
	wantAll(t, []error{err}, "missing: rank 0")
	wg.Wait()
	s.close()
	if m := c.roster.members[1]; m == nil || !strings.HasPrefix(m.reg.info.tcp, "192.0.2.5:") {
		t.Errorf("registered as %+v", m)
	}
}

// Scenario 38: a port that was chosen is taken before it is used (vllm#39015, pytorch#126510, enroot#243). A listener of the
// caller's has no such moment, and its address can be read from every rank.
func TestPeers38_AddressCanBeRead(t *testing.T) {
	t.Parallel()
	ln := listener(t)
	at := ln.Addr().String()
	ts, errs := make([]*Transport, 2), make([]error, 2)
	var wg sync.WaitGroup
	for r := range ts {
		cfg := Config{Rank: r, Size: 2, Coordinator: at, Timeout: 30 * time.Second}
		if r == 0 {
			cfg.Listener, cfg.Coordinator = ln, ""
		}
		wg.Go(func() { ts[r], errs[r] = Connect(t.Context(), cfg) })
	}
	wg.Wait()
	noErrors(t, errs)
	for r, tr := range ts {
		if got := tr.Addr(0); got != at {
			t.Errorf("rank %d: rank 0 is at %s, want %s", r, got, at)
		}
		if a, err := netip.ParseAddrPort(tr.Addr(1)); err != nil || a.Port() == 0 {
			t.Errorf("rank %d: rank 1 is at %s", r, tr.Addr(1))
		}
		defer tr.Close()
	}
}

// Scenario 39: "address in use", and not which (pytorch#72816).
func TestPeers39_AddressInUseIsNamed(t *testing.T) {
	t.Parallel()
	taken := listener(t)
	defer taken.Close()
	at := taken.Addr().String()
	coordinator := world(t, 2)
	coordinator[0].Listener.Close()
	coordinator[0].Listener, coordinator[0].Coordinator = nil, at
	_, errs := startAll(t, coordinator[:1])
	wantAll(t, errs, "address in use: "+at)
	for _, r := range []int{0, 1} {
		links := world(t, 2)
		links[r].Listen = at
		_, errs = startAll(t, links)
		wantAll(t, errs, "address in use: "+at, fmt.Sprintf("rank %d", r))
	}
}

// Scenario 41, a step later: all ranks start, but rank 2 cannot reach rank 1. At the deadline it is said who, and why.
func TestPeers41_UnreachableRank(t *testing.T) {
	t.Parallel()
	cfgs, closed := unreachable(t)
	cfgs[0].Timeout = 400 * time.Millisecond // the coordinator's deadline comes first: the two ranks add what they know
	errs := connectAll(t, cfgs)
	wantAll(t, errs, "deadline passed", "not connected to all others: ranks 1, 2")
	wantAll(t, errs[1:2], "; this rank: rank 2 (127.0.0.1:")
	wantAll(t, errs[2:3], "; this rank: rank 1 ("+*closed+")", "connection timed out")

	cfgs, closed = unreachable(t)
	cfgs[2].Timeout = 400 * time.Millisecond // its deadline comes first: all hear its words
	errs = append(errs, connectAll(t, cfgs)...)
	wantAll(t, errs[4:], "rank 2 (127.0.0.1:", "rank 1 ("+*closed+")", "connection timed out")
	for i, err := range errs {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// unreachable is a world of 4 in which rank 2 cannot reach the port of rank 1, which is set once it is known.
func unreachable(t *testing.T) (cfgs []Config, closed *string) {
	cfgs = world(t, 4)
	for r := range cfgs {
		cfgs[r].Link, cfgs[r].Timeout = "tcp", 10*time.Second
	}
	port := make(chan string, 1)
	one, two := machine(), machine()
	listen, dial := one.listen, two.dial
	one.listen = func(ctx context.Context, network, address string) (net.Listener, error) {
		ln, err := listen(ctx, network, address)
		if err == nil {
			port <- ln.Addr().String()
		}
		return ln, err
	}
	closed = new(string)
	var once sync.Once
	two.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if address != cfgs[1].Coordinator {
			once.Do(func() { *closed = <-port })
			if address == *closed {
				return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ETIMEDOUT}
			}
		}
		return dial(ctx, network, address)
	}
	cfgs[1].net, cfgs[2].net = one, two
	return cfgs, closed
}

// connectAll is startAll for whole transports, where none is expected.
func connectAll(t *testing.T, cfgs []Config) []error {
	errs := make([]error, len(cfgs))
	var wg sync.WaitGroup
	for r, cfg := range cfgs {
		wg.Go(func() { _, errs[r] = Connect(t.Context(), cfg) })
	}
	wg.Wait()
	return errs
}

// Scenario 42, the second half: sizes and ranks that cannot be are refused before anything is asked of the network
// (pytorch#136725: a segmentation fault).
func TestPeers42_BadSizesAndRanks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rank, size int
		field      string
	}{{0, 0, "Size"}, {0, -1, "Size"}, {0, MaxSize + 1, "Size"}, {-1, 2, "Rank"}, {2, 2, "Rank"}, {7, 3, "Rank"}} {
		_, err := join(t.Context(), Config{Rank: c.rank, Size: c.size, Coordinator: "127.0.0.1:5000", net: &network{}}, fullMesh)
		if e := (*ConfigError)(nil); !errors.As(err, &e) || e.Field != c.field {
			t.Errorf("rank %d of %d: %v, want %s refused", c.rank, c.size, err, c.field)
		}
	}
}

// Scenario 43, the second half: a rank of an earlier start of the same run still dials when the next one uses the port
// (openpmix#4022, nccl#1936, ompi#6240). There is no file to go stale.
func TestPeers43_EarlierStartRefused(t *testing.T) {
	t.Parallel()
	ln := listener(t)
	at := ln.Addr().String()
	start := func(ln net.Listener) []*mesh {
		cfgs := world(t, 2)
		cfgs[0].Listener.Close()
		for r := range cfgs {
			cfgs[r].Coordinator, cfgs[r].RunID = at, "the same"
		}
		cfgs[0].Listener = ln
		meshes, errs := startAll(t, cfgs)
		noErrors(t, errs)
		return meshes
	}
	before := start(ln)
	old := before[1]
	before[0].close()
	ln, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	start(ln)
	conn, err := old.dial(t.Context(), 0, transport.PointToPoint, 0)
	if err == nil {
		conn.Close()
	}
	var e *transport.PeerError
	if !errors.As(err, &e) || e.Rank != 0 || !strings.Contains(err.Error(), "you belong to another start of this run") {
		t.Errorf("a rank of the earlier start: %v", err)
	}
}

// Scenario 44: 128 ranks in one process (gloo#327, horovod#3556, Megatron-LM#877). To spare descriptors each pair has one
// connection here.
func TestPeers44_HundredAndTwentyEightRanks(t *testing.T) {
	const size = 128
	if limit := descriptorLimit(); testing.Short() || limit > 0 && limit < size*size+1000 {
		t.Logf("not run: -short, or %d descriptors are too few", descriptorLimit())
		return
	}
	began := time.Now()
	meshes, errs := make([]*mesh, size), make([]error, size)
	var wg sync.WaitGroup
	for r, cfg := range world(t, size) {
		cfg.Link, cfg.Timeout = "tcp", time.Minute
		wg.Go(func() {
			meshes[r], errs[r] = join(t.Context(), cfg, func(ctx context.Context, m *mesh) error {
				errs := make(chan error)
				for peer := range m.size {
					go func() {
						var err error
						if peer != m.rank {
							err = greet(ctx, m, peer, transport.Control, 0)
						}
						errs <- err
					}()
				}
				var all []error
				for range m.size {
					all = append(all, <-errs)
				}
				return errors.Join(all...)
			})
		})
	}
	wg.Wait()
	t.Logf("%d ranks in one process met in %v", size, time.Since(began))
	noErrors(t, errs)
	for _, m := range meshes {
		m.close()
	}
}

// Scenario 46: wrong forms of addresses (pytorch#53395, dask-xgboost#5) are taken or refused with precise words, before
// anything is asked of the network.
func TestPeers46_AddressForms(t *testing.T) {
	t.Parallel()
	for at, reason := range map[string]string{
		"localhost":      "the port is missing: want host:port",
		":5000":          "the host is missing: want host:port",
		"host":           "the port is missing: want host:port",
		"http://x:1":     "a scheme (http://) has no place here: want host:port",
		"tcp://10.0.0.1": "a scheme (tcp://) has no place here: want host:port",
		"x:70000":        "port 70000 is outside 0–65535",
		"x:-1":           "port -1 is outside 0–65535",
		"":               "empty: want host:port of the coordinator",
		" ":              "empty: want host:port of the coordinator",
		"::1:5000":       "the port is missing: want host:port", // an address by itself
		"[::1]":          "the port is missing: want host:port",
		"[::1:5000":      "missing ']' in address: want host:port, IPv6 addresses in brackets",
	} {
		_, err := join(t.Context(), Config{Rank: 1, Size: 2, Coordinator: at, net: &network{}}, fullMesh)
		var e *ConfigError
		if !errors.As(err, &e) || e.Field != "Coordinator" || !strings.Contains(e.Reason, reason) {
			t.Errorf("%q: %v, want %q", at, err, reason)
		}
	}
	for at, want := range map[string]endpoint{"[::1]:5000": {"::1", 5000}, "localhost:5000": {"localhost", 5000}} {
		if got, err := parseEndpoint(at); err != nil || got != want {
			t.Errorf("%q: %v, %v", at, got, err)
		}
	}
}

// Scenario 46 as well: a name that nobody knows is tried again until the deadline, and then said to be unknown.
func TestPeers46_UnknownName(t *testing.T) {
	t.Parallel()
	fake := machine()
	fake.resolve = func(_ context.Context, host string) ([]netip.Addr, error) {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	for r := range 2 {
		_, err := join(t.Context(), Config{Rank: r, Size: 2, Coordinator: "nowhere.example:5000", Timeout: 150 * time.Millisecond, net: fake}, fullMesh)
		wantAll(t, []error{err}, "nowhere.example: no such host")
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// Scenario 77: after a wrong magic at the start, the coordinator waits for ever (nccl#1871). A stranger comes first; the real
// ranks get in, and without them the deadline still passes.
func TestPeers77_StrangerFirst(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"nccl", "\x89GOCCX\r\n\x01\x00\x01\x00\x00\x00\x00\x00", magic, strings.Repeat("\x00", 1000)} {
		cfgs := world(t, 2)
		stranger, err := net.Dial("tcp", cfgs[1].Coordinator)
		if err != nil {
			t.Fatal(err)
		}
		defer stranger.Close()
		io.WriteString(stranger, first)
		_, errs := startAll(t, cfgs)
		noErrors(t, errs)
	}
	cfgs := world(t, 2)
	stranger, err := net.Dial("tcp", cfgs[1].Coordinator)
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	io.WriteString(stranger, "nccl")
	cfgs[0].Timeout = 300 * time.Millisecond
	_, errs := startAll(t, cfgs[:1])
	wantAll(t, errs, "missing: rank 1")
}

// Scenario 78: connecting and hanging up crashes the daemon (ompi-release PR#364). Here, before, during and after a start:
// nothing happens.
func TestPeers78_ConnectAndHangUp(t *testing.T) {
	t.Parallel()
	kinds := []func(c *net.TCPConn){
		func(c *net.TCPConn) {},
		func(c *net.TCPConn) { c.SetLinger(0) }, // a reset
		func(c *net.TCPConn) { c.CloseWrite(); c.Read(make([]byte, 1)) },
		func(c *net.TCPConn) { io.WriteString(c, magic); c.SetLinger(0) },
	}
	bother := func(at string, rounds int) {
		for i := range rounds {
			c, err := net.Dial("tcp", at)
			if err != nil {
				t.Error(err)
				return
			}
			c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
			kinds[i%len(kinds)](c.(*net.TCPConn))
			c.Close()
		}
	}
	cfgs := world(t, 3)
	at := cfgs[1].Coordinator
	bother(at, 100)
	var during sync.WaitGroup
	during.Go(func() { bother(at, 400) })
	meshes, errs := startAll(t, cfgs)
	during.Wait()
	noErrors(t, errs)
	for r := range cfgs {
		bother(meshes[0].addr(r), 100)
	}
	conn, err := meshes[2].dial(t.Context(), 1, transport.PointToPoint, 1)
	if err != nil {
		t.Fatalf("a connection afterwards: %v", err)
	}
	conn.Close()
}
