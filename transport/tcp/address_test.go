package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
)

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

// twenty interfaces as a container host has them.
func manyInterfaces() []iface {
	all := []iface{
		{"lo", []netip.Addr{ip("127.0.0.1"), ip("::1")}},
		{"docker0", []netip.Addr{ip("172.17.0.1")}},
		{"eth0", []netip.Addr{ip("fe80::5%eth0"), ip("10.0.0.5"), ip("fd00::5")}},
		{"eth1", []netip.Addr{ip("10.1.0.5")}},
		{"ib0", []netip.Addr{ip("fe80::9%ib0"), ip("192.168.9.5")}},
	}
	for i := range 15 {
		all = append(all, iface{fmt.Sprintf("veth%d", i), []netip.Addr{ip(fmt.Sprintf("fe80::%d%%veth%d", i+1, i))}})
	}
	return all
}

func TestPeers34_ChoiceAmongTwenty(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		pattern, route string
		want, iface    string
	}{
		{"", "10.1.0.5", "10.1.0.5", "eth1"},
		{"", "127.0.0.1", "127.0.0.1", "lo"},
		{"", "fe80::5%eth0", "fe80::5%eth0", "eth0"},
		{"", "10.9.9.9", "10.9.9.9", ""}, // an address that appeared since
		{"", "", "172.17.0.1", "docker0"},
		{"^docker", "", "10.0.0.5", "eth0"},
		{"^docker,eth", "", "192.168.9.5", "ib0"},
		{"eth", "10.1.0.5", "10.1.0.5", "eth1"},
		{"eth", "172.17.0.1", "10.0.0.5", "eth0"},
		{"eth", "fd00::77", "fd00::5", "eth0"},
		{"ib,eth1", "10.0.0.5", "10.1.0.5", "eth1"},
		{"=ib0", "10.0.0.5", "192.168.9.5", "ib0"},
		{"=eth1,=ib0", "10.0.0.5", "10.1.0.5", "eth1"},
		{"lo", "10.0.0.5", "127.0.0.1", "lo"},
		{"^=lo,docker0,eth0,eth1,ib0", "", "fe80::1%veth0", "veth0"},
		{"veth1", "fe80::2%veth1", "fe80::2%veth1", "veth1"},
	} {
		var route netip.Addr
		if test.route != "" {
			route = ip(test.route)
		}
		got, err := choose(manyInterfaces(), test.pattern, route)
		if err != nil || got.addr != ip(test.want) || got.iface != test.iface {
			t.Errorf("pattern %q, route %s: %v on %q, %v; want %s on %q", test.pattern, test.route, got.addr, got.iface, err, test.want, test.iface)
		}
	}
	_, err := choose(manyInterfaces()[:2], "=eth", ip("10.0.0.5"))
	if err == nil || !strings.Contains(err.Error(), "there are lo, docker0") {
		t.Errorf("no match: %v", err)
	}
	if _, err := choose(nil, "", netip.Addr{}); err == nil {
		t.Error("no interface at all was no error")
	}
}

func TestPeers34_OnlyLoopback(t *testing.T) {
	t.Parallel()
	cfgs := world(t, 2)
	for r := range cfgs {
		cfgs[r].net = machine()
		cfgs[r].net.interfaces = func() ([]iface, error) { return []iface{{"lo", []netip.Addr{ip("127.0.0.1")}}}, nil }
	}
	_, errs := startAll(t, cfgs)
	noErrors(t, errs)
}

func TestRezone(t *testing.T) {
	t.Parallel()
	if got := rezone(ip("fe80::7"), ip("fe80::1%eth3")); got != ip("fe80::7%eth3") {
		t.Errorf("link-local: %v", got)
	}
	if got := rezone(ip("fd00::7"), ip("fe80::1%eth3")); got != ip("fd00::7") {
		t.Errorf("global: %v", got)
	}
	if got := rezone(ip("10.0.0.1"), ip("fe80::1%eth3")); got != ip("10.0.0.1") {
		t.Errorf("IPv4: %v", got)
	}
}

// TestPeers34_ChosenAndLoggedOnce has a rank choose a second loopback address by interface name, and say so once.
func TestPeers34_ChosenAndLoggedOnce(t *testing.T) {
	t.Parallel()
	cfgs := world(t, 2)
	var log lines
	fake := machine()
	fake.interfaces = func() ([]iface, error) {
		return []iface{{"lo", []netip.Addr{ip("127.0.0.1")}}, {"fast0", []netip.Addr{ip("127.0.0.2")}}}, nil
	}
	fake.speed = func(name string) int {
		if name == "fast0" {
			return 100000
		}
		return 0
	}
	for r := range cfgs {
		cfgs[r].Interface, cfgs[r].net, cfgs[r].Logger = "^lo", fake, logger(&log)
	}
	meshes, errs := startAll(t, cfgs)
	if errs[0] != nil && strings.Contains(errs[0].Error(), "assign") {
		t.Log("this system has only one loopback address")
		return
	}
	noErrors(t, errs)
	for _, m := range meshes {
		for r := range cfgs { // rank 0 as well, although its coordinator listens elsewhere
			if !strings.HasPrefix(m.addr(r), "127.0.0.2:") {
				t.Errorf("rank %d sees rank %d at %s", m.rank, r, m.addr(r))
			}
		}
	}
	if n := strings.Count(log.String(), "level=INFO"); n != 2 || strings.Count(log.String(), `interface=fast0 why="interface ^lo" speed="100000 Mbit/s"`) != 2 {
		t.Errorf("log of two ranks:\n%s", log.String())
	}
}

// TestSharedListenerLogged: rank 0 says what it uses as well, once.
func TestSharedListenerLogged(t *testing.T) {
	t.Parallel()
	cfgs := world(t, 2)
	var log lines
	cfgs[0].Logger = logger(&log)
	_, errs := startAll(t, cfgs)
	noErrors(t, errs)
	if n := strings.Count(log.String(), "address for links chosen"); n != 1 || !strings.Contains(log.String(), "listen="+cfgs[1].Coordinator) {
		t.Errorf("log of rank 0:\n%s", log.String())
	}
}

func TestListenRange(t *testing.T) {
	t.Parallel()
	first, err := netip.ParseAddrPort(freePort(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"127.0.0.1", ""} {
		cfgs := world(t, 3)
		for r := range cfgs {
			cfgs[r].Listen = fmt.Sprintf("%s:%d-%d", host, first.Port(), first.Port()+20)
		}
		meshes, errs := startAll(t, cfgs)
		noErrors(t, errs)
		for r := range cfgs {
			at, err := netip.ParseAddrPort(meshes[1].addr(r))
			if err != nil || at.Port() < first.Port() || at.Port() > first.Port()+20 {
				t.Errorf("rank %d listens at %v, %v", r, at, err)
			}
		}
	}

	taken := listener(t)
	defer taken.Close()
	cfgs := world(t, 2)
	cfgs[1].Listen = taken.Addr().String()
	_, errs := startAll(t, cfgs)
	wantAll(t, errs, "address in use: "+taken.Addr().String(), "rank 1")
}

// TestPeers83_BindsExactly looks at the listeners: what was asked for, and no wildcard.
func TestPeers83_BindsExactly(t *testing.T) {
	t.Parallel()
	meshes, errs := startAll(t, world(t, 3))
	noErrors(t, errs)
	for _, m := range meshes {
		m.host.srv.mu.Lock()
		for _, ln := range m.host.srv.listeners {
			if a := addrPort(ln.Addr()); ln.Addr().Network() == "tcp" && a.Addr() != ip("127.0.0.1") {
				t.Errorf("rank %d listens on %v", m.rank, ln.Addr())
			}
		}
		m.host.srv.mu.Unlock()
	}
}

func TestAdvertise(t *testing.T) {
	t.Parallel()
	cfgs := world(t, 3)
	cfgs[0].Advertise = "localhost"
	cfgs[1].Advertise = "localhost"
	meshes, errs := startAll(t, cfgs)
	noErrors(t, errs)
	for r := range 2 {
		if at := meshes[2].addr(r); !strings.HasPrefix(at, "localhost:") {
			t.Errorf("rank %d is advertised as %s", r, at)
		}
	}
}

// TestWildcard listens everywhere and advertises something that can be dialled.
func TestWildcard(t *testing.T) {
	t.Parallel()
	cfgs := world(t, 3)
	cfgs[0].Listener.Close()
	cfgs[0].Listener = nil
	at := freePort(t)
	for r := range cfgs {
		cfgs[r].Coordinator, cfgs[r].Listen, cfgs[r].Insecure = at, "0.0.0.0", true
		cfgs[r].net = machine()
		cfgs[r].net.listen = func(ctx context.Context, network, address string) (net.Listener, error) {
			// The test stays on loopback; what was asked for is checked instead.
			if host, port, err := net.SplitHostPort(address); err == nil && network == "tcp" {
				if host != "0.0.0.0" {
					t.Errorf("rank %d listens on %s", r, address)
				}
				address = "127.0.0.1:" + port
			}
			return net.Listen(network, address)
		}
	}
	meshes, errs := startAll(t, cfgs)
	noErrors(t, errs)
	if got := meshes[1].addr(0); got != at {
		t.Errorf("rank 1 sees rank 0 at %s, want where it reached the coordinator, %s", got, at)
	}
}

func TestNameBeyondLoopbackNeedsInsecure(t *testing.T) {
	t.Parallel()
	for rank := range 2 {
		fake := machine()
		fake.resolve = func(context.Context, string) ([]netip.Addr, error) { return []netip.Addr{ip("192.0.2.77")}, nil }
		fake.listen = func(ctx context.Context, network, address string) (net.Listener, error) {
			if network == "tcp" {
				t.Errorf("rank %d listens on %s", rank, address)
			}
			return net.Listen(network, address)
		}
		cfg := Config{Rank: rank, Size: 2, Coordinator: "node0.example:5000", Timeout: 5 * time.Second, net: fake}
		if rank == 1 { // its coordinator is reached, over an address beyond loopback
			near, far := net.Pipe()
			conn := &elsewhere{near}
			fake.dial = func(context.Context, string, string) (net.Conn, error) { return conn, nil }
			c := newCoordinator(2, "", "192.0.2.77:5000", "the coordinator")
			s := newServer(nil, roleApart, orDiscard(nil), map[purpose]handler{purposeRegister: c})
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() { c.run(ctx) })
			s.admit(far)
			defer func() { cancel(); wg.Wait(); s.close() }()
		}
		_, err := join(t.Context(), cfg, fullMesh)
		if e := (*ConfigError)(nil); !errors.As(err, &e) || e.Field != "Insecure" || !strings.Contains(err.Error(), "192.0.2.") {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// elsewhere is a connection whose near end has an address beyond loopback.
type elsewhere struct{ net.Conn }

func (elsewhere) LocalAddr() net.Addr  { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 5), Port: 40000} }
func (elsewhere) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 77), Port: 5000} }

func TestPeers35_FamiliesMix(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Logf("no IPv6 here: %v", err)
		return
	}
	cfgs := world(t, 3)
	cfgs[0].Listener.Close()
	cfgs[0].Listener = ln
	for r := range cfgs {
		cfgs[r].Coordinator = ln.Addr().String()
	}
	cfgs[2].Listen = "127.0.0.1" // families mix
	meshes, errs := startAll(t, cfgs)
	noErrors(t, errs)
	if at := meshes[2].addr(1); !strings.HasPrefix(at, "[::1]:") {
		t.Errorf("rank 1 listens at %s", at)
	}
	if at := meshes[1].addr(2); !strings.HasPrefix(at, "127.0.0.1:") {
		t.Errorf("rank 2 listens at %s", at)
	}
}

// TestMachine looks at the real machine through the real functions.
func TestMachine(t *testing.T) {
	t.Parallel()
	all, err := interfaces()
	if err != nil {
		t.Fatal(err)
	}
	if owner(all, ip("127.0.0.1")) == "" {
		t.Errorf("no interface has 127.0.0.1: %v", all)
	}
	if first, second := hostID(), hostID(); first != second || first == [hostIDSize]byte{} {
		t.Error("the host's id is not one")
	}
	for _, host := range []string{"127.0.0.1", "::1", "fe80::1%lo"} {
		if got, err := resolve(t.Context(), host); err != nil || len(got) != 1 || got[0] != ip(host) {
			t.Errorf("%s: %v, %v", host, got, err)
		}
	}
	if linkSpeed("lo") < 0 || linkSpeed("../../etc") != 0 {
		t.Error("link speed")
	}
}
