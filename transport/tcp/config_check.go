package tcp

import (
	"errors"
	"fmt"
	"net/netip"
)

// A plan is a checked Config: its strings as what they mean.
type plan struct {
	Config
	coordinators []endpoint
	listen       listenSpec
	cred         *credentials
	net          *network
}

// open tells whether this rank may listen where anybody can call.
func (p *plan) open() bool { return p.Insecure || p.cred.guarded() }

// check refuses what cannot work before anything is opened or asked of the network.
func (cfg Config) check() (*plan, error) {
	p := &plan{Config: cfg, net: cfg.net}
	p.Logger = orDiscard(cfg.Logger)
	if p.net == nil {
		p.net = machine()
	}
	for _, check := range []func(*plan) error{checkWorld, checkLink, checkCredentials, checkCoordinator, checkListen, checkOptions, checkExposure} {
		if err := check(p); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func badSize(size int) error {
	return &ConfigError{Field: "Size", Value: fmt.Sprint(size), Reason: fmt.Sprintf("want 1 to %d ranks", MaxSize)}
}

func checkWorld(p *plan) error {
	if p.Size < 1 || p.Size > MaxSize {
		return badSize(p.Size)
	}
	if p.Rank < 0 || p.Rank >= p.Size {
		return &ConfigError{Field: "Rank", Value: fmt.Sprint(p.Rank), Reason: fmt.Sprintf("want 0 to %d, one less than Size", p.Size-1)}
	}
	if len(p.RunID) > maxRunID {
		return &ConfigError{Field: "RunID", Value: p.RunID, Reason: fmt.Sprintf("longer than %d bytes", maxRunID)}
	}
	return nil
}

func checkLink(p *plan) error {
	switch p.Link {
	case "unix":
		if !abstractSockets {
			return &ConfigError{Field: "Link", Value: p.Link, Reason: "needs abstract Unix-domain sockets, which this system lacks", Err: errors.ErrUnsupported}
		}
		return nil
	case "", "auto", "tcp":
		return nil
	}
	return &ConfigError{Field: "Link", Value: p.Link, Reason: `want "auto", "tcp" or "unix"`}
}

func checkCredentials(p *plan) (err error) {
	p.cred, err = newCredentials(p.Secret, p.TLS)
	return err
}

func checkCoordinator(p *plan) error {
	if p.Listener != nil {
		if p.Rank != 0 {
			return &ConfigError{Field: "Listener", Reason: fmt.Sprintf("only rank 0 coordinates, this is rank %d", p.Rank)}
		}
		if !addrPort(p.Listener.Addr()).IsValid() {
			return &ConfigError{Field: "Listener", Value: p.Listener.Addr().String(), Reason: "not a TCP listener"}
		}
	}
	if p.Listener != nil || p.Size == 1 {
		return nil
	}
	list, err := parseEndpoints(p.Coordinator)
	if err != nil {
		return &ConfigError{Field: "Coordinator", Value: p.Coordinator, Reason: err.Error()}
	}
	for _, e := range list {
		if e.port == 0 {
			return &ConfigError{Field: "Coordinator", Value: p.Coordinator, Reason: "port 0 names no meeting place: give rank 0 a Listener and the others its address"}
		}
	}
	p.coordinators = list
	return nil
}

func checkListen(p *plan) error {
	var err error
	if p.listen, err = parseListen(p.Listen); err != nil {
		return &ConfigError{Field: "Listen", Value: p.Listen, Reason: err.Error()}
	}
	if p.Advertise != "" {
		host, port, err := splitHostPort(p.Advertise)
		if err == nil && port != "" {
			_, err = parsePort(port)
		}
		if err == nil && host == "" {
			err = errors.New("the host is missing")
		}
		if a, e := netip.ParseAddr(host); e == nil && a.IsUnspecified() {
			err = errors.New("nobody can dial a wildcard address")
		}
		if err != nil {
			return &ConfigError{Field: "Advertise", Value: p.Advertise, Reason: err.Error()}
		}
	}
	if p.Interface != "" {
		if _, err := parsePattern(p.Interface); err != nil {
			return &ConfigError{Field: "Interface", Value: p.Interface, Reason: err.Error()}
		}
	}
	return nil
}

func checkOptions(p *plan) error {
	total := 0
	for k, v := range p.Options {
		if len(k) > maxOption || len(v) > maxOption {
			return &ConfigError{Field: "Options", Value: k[:min(len(k), 64)], Reason: fmt.Sprintf("key or value longer than %d bytes", maxOption)}
		}
		total += len(k) + len(v) + 4
	}
	if room := maxPayload[kindRegister] - 8<<10; len(p.Options) > maxOptions || total > room {
		return &ConfigError{Field: "Options", Reason: fmt.Sprintf("more than %d of them, or than %d bytes together", maxOptions, room)}
	}
	return nil
}

// checkExposure refuses at once what would need Insecure later, where that can be told without asking the network.
func checkExposure(p *plan) error {
	if p.open() || p.Size == 1 {
		return nil
	}
	if p.Listener != nil {
		if a := addrPort(p.Listener.Addr()).Addr(); !a.IsLoopback() {
			return needInsecure("this rank", a.String())
		}
	}
	hosts := []string{p.listen.host}
	if p.listen.host == "" && p.Interface == "" {
		for _, e := range p.coordinators {
			hosts = append(hosts, e.host)
		}
	}
	for _, host := range hosts {
		if a, err := netip.ParseAddr(host); err == nil && !a.Unmap().IsLoopback() {
			return needInsecure("this rank", host)
		}
	}
	return nil
}

func needInsecure(who, where string) error {
	return &ConfigError{Field: "Insecure", Reason: fmt.Sprintf("%s would listen on %s, beyond loopback, where anybody who reaches it could join: "+
		"set Secret (GOCCL_SECRET_FILE) or TLS, or Insecure to allow that", who, where)}
}
