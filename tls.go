package goccl

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"time"
)

// LoadTLS makes a [JoinConfig.TLS] from PEM files: this rank's certificate (with those between it and the CA, if any) and its
// key, and the CAs whose certificates the other ranks must have. An error names the file and what is wrong with it: unreadable,
// no PEM, the key of another certificate, a certificate that has expired, is not valid yet, or does not serve both ends of a
// connection, no certificate among the CAs.
//
// A rank's certificate must be for the host name or address that the others dial, unless ServerName is set in the result to a
// name that all certificates are for. With ServerName every certificate must be for that name; without it one that calls gets in with
// any certificate of the CAs, so that they should issue none for other purposes.
func LoadTLS(certFile, keyFile, caFile string) (*tls.Config, error) {
	cert, err := loadPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("goccl: TLS: %w", err)
	}
	if err := checkLeaf(cert.Leaf, time.Now()); err != nil {
		return nil, fmt.Errorf("goccl: TLS: %s: %w", certFile, err)
	}
	cas, err := loadCAs(caFile)
	if err != nil {
		return nil, fmt.Errorf("goccl: TLS: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: cas, ClientCAs: cas, MinVersion: tls.VersionTLS13}, nil
}

func loadPair(certFile, keyFile string) (tls.Certificate, error) {
	certPEM, err := os.ReadFile(certFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	keyPEM, err := os.ReadFile(keyFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	if err := checkPEM(certPEM); err != nil {
		return tls.Certificate{}, fmt.Errorf("%s: %w", certFile, err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil { // about the key: the certificate was looked at
		return tls.Certificate{}, fmt.Errorf("%s, the key of %s: %w", keyFile, certFile, err)
	}
	return pair, nil
}

// checkPEM wants certificates that can be read.
func checkPEM(data []byte) error {
	n := 0
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return err
		}
		n++
	}
	if n == 0 {
		return errors.New("holds no certificate in PEM form")
	}
	return nil
}

func checkLeaf(c *x509.Certificate, now time.Time) error {
	switch {
	case now.After(c.NotAfter):
		return fmt.Errorf("the certificate (subject %q) expired on %s", c.Subject, c.NotAfter.Format(time.RFC3339))
	case now.Before(c.NotBefore):
		return fmt.Errorf("the certificate (subject %q) is not valid before %s", c.Subject, c.NotBefore.Format(time.RFC3339))
	case !serves(c, x509.ExtKeyUsageServerAuth) || !serves(c, x509.ExtKeyUsageClientAuth):
		return fmt.Errorf("the certificate (subject %q) must serve both ends of a connection: extended key usage serverAuth and clientAuth", c.Subject)
	}
	return nil
}

// serves tells whether a certificate may be used so; one that says nothing may be used for all.
func serves(c *x509.Certificate, usage x509.ExtKeyUsage) bool {
	for _, u := range c.ExtKeyUsage {
		if u == usage || u == x509.ExtKeyUsageAny {
			return true
		}
	}
	return len(c.ExtKeyUsage) == 0 && len(c.UnknownExtKeyUsage) == 0
}

func loadCAs(caFile string) (*x509.CertPool, error) {
	data, err := os.ReadFile(caFile)
	if err != nil {
		return nil, err
	}
	if err := checkPEM(data); err != nil {
		return nil, fmt.Errorf("%s: %w", caFile, err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(data)
	return pool, nil
}
