package tcp

import (
	"context"
	"crypto/sha256"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"
)

// A network is what start-up asks the machine for; tests put a fake in its place.
type network struct {
	resolve    func(ctx context.Context, host string) ([]netip.Addr, error)
	interfaces func() ([]iface, error)      // those that are up
	speed      func(name string) (mbps int) // of an interface, 0 when unknown
	hostID     func() [hostIDSize]byte      // equal where abstract Unix sockets are shared
	listen     func(ctx context.Context, network, address string) (net.Listener, error)
	dial       func(ctx context.Context, network, address string) (net.Conn, error)
}

const hostIDSize = 16

// deadAfter is how long a connection may be unanswered. It is the last resort: heartbeats above the transport decide sooner who is
// dead, after a time that users set, and a connection must outlive an outage that they bear. Where nobody sends heartbeats it
// bounds how long a rank waits for a host that has vanished.
const deadAfter = 2 * time.Minute

// dialPatience is how long one attempt to connect may take.
const dialPatience = 30 * time.Second

// keepAlive keeps idle connections known to middleboxes and notices within deadAfter when the other end is gone.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: deadAfter / 2, Interval: deadAfter / 6, Count: 3}

func machine() *network {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false) // the engine needs plain TCP sockets
	d := net.Dialer{Timeout: dialPatience}
	return &network{
		resolve:    resolve,
		interfaces: interfaces,
		speed:      linkSpeed,
		hostID:     hostID,
		listen:     lc.Listen,
		dial:       d.DialContext,
	}
}

// resolve keeps the zone of a literal address, which the resolver would lose, and puts IPv4 first, as net.Listen does.
func resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a.Unmap()}, nil
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	var v4, v6 []netip.Addr
	for _, a := range found {
		if a = a.Unmap(); a.Is4() {
			v4 = append(v4, a)
		} else {
			v6 = append(v6, a)
		}
	}
	return append(v4, v6...), nil
}

func interfaces() ([]iface, error) {
	list, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var up []iface
	for _, i := range list {
		if i.Flags&net.FlagUp == 0 {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			return nil, err
		}
		entry := iface{name: i.Name}
		for _, a := range addrs {
			p, err := netip.ParsePrefix(a.String())
			if err != nil {
				continue // a kind of address that has no prefix is not one to listen on
			}
			ip := p.Addr().Unmap()
			if ip.Is6() && ip.IsLinkLocalUnicast() {
				ip = ip.WithZone(i.Name)
			}
			entry.addrs = append(entry.addrs, ip)
		}
		if len(entry.addrs) > 0 {
			up = append(up, entry)
		}
	}
	return up, nil
}

// linkSpeed reads what the driver says; virtual and loopback interfaces say nothing.
func linkSpeed(name string) (mbps int) {
	if name == "" || strings.Contains(name, "/") {
		return 0
	}
	p, err := os.ReadFile("/sys/class/net/" + name + "/speed")
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(p)))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// hostID identifies a running kernel and a network namespace in it; elsewhere than on Linux, the host by its name.
func hostID() [hostIDSize]byte {
	id := sha256.New()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err == nil {
		var ns string
		ns, err = os.Readlink("/proc/self/ns/net")
		id.Write(append(boot, ns...))
	}
	if err != nil {
		name, _ := os.Hostname()
		id.Write([]byte(name))
	}
	return [hostIDSize]byte(id.Sum(nil)[:hostIDSize])
}
