package tcp

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"
)

// alpn keeps a connection that was meant for another protocol with the same certificates from being taken for one of ours.
const alpn = "goccl"

// exporterLabel names the keying material that ties a proof to the TLS connection it is sent through.
const exporterLabel = "EXPORTER-goccl-handshake"

// A tlsPair is what this end needs to answer and to dial.
type tlsPair struct {
	server, client *tls.Config
}

// newTLS makes the caller's configuration one for mutual TLS 1.3, in copies.
func newTLS(given *tls.Config) (*tlsPair, error) {
	if reason := unfit(given); reason != "" {
		return nil, &ConfigError{Field: "TLS", Reason: reason}
	}
	s := given.Clone()
	s.MinVersion = tls.VersionTLS13
	s.NextProtos = []string{alpn}
	s.DynamicRecordSizingDisabled = true // it would cut the first MiB into packets
	s.SessionTicketsDisabled = true      // a resumed session would skip the certificates
	s.ClientSessionCache = nil
	s.ClientAuth = tls.RequireAndVerifyClientCert
	if s.ClientCAs == nil {
		s.ClientCAs = s.RootCAs
	}
	if s.RootCAs == nil {
		s.RootCAs = s.ClientCAs
	}
	c := s.Clone()
	if c.GetClientCertificate == nil {
		// Left to itself crypto/tls sends none where the acceptor seems not to trust it, and the acceptor could not say why.
		own := &c.Certificates[0]
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own, nil }
	}
	if s.ServerName != "" && !s.InsecureSkipVerify {
		s.VerifyConnection = namedCaller(s.ServerName, s.VerifyConnection)
	}
	return &tlsPair{s, c}, nil
}

// namedCaller asks of callers' certificates what a dialler asks of acceptors': that they are for name. crypto/tls, left to itself,
// takes a caller with any certificate of the CA, and that may have issued many for other purposes.
func namedCaller(name string, then func(tls.ConnectionState) error) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		if err := state.PeerCertificates[0].VerifyHostname(name); err != nil {
			return &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates, Err: err}
		}
		if then != nil {
			return then(state)
		}
		return nil
	}
}

// unfit says why a configuration cannot serve for mutual TLS, "" when it can.
func unfit(c *tls.Config) string {
	switch {
	case c.GetConfigForClient != nil:
		return "GetConfigForClient is set: one configuration is for all callers"
	case len(c.Certificates) == 0 && (c.GetCertificate == nil || c.GetClientCertificate == nil):
		return "no certificate: each end proves itself with one, so set Certificates, or both GetCertificate and GetClientCertificate"
	case c.RootCAs == nil && c.ClientCAs == nil:
		return "no CA pool: set RootCAs, ClientCAs or both; those of the system would let in everybody who has a certificate"
	case c.InsecureSkipVerify && c.VerifyConnection == nil && c.VerifyPeerCertificate == nil:
		return "InsecureSkipVerify without VerifyConnection or VerifyPeerCertificate would take every acceptor for a rank"
	case c.MaxVersion != 0 && c.MaxVersion < tls.VersionTLS13:
		return "MaxVersion is below TLS 1.3"
	}
	return ""
}

// clientFor is the configuration to dial host with.
func (p *tlsPair) clientFor(host string) *tls.Config {
	if p.client.ServerName != "" {
		return p.client
	}
	c := p.client.Clone()
	c.ServerName, _, _ = strings.Cut(host, "%") // a zone means something on this host only
	return c
}

// binding is the keying material of conn's TLS connection, empty without one. It is the same on both ends, and on no other
// connection: a proof that covers it cannot be passed on by somebody in the middle.
func binding(conn net.Conn) ([]byte, error) {
	c, ok := conn.(*tlsConn)
	if !ok {
		return nil, nil
	}
	state := c.tls.ConnectionState()
	if !state.HandshakeComplete {
		return nil, errors.New("BUG: tcp: proof before the TLS handshake is complete")
	}
	return state.ExportKeyingMaterial(exporterLabel, nil, 32)
}
