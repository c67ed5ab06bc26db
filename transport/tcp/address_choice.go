package tcp

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// An iface is a network interface that is up.
type iface struct {
	name  string
	addrs []netip.Addr
}

// A choice is the address a rank listens on or advertises, and why.
type choice struct {
	addr  netip.Addr
	iface string // "" when no interface has the address
	why   string
}

// choose picks among the interfaces. route is the local address of the way to the coordinator, invalid when this rank is the
// coordinator and listens everywhere.
func choose(all []iface, pattern string, route netip.Addr) (choice, error) {
	if pattern == "" && route.IsValid() {
		return choice{route, owner(all, route), "route to the coordinator"}, nil
	}
	match, err := parsePattern(pattern)
	if err != nil {
		return choice{}, err
	}
	var candidates []choice
	for _, i := range all {
		if !match(i.name) {
			continue
		}
		for _, a := range i.addrs {
			candidates = append(candidates, choice{a, i.name, "interface " + pattern})
		}
	}
	if len(candidates) == 0 {
		return choice{}, fmt.Errorf("no interface that is up and has an address matches; there are %s", describe(all))
	}
	if pattern == "" {
		candidates[0].why = "first interface"
	}
	// A stable sort: among equals the system's order of interfaces decides.
	slices.SortStableFunc(candidates, func(a, b choice) int { return cmp.Compare(badness(a.addr, route), badness(b.addr, route)) })
	best := candidates[0]
	if pattern == "" {
		best.why = "first usable interface"
	}
	return best, nil
}

// badness orders candidate addresses: the route itself, then its family, loopback and link-local ones only for want of others.
func badness(a, route netip.Addr) int {
	if a == route {
		return 0
	}
	bad := 1
	if route.IsValid() && a.Is4() != route.Is4() || !route.IsValid() && !a.Is4() {
		bad += 2
	}
	if a.IsLinkLocalUnicast() {
		bad += 4
	}
	if a.IsLoopback() {
		bad += 8
	}
	return bad
}

// parsePattern reads NCCL's notation: prefixes separated by commas; ^ in front of the list excludes, = asks for exact names.
func parsePattern(pattern string) (match func(name string) bool, err error) {
	list, exclude := strings.CutPrefix(pattern, "^")
	list, exact := strings.CutPrefix(list, "=")
	var items []string
	for item := range strings.SplitSeq(list, ",") {
		item = strings.TrimPrefix(strings.TrimSpace(item), "=")
		if item == "" && pattern != "" {
			return nil, fmt.Errorf("the list contains an empty name")
		}
		items = append(items, item)
	}
	return func(name string) bool {
		found := slices.ContainsFunc(items, func(item string) bool {
			return name == item || !exact && strings.HasPrefix(name, item)
		})
		return found != exclude
	}, nil
}

func owner(all []iface, a netip.Addr) string {
	for _, i := range all {
		if slices.Contains(i.addrs, a) || slices.Contains(i.addrs, a.WithZone("")) {
			return i.name
		}
	}
	return ""
}

func describe(all []iface) string {
	if len(all) == 0 {
		return "none"
	}
	var names []string
	for _, i := range all {
		names = append(names, i.name)
	}
	return strings.Join(names, ", ")
}

// rezone gives a link-local address that another host advertised the zone in which this rank reaches that host's network: a
// zone names a local interface, so the other host's own means nothing here.
func rezone(a netip.Addr, local netip.Addr) netip.Addr {
	if !a.Is6() || !a.IsLinkLocalUnicast() {
		return a
	}
	return a.WithZone(local.Zone())
}
