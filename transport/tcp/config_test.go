package tcp

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

// TestConfigRefused checks that a Config that cannot work is refused before anything is opened, naming the field.
func TestConfigRefused(t *testing.T) {
	t.Parallel()
	good := Config{Rank: 1, Size: 3, Coordinator: "127.0.0.1:5000"}
	for _, test := range []struct {
		field, reason string
		edit          func(c *Config)
	}{
		{"Size", "want 1 to", func(c *Config) { c.Size = 0 }},
		{"Size", "want 1 to", func(c *Config) { c.Size = -2 }},
		{"Size", "want 1 to", func(c *Config) { c.Size = MaxSize + 1 }},
		{"Rank", "want 0 to 2", func(c *Config) { c.Rank = 3 }},
		{"Rank", "want 0 to 2", func(c *Config) { c.Rank = -1 }},
		{"RunID", "longer than", func(c *Config) { c.RunID = strings.Repeat("x", 200) }},
		{"Coordinator", "empty", func(c *Config) { c.Coordinator = "" }},
		{"Coordinator", "the port is missing", func(c *Config) { c.Coordinator = "localhost" }},
		{"Coordinator", "the port is missing", func(c *Config) { c.Coordinator = "localhost:" }},
		{"Coordinator", "the port is missing", func(c *Config) { c.Coordinator = "::1" }},
		{"Coordinator", "the host is missing", func(c *Config) { c.Coordinator = ":5000" }},
		{"Coordinator", "a scheme (http://)", func(c *Config) { c.Coordinator = "http://x:1" }},
		{"Coordinator", "port 70000 is outside", func(c *Config) { c.Coordinator = "x:70000" }},
		{"Coordinator", `port "x" is not a number`, func(c *Config) { c.Coordinator = "x:x" }},
		{"Coordinator", "port 0 names no", func(c *Config) { c.Coordinator = "x:0" }},
		{"Coordinator", "too many colons", func(c *Config) { c.Coordinator = "::1:5000:x" }},
		{"Coordinator", "is no host name", func(c *Config) { c.Coordinator = "a b:5000" }},
		{"Coordinator", "is no IPv6 address", func(c *Config) { c.Coordinator = "[::z]:5000" }},
		{"Coordinator", "the port is missing", func(c *Config) { c.Coordinator = "a:1,b" }},
		{"Coordinator", "the port is missing", func(c *Config) { c.Coordinator = "a:1," }},
		{"Listen", "port range 9-8 is empty", func(c *Config) { c.Listen = "127.0.0.1:9-8" }},
		{"Listen", `port "b" is not a number`, func(c *Config) { c.Listen = "127.0.0.1:9-b" }},
		{"Advertise", "wildcard", func(c *Config) { c.Advertise = "0.0.0.0:1" }},
		{"Advertise", "the host is missing", func(c *Config) { c.Advertise = ":1" }},
		{"Interface", "empty name", func(c *Config) { c.Interface = "eth0,,ib0" }},
		{"Interface", "empty name", func(c *Config) { c.Interface = "^" }},
		{"Link", `want "auto"`, func(c *Config) { c.Link = "shm" }},
		{"Options", "longer than", func(c *Config) { c.Options = map[string]string{"x": strings.Repeat("y", maxOption+1)} }},
		{"Insecure", "would listen on 10.1.2.3", func(c *Config) { c.Coordinator = "10.1.2.3:5000" }},
		{"Insecure", "would listen on 0.0.0.0", func(c *Config) { c.Listen = "0.0.0.0" }},
		{"Insecure", "would listen on ::", func(c *Config) { c.Listen = "[::]:5000-5010" }},
		{"Secret", "empty", func(c *Config) { c.Secret = []byte{} }},
		{"TLS", "no certificate", func(c *Config) { c.TLS = &tls.Config{RootCAs: testCA.Pool()} }},
		{"TLS", "no certificate", func(c *Config) {
			c.TLS = &tls.Config{RootCAs: testCA.Pool(), GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, nil }}
		}},
		{"TLS", "no CA pool", func(c *Config) { c.TLS = &tls.Config{Certificates: make([]tls.Certificate, 1)} }},
		{"TLS", "InsecureSkipVerify", func(c *Config) { c.TLS = testCA.Loopback("x"); c.TLS.InsecureSkipVerify = true }},
		{"TLS", "MaxVersion", func(c *Config) { c.TLS = testCA.Loopback("x"); c.TLS.MaxVersion = tls.VersionTLS12 }},
		{"TLS", "GetConfigForClient", func(c *Config) {
			c.TLS = testCA.Loopback("x")
			c.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, nil }
		}},
	} {
		cfg := good
		test.edit(&cfg)
		cfg.net = &network{} // whoever asks the machine for something panics
		_, err := join(t.Context(), cfg, fullMesh)
		var e *ConfigError
		if !errors.As(err, &e) || e.Field != test.field || !strings.Contains(err.Error(), test.reason) {
			t.Errorf("want field %s, reason %q; got %v", test.field, test.reason, err)
			continue
		}
	}
	good.Rank = 1
	good.Listener = listener(t)
	_, err := join(t.Context(), good, fullMesh)
	if e := (*ConfigError)(nil); !errors.As(err, &e) || e.Field != "Listener" {
		t.Errorf("a listener for rank 1: %v", err)
	}
	if _, err := good.Listener.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener was not closed: %v", err)
	}
}

func TestEndpointForms(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]endpoint{
		"localhost:5000":         {"localhost", 5000},
		"[::1]:5000":             {"::1", 5000},
		"[fe80::1%eth0]:5000":    {"fe80::1%eth0", 5000},
		"10.0.0.1:1":             {"10.0.0.1", 1},
		"node-0.job_1.svc:65535": {"node-0.job_1.svc", 65535},
	} {
		got, err := parseEndpoint(in)
		if err != nil || got != want {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	for in, want := range map[string]listenSpec{
		"":                    {},
		"10.0.0.1":            {host: "10.0.0.1"},
		"::1":                 {host: "::1"},
		"[::1]":               {host: "::1"},
		"eth.example":         {host: "eth.example"},
		":7000":               {first: 7000, last: 7000},
		":7000-7100":          {first: 7000, last: 7100},
		"[fe80::1%lo]:80-81":  {host: "fe80::1%lo", first: 80, last: 81},
		"127.0.0.1:5000-5010": {host: "127.0.0.1", first: 5000, last: 5010},
	} {
		got, err := parseListen(in)
		if err != nil || got != want {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
}

// TestTimeouts: zero is ten minutes, negative none, and an earlier context wins.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	ctx, cancel := withTimeout(t.Context(), 0)
	defer cancel()
	if at, ok := ctx.Deadline(); !ok || time.Until(at) > 10*time.Minute || time.Until(at) < 9*time.Minute {
		t.Errorf("default deadline %v, %v", at, ok)
	}
	ctx, cancel = withTimeout(t.Context(), -1)
	defer cancel()
	if _, ok := ctx.Deadline(); ok {
		t.Error("a negative timeout set a deadline")
	}
}
