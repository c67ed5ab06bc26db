package tcp

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// An endpoint is a host, name or address with zone, and a port.
type endpoint struct {
	host string
	port uint16
}

func (e endpoint) String() string { return net.JoinHostPort(e.host, strconv.Itoa(int(e.port))) }

// parseEndpoint reads host:port; the error says what is wrong with s, not where s stood.
func parseEndpoint(s string) (endpoint, error) {
	host, port, err := splitHostPort(s)
	switch {
	case err != nil:
		return endpoint{}, err
	case port == "":
		return endpoint{}, fmt.Errorf("the port is missing: want host:port")
	case host == "":
		return endpoint{}, fmt.Errorf("the host is missing: want host:port")
	}
	n, err := parsePort(port)
	return endpoint{host, n}, err
}

// parseEndpoints reads a list separated by commas.
func parseEndpoints(s string) ([]endpoint, error) {
	if strings.TrimSpace(s) == "" {
		return nil, fmt.Errorf("empty: want host:port of the coordinator")
	}
	var list []endpoint
	for item := range strings.SplitSeq(s, ",") {
		e, err := parseEndpoint(strings.TrimSpace(item))
		if err != nil {
			if strings.Contains(s, ",") {
				err = fmt.Errorf("%q: %w", strings.TrimSpace(item), err)
			}
			return nil, err
		}
		list = append(list, e)
	}
	return list, nil
}

// A listenSpec is what Config.Listen asks for; an empty host and a range of 0 leave the choice to us.
type listenSpec struct {
	host        string
	first, last uint16
}

func parseListen(s string) (listenSpec, error) {
	var spec listenSpec
	if s == "" {
		return spec, nil
	}
	host, ports, err := splitHostPort(s)
	if err != nil {
		return spec, err
	}
	spec.host = host
	if ports == "" {
		return spec, nil
	}
	first, last, ranged := strings.Cut(ports, "-")
	if spec.first, err = parsePort(first); err != nil {
		return spec, err
	}
	spec.last = spec.first
	if ranged {
		if spec.last, err = parsePort(last); err != nil {
			return spec, err
		}
		if spec.first == 0 || spec.last < spec.first {
			return spec, fmt.Errorf("port range %s is empty", ports)
		}
	}
	return spec, nil
}

// wildcard tells whether the host asks for every address.
func (l listenSpec) wildcard() bool {
	a, err := netip.ParseAddr(l.host)
	return err == nil && a.IsUnspecified()
}

// splitHostPort separates host[:port] and checks the host; port is "" when there is none.
func splitHostPort(s string) (host, port string, err error) {
	if scheme, _, ok := strings.Cut(s, "://"); ok {
		return "", "", fmt.Errorf("a scheme (%s://) has no place here: want host:port", scheme)
	}
	if a, err := netip.ParseAddr(s); err == nil { // an address alone, IPv6 without brackets among them
		return a.String(), "", nil
	}
	switch {
	case strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]"):
		host = s[1 : len(s)-1]
	case !strings.Contains(s, ":"):
		host = s
	default:
		if host, port, err = net.SplitHostPort(s); err != nil {
			reason := err.Error()
			if addr := (*net.AddrError)(nil); asAddrError(err, &addr) {
				reason = addr.Err
			}
			return "", "", fmt.Errorf("%s: want host:port, IPv6 addresses in brackets", reason)
		}
		if port == "" {
			return "", "", fmt.Errorf("the port is missing: want host:port")
		}
	}
	return host, port, checkHost(host)
}

func asAddrError(err error, target **net.AddrError) bool {
	e, ok := err.(*net.AddrError)
	*target = e
	return ok
}

func parsePort(s string) (uint16, error) {
	n, err := strconv.Atoi(s)
	switch {
	case err != nil:
		return 0, fmt.Errorf("port %q is not a number", s)
	case n < 0 || n > 65535:
		return 0, fmt.Errorf("port %d is outside 0–65535", n)
	}
	return uint16(n), nil
}

// checkHost refuses what no resolver could make sense of.
func checkHost(host string) error {
	if _, err := netip.ParseAddr(host); err == nil || host == "" {
		return nil
	}
	if strings.ContainsAny(host, ":%") {
		return fmt.Errorf("%q is no IPv6 address", host)
	}
	for _, c := range host {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_') {
			return fmt.Errorf("%q is no host name: it contains %q", host, c)
		}
	}
	if len(host) > 253 {
		return fmt.Errorf("the host name is longer than 253 bytes")
	}
	return nil
}

// loopback tells whether host can only mean the machine that says it.
func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback() || strings.EqualFold(host, "localhost")
}
