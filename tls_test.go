package goccl

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccl/goccl/internal/testca"
	"github.com/goccl/goccl/transport/tcp"
)

// pemFiles writes a certificate for loopback, its key and its CA.
func pemFiles(t *testing.T, edit func(*x509.Certificate)) (cert, key, ca string) {
	t.Helper()
	authority := testca.New("a CA")
	certPEM, keyPEM := testca.Files(authority.Issue("a rank", []string{"127.0.0.1"}, edit))
	return pemFile(t, "cert.pem", certPEM), pemFile(t, "key.pem", keyPEM), pemFile(t, "ca.pem", authority.PEM())
}

func pemFile(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestLoadTLS: what it loads connects ranks.
func TestLoadTLS(t *testing.T) {
	cert, key, ca := pemFiles(t, nil)
	cfg, err := LoadTLS(cert, key, ca)
	if err != nil {
		t.Fatal(err)
	}
	runRanks(t, netWorld(tcp.Config{TLS: cfg}), 2, func(ctx context.Context, g *ProcessGroup) error { return g.Barrier(ctx) })
	if _, err := LoadTLS(filepath.Join("nowhere", "x.pem"), key, ca); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// TestLoadTLSRefuses checks that an error names the file and what is wrong with it.
func TestLoadTLSRefuses(t *testing.T) {
	cert, key, ca := pemFiles(t, nil)
	_, otherKey, _ := pemFiles(t, nil)
	old, oldKey, _ := pemFiles(t, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	young, youngKey, _ := pemFiles(t, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) })
	client, clientKey, _ := pemFiles(t, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} })
	text, broken := pemFile(t, "text", []byte("hello")), pemFile(t, "broken", []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	for _, c := range []struct {
		cert, key, ca string
		names         string // of a file
		why           string
	}{
		{"/nonexistent/c", key, ca, "/nonexistent/c", "no such file"},
		{cert, "/nonexistent/k", ca, "/nonexistent/k", "no such file"},
		{cert, key, "/nonexistent/ca", "/nonexistent/ca", "no such file"},
		{text, key, ca, text, "holds no certificate in PEM form"},
		{key, key, ca, key, "holds no certificate"},
		{broken, key, ca, broken, "malformed"},
		{cert, otherKey, ca, otherKey, "private key does not match public key"},
		{cert, text, ca, text, "failed to find any PEM data"},
		{cert, key, text, text, "holds no certificate in PEM form"},
		{cert, key, broken, broken, "malformed"},
		{old, oldKey, ca, old, `(subject "CN=a rank") expired on `},
		{young, youngKey, ca, young, "is not valid before"},
		{client, clientKey, ca, client, "must serve both ends"},
	} {
		cfg, err := LoadTLS(c.cert, c.key, c.ca)
		if err == nil || cfg != nil || !strings.Contains(err.Error(), c.names) || !strings.Contains(err.Error(), c.why) {
			t.Errorf("got %v, want %s: %s", err, c.names, c.why)
		}
	}
}

// TestJoinTLS goes the way of a program: Join with a configuration for TLS, on every rank or on all but one.
func TestJoinTLS(t *testing.T) {
	cert, key, ca := pemFiles(t, nil)
	cfg, err := LoadTLS(cert, key, ca)
	if err != nil {
		t.Fatal(err)
	}
	for _, plain := range []bool{false, true} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		errs := make([]error, 2)
		var wg sync.WaitGroup
		for r := range 2 {
			wg.Go(func() {
				c := JoinConfig{Rank: r, Size: 2, Coordinator: ln.Addr().String(), TLS: cfg, Timeout: time.Minute}
				switch {
				case r == 0:
					c.Listener = ln
					if plain {
						c.Timeout = time.Second
					}
				case plain:
					c.TLS = nil
				}
				g, err := Join(t.Context(), c)
				if err == nil {
					err = errors.Join(g.Barrier(t.Context()), g.Close())
				}
				errs[r] = err
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); (err != nil) != plain {
			t.Errorf("%v", err)
		}
		if plain && !strings.Contains(errs[1].Error(), "speaks TLS, the caller has none") {
			t.Errorf("%v", errs[1])
		}
	}
}
