// Package testca makes certificates for tests of TLS.
package testca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"time"
)

// A CA issues certificates.
type CA struct {
	Cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes a CA of that name. Like all here, it panics when the machine has no randomness: nothing else can go wrong.
func New(name string) *CA {
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	key := newKey()
	return &CA{sign(template, template, key, key), key}
}

// Issue makes a certificate for hosts, names or addresses, that serves both ends of a connection. edit, when not nil, changes
// the template.
func (ca *CA) Issue(name string, hosts []string, edit func(*x509.Certificate)) tls.Certificate {
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: name},
		NotBefore: ca.Cert.NotBefore, NotAfter: ca.Cert.NotAfter,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	if edit != nil {
		edit(template)
	}
	key := newKey()
	leaf := sign(template, ca.Cert, key, ca.key)
	return tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
}

// Pool holds the CA alone.
func (ca *CA) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(ca.Cert)
	return p
}

// Loopback is a configuration for ranks that meet on loopback, with a certificate of its own.
func (ca *CA) Loopback(name string) *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{ca.Issue(name, []string{"127.0.0.1", "::1", "localhost"}, nil)},
		RootCAs:      ca.Pool(),
	}
}

// PEM is the CA's certificate as files hold it.
func (ca *CA) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Cert.Raw})
}

// Files are a certificate and its key as files hold them.
func Files(c tls.Certificate) (cert, key []byte) {
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	must(err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	return key
}

func sign(template, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) *x509.Certificate {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	must(err)
	cert, err := x509.ParseCertificate(der)
	must(err)
	return cert
}

func serial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	must(err)
	return n
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
