package hostile

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"net"
)

// The start-up messages, as transport/SPEC.md lays them out.
const (
	magic   = "\x89GOCCL\r\n"
	version = 1

	kindHello     = 1
	kindChallenge = 2
	kindProof     = 3
	kindRegister  = 6
	kindTable     = 8

	purposeRegister = 1
	purposeLink     = 2

	authNone   = 0
	authSecret = 1
)

// message frames a payload.
func message(v uint16, kind byte, payload []byte) []byte {
	b := binary.LittleEndian.AppendUint16([]byte(magic), v)
	b = append(b, kind, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	return append(b, payload...)
}

// A hello is what a caller says of itself.
type hello struct {
	purpose, auth, class byte
	from, to, size       uint32
	runID                string
}

func (h hello) payload() []byte {
	b := []byte{h.purpose, h.auth, h.class, 0}
	b = binary.LittleEndian.AppendUint32(b, h.from)
	b = binary.LittleEndian.AppendUint32(b, h.to)
	b = binary.LittleEndian.AppendUint32(b, h.size)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(h.runID)))
	b = append(b, h.runID...)
	b = append(b, make([]byte, 16+8+8)...) // world, group, epoch
	var nonce [32]byte
	rand.Read(nonce[:])
	return append(b, nonce[:]...)
}

func registerHello(t *Target) hello {
	return hello{purpose: purposeRegister, from: pick(t.Size), to: 1<<32 - 1, size: uint32(t.Size), runID: t.RunID}
}

func linkHello(t *Target) hello {
	return hello{purpose: purposeLink, class: byte(1 + pick(3)), from: pick(t.Size), to: pick(t.Size), size: uint32(t.Size), runID: t.RunID}
}

// registration is a payload of REGISTER without options.
func registration() []byte {
	b := make([]byte, 1+16) // flags, host id
	for _, s := range []string{"127.0.0.1:9", "", ""} {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(s)))
		b = append(b, s...)
	}
	return append(b, 0, 0, 0) // no options, not alone
}

// prove goes through a handshake with a secret, up to the sent proof.
func prove(conn net.Conn, h hello, secret []byte) error {
	said := h.payload()
	if _, err := conn.Write(message(version, kindHello, said)); err != nil {
		return err
	}
	kind, answer, err := read(conn)
	if err != nil {
		return err
	}
	if kind != kindChallenge {
		return errors.New("refused")
	}
	mac := hmac.New(sha256.New, secret)
	io.WriteString(mac, "goccl PROOF 1\n")
	mac.Write(said)
	mac.Write(answer)
	_, err = conn.Write(message(version, kindProof, mac.Sum(nil)))
	return err
}

// read returns the other end's next message.
func read(conn net.Conn) (kind byte, payload []byte, err error) {
	var head [16]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.LittleEndian.Uint32(head[12:])
	if string(head[:8]) != magic || n > 1<<20 {
		return 0, nil, errors.New("does not speak goccl")
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(conn, payload)
	return head[10], payload, err
}
