package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"
)

// listenForLinks opens what other ranks dial and says how they find it. ln is the coordinator's listener on rank 0, which
// serves for links too unless Listen or Interface asks for another place.
func (s *start) listenForLinks(ctx context.Context, ln net.Listener) (peerInfo, error) {
	info := peerInfo{host: s.net.hostID()}
	if err := s.listenUnix(ctx, &info); err != nil {
		return info, err
	}
	if ln == nil || s.listen.first != 0 || s.Interface != "" || s.listen.host != "" && !s.listen.wildcard() {
		return info, s.listenTCP(ctx, ln, &info)
	}
	at := addrPort(ln.Addr())
	info.tcp = s.advertised(at.Port())
	if info.tcp == "" {
		info.tcp, info.shared = at.String(), true
	}
	all, _ := s.net.interfaces() // for the name in the log only
	s.announce(ln, info.tcp, choice{at.Addr(), owner(all, at.Addr()), "shared with the coordinator"})
	return info, nil
}

// announce says once which way this rank's traffic takes: falling to a slow interface unnoticed would be a bug.
func (s *start) announce(ln net.Listener, advertise string, c choice) {
	args := []any{"listen", ln.Addr().String(), "advertise", advertise, "interface", c.iface, "why", c.why}
	if mbps := s.net.speed(c.iface); mbps > 0 {
		args = append(args, "speed", fmt.Sprintf("%d Mbit/s", mbps))
	}
	s.Logger.Info("tcp: address for links chosen", args...)
}

func (s *start) listenUnix(ctx context.Context, info *peerInfo) error {
	if s.Link == "tcp" || !abstractSockets {
		return nil
	}
	name := abstractName()
	ln, err := s.net.listen(ctx, "unix", name)
	if err != nil {
		if s.Link == "unix" {
			return fmt.Errorf("listen on a Unix-domain socket: %w", explain(err))
		}
		s.Logger.Info("tcp: no Unix-domain sockets between ranks of this host", "why", err)
		return nil
	}
	info.unix = name
	s.host.srv.serve(ln)
	return nil
}

func (s *start) listenTCP(ctx context.Context, coordinator net.Listener, info *peerInfo) error {
	bind, advertise, err := s.place(ctx, coordinator)
	if err != nil {
		return err
	}
	if !bind.IsLoopback() && !s.open() {
		return needInsecure("this rank", bind.String())
	}
	ln, err := s.bindRange(ctx, bind)
	if err != nil {
		return err
	}
	s.host.srv.serve(ln)
	port := addrPort(ln.Addr()).Port()
	if info.tcp = s.advertised(port); info.tcp == "" {
		info.tcp = netip.AddrPortFrom(advertise.addr.WithZone(""), port).String()
	}
	s.announce(ln, info.tcp, advertise)
	return nil
}

// place decides where to listen and which address to advertise.
func (s *start) place(ctx context.Context, coordinator net.Listener) (bind netip.Addr, advertise choice, err error) {
	if s.listen.host != "" && !s.listen.wildcard() {
		addrs, err := s.addresses(ctx, endpoint{host: s.listen.host})
		if err != nil {
			return bind, advertise, &ConfigError{Field: "Listen", Value: s.Listen, Reason: err.Error(), Err: err}
		}
		all, _ := s.net.interfaces() // for the name in the log only
		return addrs[0], choice{addrs[0], owner(all, addrs[0]), "Listen"}, nil
	}
	route := addrPort(s.conn.LocalAddr()).Addr()
	if coordinator != nil {
		if route = addrPort(coordinator.Addr()).Addr(); route.IsUnspecified() {
			route = netip.Addr{}
		}
	}
	all, err := s.net.interfaces()
	if err != nil {
		return bind, advertise, fmt.Errorf("list interfaces: %w", err)
	}
	if advertise, err = choose(all, s.Interface, route); err != nil {
		return bind, advertise, &ConfigError{Field: "Interface", Value: s.Interface, Reason: err.Error()}
	}
	if s.listen.wildcard() {
		return netip.MustParseAddr(s.listen.host), advertise, nil
	}
	return advertise.addr, advertise, nil
}

// bindRange takes the first free port of the range that Listen names.
func (s *start) bindRange(ctx context.Context, bind netip.Addr) (net.Listener, error) {
	for port := s.listen.first; ; port++ {
		ln, err := s.net.listen(ctx, "tcp", netip.AddrPortFrom(bind, port).String())
		switch {
		case err == nil:
			return ln, nil
		case !errors.Is(err, syscall.EADDRINUSE):
			return nil, fmt.Errorf("listen for other ranks: %w", explain(err))
		case port >= s.listen.last:
			at := net.JoinHostPort(bind.String(), strconv.Itoa(int(port)))
			if s.listen.last > s.listen.first {
				at = fmt.Sprintf("%s, every port of %d–%d", bind, s.listen.first, s.listen.last)
			}
			return nil, fmt.Errorf("listen for other ranks: address in use: %s: %w", at, err)
		}
	}
}

// advertised is the address that Advertise asks for, with the real port when it names none; "" when it is not set.
func (s *start) advertised(port uint16) string {
	if s.Advertise == "" {
		return ""
	}
	host, given, _ := splitHostPort(s.Advertise) // checked before
	if given == "" {
		given = strconv.Itoa(int(port))
	}
	return net.JoinHostPort(host, given)
}
