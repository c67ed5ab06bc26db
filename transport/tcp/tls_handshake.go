package tcp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"
)

// A tlsError is a TLS handshake that would fail again the same way.
type tlsError struct {
	text   string
	err    error
	theirs bool // the other end ended it
}

func (e *tlsError) Error() string { return e.text }
func (e *tlsError) Unwrap() error { return e.err }

// secure takes a dialled connection through the TLS handshake, where this end has TLS. host is what the acceptor's certificate
// must be for, unless the configuration says so itself. The caller closes conn after an error.
func (c *credentials) secure(ctx context.Context, conn net.Conn, host string) (net.Conn, error) {
	if c == nil || c.tls == nil {
		return conn, nil
	}
	sock, err := socketOf(conn)
	if err != nil {
		return nil, err
	}
	stop := interruptible(ctx, conn, handshakeTimeout)
	defer stop()
	s := newTLSConn(sock, func(w net.Conn) *tls.Conn { return tls.Client(w, c.tls.clientFor(host)) })
	if err := s.tls.Handshake(); err != nil {
		return nil, c.dialTLSError(err)
	}
	s.wire.sealing = true
	return s, nil
}

// welcome is secure for an accepted connection. The error is for the log, and tells whether the caller may be a rank whose own
// errors should say more than that the connection ended.
func (c *credentials) welcome(conn net.Conn) (net.Conn, error) {
	if c == nil || c.tls == nil {
		return conn, nil
	}
	sock, err := socketOf(conn)
	if err != nil {
		return nil, err
	}
	s := newTLSConn(sock, func(w net.Conn) *tls.Conn { return tls.Server(w, c.tls.server) })
	if err := s.tls.Handshake(); err != nil {
		return nil, c.turnedAwayTLS(conn, err)
	}
	s.wire.sealing = true
	return s, nil
}

// turnedAwayTLS lets a caller hear why it is refused, if it is to hear anything, and returns what to log.
func (c *credentials) turnedAwayTLS(conn net.Conn, err error) error {
	var plain tls.RecordHeaderError
	switch {
	case errors.As(err, &plain) && string(plain.RecordHeader[:]) == magic[:len(plain.RecordHeader)]:
		return reject(conn, refuse("%s speaks TLS, the caller has none", conn.LocalAddr()))
	case errors.As(err, &plain):
		return errStranger
	case errors.As(err, new(*tls.CertificateVerificationError)):
		hangUp(conn, time.Second) // so that it gets the alert
		return &tlsError{text: fmt.Sprintf("TLS: the caller's certificate is refused: %v", verification(err)), err: err}
	case isAlert(err):
		return &tlsError{text: c.tls.alert("caller", "end", err), err: err, theirs: true}
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		hangUp(conn, time.Second)
	}
	return fmt.Errorf("TLS: %w", err)
}

// dialTLSError says which side failed which check.
func (c *credentials) dialTLSError(err error) error {
	var plain tls.RecordHeaderError
	switch {
	case errors.As(err, &plain) && string(plain.RecordHeader[:]) == magic[:len(plain.RecordHeader)]:
		return &tlsError{text: "the other end does not speak TLS, this rank does", err: err}
	case errors.As(err, &plain):
		return &tlsError{text: fmt.Sprintf("does not speak TLS: it begins with %q", plain.RecordHeader[:]), err: fmt.Errorf("%w: %w", errStranger, err)}
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return &tlsError{text: fmt.Sprintf("TLS: this rank refuses the other end's certificate: %v", verification(err)), err: err}
	case isAlert(err):
		return &tlsError{text: c.tls.alert("other end", "rank", err), err: err, theirs: true}
	}
	return fmt.Errorf("TLS handshake: %w", err)
}

// refusedTLS turns a first read that brings an alert into words: in TLS 1.3 the dialler is done before the acceptor has looked
// at its certificate.
func (c *credentials) refusedTLS(err error) error {
	if c == nil || c.tls == nil || !isAlert(err) {
		return err
	}
	return &tlsError{text: c.tls.alert("other end", "rank", err), err: err, theirs: true}
}

// alert puts the word with which the other end, who, has ended a handshake with this one: it names this end's certificate, which it
// is nearly always about.
func (p *tlsPair) alert(who, here string, err error) string {
	why := alertOf(err)
	if !strings.Contains(why.Error(), "certificate") {
		return fmt.Sprintf("TLS: the %s ended the handshake: %v", who, why)
	}
	return fmt.Sprintf("TLS: the %s refuses this %s's certificate%s: %v", who, here, p.own(), why)
}

// isAlert tells whether err is the other end's word and not this one's.
func isAlert(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}

func alertOf(err error) error {
	var op *net.OpError
	errors.As(err, &op)
	return op.Err
}

// verification adds to the error of a certificate whose it is, who issued it and until when it holds.
func verification(err error) error {
	var v *tls.CertificateVerificationError
	if !errors.As(err, &v) || len(v.UnverifiedCertificates) == 0 {
		return err
	}
	leaf := v.UnverifiedCertificates[0]
	return fmt.Errorf("%s (%s)", clean(v.Err.Error(), maxText), certificate(leaf)) // the other end chose some of these words
}

// own says which certificate this end shows, where that is known, for the middle of a sentence.
func (p *tlsPair) own() string {
	if len(p.client.Certificates) == 0 || len(p.client.Certificates[0].Certificate) == 0 {
		return ""
	}
	leaf, err := x509.ParseCertificate(p.client.Certificates[0].Certificate[0])
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" (%s)", certificate(leaf))
}

func certificate(c *x509.Certificate) string {
	return fmt.Sprintf("subject %q, issuer %q, valid from %s to %s", c.Subject, c.Issuer, c.NotBefore.Format(time.DateOnly), c.NotAfter.Format(time.DateOnly))
}

func socketOf(conn net.Conn) (socket, error) {
	s, ok := conn.(socket)
	if !ok {
		return nil, fmt.Errorf("BUG: tcp: connection of type %T", conn)
	}
	return s, nil
}
