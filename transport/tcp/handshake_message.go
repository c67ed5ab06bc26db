package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Every message of rendezvous and handshake is a 16-byte header and a payload, little-endian; SPEC.md lists them field by
// field. The header, the start of hello and all of reject keep their places in every version, so that two builds that differ
// can still tell each other so.
const (
	magic      = "\x89GOCCL\r\n" // no text protocol and no TLS record begins like this
	version    = 1
	headerSize = 16
)

type kind uint8

const (
	kindHello kind = 1 + iota
	kindChallenge
	kindProof
	kindAccept
	kindReject
	kindRegister
	kindWaiting
	kindTable
	kindResult
	kindVerdict
	kindLobby
	kindAdmit
	kindRedirect
)

// maxPayload bounds what a peer may announce; readPayload grows only as bytes arrive, so that even these sizes are not
// allocated on a stranger's word.
var maxPayload = [...]int{
	kindHello:     512,
	kindChallenge: 64,
	kindProof:     proofSize,
	kindAccept:    proofSize,
	kindReject:    2 + 2 + maxText,
	kindRegister:  64 << 10,
	kindWaiting:   64 << 10,
	kindTable:     1 << 20,
	kindResult:    64 << 10,
	kindVerdict:   64 << 10,
	kindLobby:     64,
	kindAdmit:     1 << 20,
	kindRedirect:  512 << 10,
}

// MaxSize is the largest world: lists of its ranks, and the table of addresses, fit the messages of the start.
const MaxSize = 8192

const (
	maxText  = 4 << 10 // an error in words
	maxRunID = 128
)

var (
	errStranger  = errors.New("does not speak goccl")
	errSpeaksTLS = fmt.Errorf("%w: it speaks TLS, this end has none", errStranger)
)

// A versionError says that the other end speaks another version of the start-up protocol.
type versionError struct{ theirs uint16 }

func (e *versionError) Error() string {
	return fmt.Sprintf("versions differ: it speaks start-up protocol %d, this rank %d", e.theirs, version)
}

type header struct {
	version uint16
	kind    kind
	length  int
}

// parseHeader refuses what is not goccl. A header of another version is returned as it is: the caller decides what it may
// still read of the message.
func parseHeader(p []byte) (header, error) {
	if string(p[:8]) != magic {
		return header{}, errStranger
	}
	h := header{version: binary.LittleEndian.Uint16(p[8:]), kind: kind(p[10])}
	length := binary.LittleEndian.Uint32(p[12:])
	if h.kind == 0 || int(h.kind) >= len(maxPayload) || p[11] != 0 {
		if h.version != version {
			return h, &versionError{h.version}
		}
		return header{}, fmt.Errorf("message kind %d unknown", h.kind)
	}
	if int64(length) > int64(maxPayload[h.kind]) {
		return header{}, fmt.Errorf("message of kind %d announces %d bytes, at most %d allowed", h.kind, length, maxPayload[h.kind])
	}
	h.length = int(length)
	return h, nil
}

// message frames a payload.
func message(k kind, payload []byte) []byte {
	return messageOf(version, k, payload)
}

func messageOf(v uint16, k kind, payload []byte) []byte {
	b := make([]byte, 0, headerSize+len(payload))
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint16(b, v)
	b = append(b, byte(k), 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	return append(b, payload...)
}

// readMessage reads exactly one message and nothing behind it.
func readMessage(r io.Reader) (header, []byte, error) {
	var head [headerSize]byte
	if err := readHead(r, head[:]); err != nil {
		return header{}, nil, err
	}
	h, err := parseHeader(head[:])
	if err != nil {
		return h, nil, err
	}
	p, err := readPayload(r, h.length)
	return h, p, err
}

// readHead looks at the magic number before it waits for the rest, so that a short stranger is recognised at once.
func readHead(r io.Reader, head []byte) error {
	n, err := io.ReadAtLeast(r, head, len(magic))
	if err != nil {
		return err
	}
	if string(head[:len(magic)]) != magic {
		if record := head[0]; head[1] == 3 && (record == 21 || record == 22) { // an alert, or a client that says hello
			return errSpeaksTLS
		}
		return errStranger
	}
	_, err = io.ReadFull(r, head[n:])
	return noEOF(err)
}

func readPayload(r io.Reader, n int) ([]byte, error) {
	const trusted = 4 << 10
	p := make([]byte, min(n, trusted))
	if _, err := io.ReadFull(r, p); err != nil {
		return nil, noEOF(err)
	}
	for len(p) < n {
		grown := make([]byte, min(n, 4*len(p)))
		have := copy(grown, p)
		if _, err := io.ReadFull(r, grown[have:]); err != nil {
			return nil, noEOF(err)
		}
		p = grown
	}
	return p, nil
}

// noEOF keeps io.EOF for connections that end between messages.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// expect reads one message of a given kind and this version.
func expect(r io.Reader, k kind) ([]byte, error) {
	h, p, err := readMessage(r)
	switch {
	case err != nil:
		return nil, err
	case h.version != version:
		return nil, &versionError{h.version}
	case h.kind != k:
		return nil, fmt.Errorf("message kind %d came where %d was expected", h.kind, k)
	}
	return p, nil
}
