package tcp

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
)

// The kinds of proof.
const (
	authNone   uint8 = 0 // proofs are zero
	authSecret uint8 = 1 // HMAC-SHA-256, keyed with the shared secret
)

// What a proof is for. The two differ, so that nobody can answer a proof with a copy of it.
const (
	labelProof  = "goccl PROOF 1\n"
	labelAccept = "goccl ACCEPT 1\n"
)

// Credentials are what this end of a connection proves itself with, and what it asks of the other end. Nil: nothing.
type credentials struct {
	secret []byte   // nil: none. It is never printed, logged or sent
	tls    *tlsPair // nil: none
}

// guarded tells whether a stranger is kept out: then it does no harm to listen where anybody can call.
func (c *credentials) guarded() bool { return c != nil }

// believes tells whether what a hello says may be acted upon before anything is proved.
func (c *credentials) believes() bool { return c == nil || c.tls != nil }

func (c *credentials) auth() uint8 {
	if c == nil || c.secret == nil {
		return authNone
	}
	return authSecret
}

// proof is what this end sends for label, or expects to get. It covers all that gives the connection its meaning: said and
// answered are the payloads of HELLO and CHALLENGE as they were on the wire, bound what ties it to a TLS connection.
func (c *credentials) proof(label string, said, answered, bound []byte) []byte {
	if c.auth() == authNone {
		return make([]byte, proofSize)
	}
	mac := hmac.New(sha256.New, c.secret)
	io.WriteString(mac, label)
	mac.Write(said)
	mac.Write(answered)
	mac.Write(bound)
	return mac.Sum(nil)
}

// differ says which end has a secret and which has none; nil when both are of one kind.
func (c *credentials) differ(theirs uint8, who, here string) *rejection {
	ours := c.auth()
	switch {
	case theirs == ours:
		return nil
	case theirs == authNone:
		return refuse("%s has no secret, %s asks for one", who, here)
	case theirs == authSecret:
		return refuse("%s has a secret, %s has none", who, here)
	}
	return refuse("%s offers proofs of kind %d, which %s does not know", who, theirs, here)
}

// caller names the rank that a hello claims, as long as nothing is proved.
func (h *hello) caller() string { return fmt.Sprintf("rank %d", h.from) }

// safeSecret is the size in bytes from which on nobody warns of a secret.
const safeSecret = 16

// warnOfSecret tells the user of a secret that can be guessed, and nothing else about it.
func warnOfSecret(log *slog.Logger, secret []byte) {
	if n := len(secret); n > 0 && n < safeSecret {
		log.Warn(fmt.Sprintf("tcp: the secret is shorter than %d bytes: who listens in on a handshake can guess it at leisure; take random ones", safeSecret))
	}
}

// newCredentials checks and copies what a configuration says. Nil stands for none.
func newCredentials(secret []byte, given *tls.Config) (*credentials, error) {
	if secret == nil && given == nil {
		return nil, nil
	}
	if secret != nil && len(secret) == 0 {
		return nil, &ConfigError{Field: "Secret", Reason: "empty: want nil, for none, or something that nobody can guess"}
	}
	c := &credentials{secret: bytes.Clone(secret)}
	if given != nil {
		var err error
		if c.tls, err = newTLS(given); err != nil {
			return nil, err
		}
	}
	return c, nil
}
