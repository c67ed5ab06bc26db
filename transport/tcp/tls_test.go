package tcp

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccl/goccl/internal/hostile"
	"github.com/goccl/goccl/internal/testca"
	"github.com/goccl/goccl/transport"
)

var testCA = testca.New("the test's CA")

func withTLS(cfgs []Config) []Config {
	for r := range cfgs {
		cfgs[r].TLS = testCA.Loopback("a rank")
	}
	return cfgs
}

// TestTLS opens every kind of connection under TLS, and looks at the wire: nothing of ours is to be read there.
func TestTLS(t *testing.T) {
	t.Parallel()
	for _, secret := range [][]byte{nil, theSecret} {
		cfgs := withTLS(world(t, 3))
		ln := listener(t)
		tap := hostile.NewTap(ln, cfgs[0].Listener.Addr().String())
		defer tap.Close()
		for r := range cfgs {
			cfgs[r].RunID, cfgs[r].Secret = "a run of the test", secret
		}
		cfgs[2].Coordinator = ln.Addr().String()
		meshes, errs := startAll(t, cfgs)
		noErrors(t, errs)
		for _, class := range []transport.Class{transport.PointToPoint, transport.Collective} {
			conn, err := meshes[2].dial(t.Context(), 1, class, 77)
			if err != nil {
				t.Fatal(err)
			}
			state := conn.(*tlsConn).tls.ConnectionState()
			if state.Version != tls.VersionTLS13 || len(state.VerifiedChains) == 0 || state.NegotiatedProtocol != alpn || state.DidResume {
				t.Errorf("%v: %+v", class, state)
			}
			conn.Close()
		}
		recorded := bytes.Join(tap.Recorded(), nil)
		if len(recorded) < 500 || bytes.Contains(recorded, []byte(magic)) || bytes.Contains(recorded, []byte("a run of")) {
			t.Errorf("on the wire: %q", recorded)
		}
	}
}

// TestTLSRefused has rank 1, or the coordinator, hold what the other end must refuse, and reads what both have to say: rank 1
// in its error, rank 0 in its log.
func TestTLSRefused(t *testing.T) {
	t.Parallel()
	other := testca.New("another CA")
	cert := func(ca *testca.CA, edit func(*x509.Certificate), hosts ...string) *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{ca.Issue("the bad one", hosts, edit)}, RootCAs: testCA.Pool()}
	}
	old := func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }
	young := func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) }
	serverOnly := func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] }
	clientOnly := func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[1:] }
	here := "127.0.0.1"
	const refusesUs = `TLS: the caller refuses this end's certificate (subject "CN=the bad one"`
	var all sync.WaitGroup
	for _, test := range []struct {
		name       string
		rank0      *tls.Config
		rank1      *tls.Config
		hears, log string
	}{
		{"caller of another CA", nil, cert(other, nil, here),
			`the other end refuses this rank's certificate (subject "CN=the bad one", issuer "CN=another CA", valid from `, `the caller's certificate is refused: x509: certificate signed by unknown authority`},
		{"expired caller", nil, cert(testCA, old, here), "tls: expired certificate", "certificate has expired or is not yet valid"},
		{"caller too early", nil, cert(testCA, young, here), "the other end refuses this rank's certificate", "is before"},
		{"caller for servers only", nil, cert(testCA, serverOnly, here), "tls: bad certificate", "incompatible key usage"},
		{"coordinator of another CA", cert(other, nil, here), nil,
			"this rank refuses the other end's certificate: x509: certificate signed by unknown authority", refusesUs + `, issuer "CN=another CA"`},
		{"expired coordinator", cert(testCA, old, here), nil, "is after", refusesUs},
		{"coordinator for clients only", cert(testCA, clientOnly, here), nil, "incompatible key usage", refusesUs},
		{"coordinator of another name", cert(testCA, nil, "10.9.8.7"), nil, "x509: certificate is valid for 10.9.8.7, not 127.0.0.1 (subject", refusesUs},
		{"plain caller", nil, &tls.Config{}, "refused: 127.0.0.1:", "speaks TLS, the caller has none"},
		{"plain coordinator", &tls.Config{}, nil, "the other end does not speak TLS, this rank does", "has no TLS, the caller speaks it"},
	} {
		all.Go(func() {
			var log lines
			cfgs := withTLS(world(t, 2))
			for r, c := range []*tls.Config{test.rank0, test.rank1} {
				switch {
				case c == nil:
				case len(c.Certificates) == 0:
					cfgs[r].TLS = nil
				default:
					cfgs[r].TLS = c
				}
			}
			cfgs[0].Timeout, cfgs[0].Logger, cfgs[1].Timeout = 1500*time.Millisecond, logger(&log), time.Minute
			_, errs := startAll(t, cfgs)
			wantAll(t, errs[1:], test.hears)
			how := " was refused: "
			if strings.HasPrefix(test.log, refusesUs) {
				how = " turned away: "
			}
			wantAll(t, errs[:1], "missing: rank 1; a caller from 127.0.0.1:", how, test.log)
			if said := strings.ReplaceAll(log.String(), `\"`, `"`); !strings.Contains(said, test.log) {
				t.Errorf("%s: log lacks %q:\n%s", test.name, test.log, log.String())
			}
		})
	}
	all.Wait()
}

// TestTLSNames: a name that all certificates share serves where addresses are not known before.
func TestTLSNames(t *testing.T) {
	t.Parallel()
	cfgs := world(t, 3)
	for r := range cfgs {
		cfgs[r].TLS = &tls.Config{
			Certificates: []tls.Certificate{testCA.Issue("a rank", []string{"ranks.job"}, nil)}, ClientCAs: testCA.Pool(), ServerName: "ranks.job",
		}
	}
	_, errs := startAll(t, cfgs)
	noErrors(t, errs)
}

// TestTLSNameOfCaller: a certificate of the CA for something else does not do, on the end that calls either.
func TestTLSNameOfCaller(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string // that the caller's certificate is for
		host  string // that it asks for
		hears string // "": it gets in
	}{
		{"other.job", "ranks.job", "the other end refuses this rank's certificate (subject \"CN=the caller\""},
		{"ranks.job", "ranks.job", ""},
	} {
		cfgs := world(t, 2)
		for r, cert := range []tls.Certificate{testCA.Issue("a rank", []string{"ranks.job"}, nil), testCA.Issue("the caller", []string{test.name}, nil)} {
			cfgs[r].TLS = &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: testCA.Pool(), ServerName: test.host}
		}
		cfgs[0].Timeout = time.Second
		_, errs := startAll(t, cfgs)
		if test.hears == "" {
			noErrors(t, errs)
			continue
		}
		wantAll(t, errs[1:], test.hears)
		wantAll(t, errs[:1], "missing: rank 1; a caller from 127.0.0.1:", "x509: certificate is valid for other.job, not ranks.job (subject \"CN=the caller\"")
	}
}

// TestTLSOwnVerification: what the user's configuration verifies is verified beside the name, and instead of it where that is asked.
func TestTLSOwnVerification(t *testing.T) {
	t.Parallel()
	state := tls.ConnectionState{PeerCertificates: []*x509.Certificate{testCA.Issue("a rank", []string{"ranks.job"}, nil).Leaf}}
	given := func() *tls.Config {
		cfg := testCA.Loopback("a rank")
		cfg.VerifyConnection = func(tls.ConnectionState) error { return errStranger }
		return cfg
	}
	for _, test := range []struct {
		edit func(*tls.Config)
		want string
	}{
		{func(c *tls.Config) { c.ServerName = "ranks.job" }, errStranger.Error()},
		{func(c *tls.Config) { c.ServerName = "other.job" }, "valid for ranks.job, not other.job"},
		{func(c *tls.Config) { c.ServerName, c.InsecureSkipVerify = "other.job", true }, errStranger.Error()},
		{func(*tls.Config) {}, errStranger.Error()},
		{func(c *tls.Config) { c.ServerName, c.VerifyConnection = "ranks.job", nil }, ""},
	} {
		cfg := given()
		test.edit(cfg)
		pair, err := newTLS(cfg)
		if err != nil {
			t.Fatal(err)
		}
		err = pair.server.VerifyConnection(state)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%+v: %v, want %q", cfg.ServerName, err, test.want)
		}
	}
}

// TestMiddleman has somebody with a certificate of his own, and no secret, pass everything on between the ends of two TLS
// connections: the proofs do not hold.
func TestMiddleman(t *testing.T) {
	t.Parallel()
	cfgs := withTLS(withSecret(world(t, 2)))
	ln := listener(t)
	defer ln.Close()
	his := testCA.Loopback("the middleman")
	his.ClientCAs, his.ClientAuth, his.NextProtos = his.RootCAs, tls.RequireAndVerifyClientCert, []string{alpn}
	his.ServerName = "127.0.0.1"
	go func() {
		near, err := ln.Accept()
		if err != nil {
			return
		}
		far, err := tls.Dial("tcp", cfgs[0].Listener.Addr().String(), his)
		if err != nil {
			t.Error(err)
			return
		}
		defer far.Close()
		a := tls.Server(near, his)
		defer a.Close()
		done := make(chan struct{})
		go func() { relayMessages(a, far); close(done) }()
		relayMessages(far, a)
		<-done
	}()
	cfgs[0].Timeout = time.Second
	cfgs[1].Coordinator = ln.Addr().String()
	_, errs := startAll(t, cfgs)
	wantAll(t, errs[1:], "the secrets differ")
	wantAll(t, errs[:1], "missing: rank 1", "the secrets differ")
}

func relayMessages(from, to net.Conn) {
	for {
		h, p, err := readMessage(from)
		if err != nil {
			to.Close()
			return
		}
		to.Write(messageOf(h.version, h.kind, p))
	}
}

// TestVersionUnderTLS: a certified caller is believed when it says that it speaks another version.
func TestVersionUnderTLS(t *testing.T) {
	t.Parallel()
	cfgs := withTLS(withSecret(world(t, 2)))
	go func() {
		cfg := testCA.Loopback("newer")
		cfg.ServerName, cfg.NextProtos = "127.0.0.1", []string{alpn}
		conn, err := tls.Dial("tcp", cfgs[1].Coordinator, cfg)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		h := hello{purpose: purposeRegister, from: 1, to: nobody, size: 2}
		conn.Write(messageOf(9, kindHello, h.payload()))
		readMessage(conn)
	}()
	_, errs := startAll(t, cfgs[:1])
	wantAll(t, errs, "versions differ: rank 1 (127.0.0.1:")
}

// TestTLSCallerLeaves: neither end hangs when the other goes in the middle of the TLS handshake.
func TestTLSCallerLeaves(t *testing.T) {
	t.Parallel()
	cred, err := newCredentials(nil, testCA.Loopback("a rank"))
	if err != nil {
		t.Fatal(err)
	}
	ln := listener(t)
	defer ln.Close()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			conn.Read(make([]byte, 100))
			conn.Close()
		}
	}()
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err = cred.secure(t.Context(), conn, "127.0.0.1"); err == nil || lasting(err) {
		t.Errorf("%v", err)
	}
	if conn, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = cred.secure(ctx, conn, "127.0.0.1"); err == nil {
		t.Error("a cancelled handshake went through")
	}
}
