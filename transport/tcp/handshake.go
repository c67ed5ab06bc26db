package tcp

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/goccl/goccl/transport"
)

// A handshake is HELLO → CHALLENGE → PROOF → ACCEPT or REJECT, on every connection. The dialler proves first. Both nonces and
// everything that gives the connection its meaning are in HELLO and CHALLENGE, over which a proof is computed.
const (
	nonceSize = 32
	proofSize = 32

	// handshakeTimeout drops an accepted connection that has not proved itself, and a dialled one that does not answer.
	handshakeTimeout = 10 * time.Second
)

type purpose uint8

const (
	purposeRegister purpose = 1 + iota // a rank meets the coordinator
	purposeLink                        // a rank opens a stream to another
	purposeCallOff                     // a rank tells another that the next epoch comes to nothing
)

// at names the end that a dialler of this purpose has reached. Where the coordinator is, everybody knows.
func (p purpose) at(addr string) string {
	if p == purposeRegister {
		return "the coordinator"
	}
	return "the rank at " + addr
}

// role says who answers.
type role uint8

const (
	roleRank    role = 1 + iota // a rank; rank 0 among them may be the coordinator as well
	roleApart                   // a coordinator that is no rank
	roleRunning                 // either, of a run that has begun: who registers waits to be admitted, or is sent on
)

// nobody stands for hello.to when a rank registers: it does not know who coordinates.
const nobody = 1<<32 - 1

// hello is what the dialler says about itself and about the connection it wants. The fields up to runID keep their places
// in all versions.
type hello struct {
	purpose  purpose
	auth     uint8
	class    transport.Class
	from, to uint32
	size     uint32
	runID    string
	world    [16]byte // drawn by the coordinator for each start: a leftover of an earlier one is refused; zero when registering
	group    uint64
	epoch    uint64
	nonce    [nonceSize]byte
}

func (h *hello) payload() []byte {
	b := []byte{byte(h.purpose), h.auth, byte(h.class), 0}
	b = binary.LittleEndian.AppendUint32(b, h.from)
	b = binary.LittleEndian.AppendUint32(b, h.to)
	b = binary.LittleEndian.AppendUint32(b, h.size)
	b = appendRaw(b, h.runID)
	b = append(b, h.world[:]...)
	b = binary.LittleEndian.AppendUint64(b, h.group)
	b = binary.LittleEndian.AppendUint64(b, h.epoch)
	return append(b, h.nonce[:]...)
}

// decodeHello reads a hello of this version entirely, one of another version up to its run id.
func decodeHello(v uint16, p []byte) (*hello, error) {
	d := &decoder{p: p}
	h := &hello{purpose: purpose(d.u8()), auth: d.u8(), class: transport.Class(d.u8())}
	d.zero()
	h.from, h.to, h.size = d.u32(), d.u32(), d.u32()
	h.runID = d.raw(maxRunID)
	if v != version {
		if d.bad {
			h = nil
		}
		return h, &versionError{v}
	}
	copy(h.world[:], d.bytes(len(h.world)))
	h.group, h.epoch = d.u64(), d.u64()
	copy(h.nonce[:], d.bytes(nonceSize))
	return h, d.end("hello")
}

type challenge struct {
	auth  uint8
	role  role
	nonce [nonceSize]byte
}

func (c *challenge) payload() []byte {
	return append([]byte{c.auth, byte(c.role)}, c.nonce[:]...)
}

func decodeChallenge(p []byte) (*challenge, error) {
	d := &decoder{p: p}
	c := &challenge{auth: d.u8(), role: role(d.u8())}
	copy(c.nonce[:], d.bytes(nonceSize))
	return c, d.end("challenge")
}

// A rejection is a refusal in words.
type rejection struct {
	code rejectCode
	text string
}

type rejectCode uint16

const (
	rejectFinal   rejectCode = 1 + iota // trying again will not help
	rejectBusy                          // later, perhaps
	rejectVersion                       // the versions differ
	rejectLeft                          // the rank was in that world and is no more
	rejectTaken                         // another process is that rank
)

func (r *rejection) Error() string { return "refused: " + r.text }

func refuse(format string, args ...any) *rejection {
	return &rejection{code: rejectFinal, text: fmt.Sprintf(format, args...)}
}

func (r *rejection) payload() []byte {
	return appendText(binary.LittleEndian.AppendUint16(nil, uint16(r.code)), r.text, maxText)
}

func decodeRejection(p []byte) (*rejection, error) {
	d := &decoder{p: p}
	r := &rejection{code: rejectCode(d.u16()), text: d.text(maxText)}
	return r, d.end("reject")
}

// introduce takes a dialled connection through TLS, where there is, and the handshake, and returns the one to go on with; after
// an error conn is closed. host is what was dialled, as people write it. meet, when not nil, looks at who answered before anything is proved. A rejection is a *rejection, another version a
// *versionError; any other error may pass.
func (c *credentials) introduce(ctx context.Context, conn net.Conn, host string, h *hello, meet func(role) error) (net.Conn, error) {
	secured, err := c.secure(ctx, conn, host)
	if err == nil {
		err = c.prove(ctx, secured, h, meet)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return secured, nil
}

func (c *credentials) prove(ctx context.Context, conn net.Conn, h *hello, meet func(role) error) error {
	stop := interruptible(ctx, conn, handshakeTimeout)
	defer func() { stop() }()
	h.auth = c.auth()
	rand.Read(h.nonce[:])
	said := h.payload()
	bound, err := binding(conn)
	if err != nil {
		return err
	}
	if _, err := conn.Write(message(kindHello, said)); err != nil {
		return err
	}
	answered, err := answerTo(conn, kindChallenge)
	if err != nil {
		return c.refusedTLS(err)
	}
	ch, err := decodeChallenge(answered)
	if err != nil {
		return err
	}
	if r := c.differ(ch.auth, "the other end", h.caller()); r != nil {
		return r
	}
	if meet != nil {
		if err := meet(ch.role); err != nil {
			return err
		}
	}
	// From here on the other end may count the connection as open, so only the context limits the wait: giving up and dialling
	// again would leave it with a dead one.
	stop()
	stop = interruptible(ctx, conn, 0)
	if _, err := conn.Write(message(kindProof, c.proof(labelProof, said, answered, bound))); err != nil {
		return err
	}
	p, err := answerTo(conn, kindAccept)
	if err == nil && !hmac.Equal(p, c.proof(labelAccept, said, answered, bound)) {
		err = refuse("the other end takes this rank's proof but gives none of its own: it does not have the secret")
	}
	return err
}

// answerTo reads the acceptor's next message; a reject becomes the error.
func answerTo(conn net.Conn, want kind) ([]byte, error) {
	h, p, err := readMessage(conn)
	switch {
	case err != nil:
		return nil, err
	case h.kind == kindReject:
		r, err := decodeRejection(p)
		switch {
		case err != nil:
			return nil, err
		case h.version != version:
			return nil, fmt.Errorf("%w: %w", &versionError{h.version}, r)
		}
		return nil, r
	case h.version != version:
		return nil, &versionError{h.version}
	case h.kind != want:
		return nil, fmt.Errorf("message kind %d came where %d was expected", h.kind, want)
	}
	return p, nil
}

// A guest is a dialler that has proved itself.
type guest struct {
	*hello
	accept []byte // the payload of its ACCEPT
}

// answer takes an accepted connection up to its proof. The caller sends ACCEPT or REJECT. With a *rejection or a *versionError
// comes as much of the hello as could be read, perhaps nothing; nothing in it is proved.
func (c *credentials) answer(conn net.Conn, as role) (guest, error) {
	head, said, err := readMessage(conn)
	if errors.Is(err, errSpeaksTLS) {
		return guest{}, refuse("%s has no TLS, the caller speaks it", conn.LocalAddr())
	}
	if err != nil {
		return guest{}, err
	}
	if head.kind != kindHello {
		return guest{}, fmt.Errorf("message kind %d came where a hello was expected", head.kind)
	}
	h, err := decodeHello(head.version, said)
	if err != nil {
		return guest{hello: h}, err
	}
	here := "the other end"
	if a := conn.LocalAddr(); a != nil {
		here = h.purpose.at(a.String())
	}
	if r := c.differ(h.auth, h.caller(), here); r != nil {
		return guest{hello: h}, r
	}
	bound, err := binding(conn)
	if err != nil {
		return guest{}, err
	}
	ch := challenge{auth: c.auth(), role: as}
	rand.Read(ch.nonce[:])
	answered := ch.payload()
	if _, err := conn.Write(message(kindChallenge, answered)); err != nil {
		return guest{}, err
	}
	p, err := expect(conn, kindProof)
	if err != nil {
		return guest{}, err
	}
	if !hmac.Equal(p, c.proof(labelProof, said, answered, bound)) {
		if c.auth() == authNone {
			return guest{hello: h}, refuse("a proof came where none was asked for")
		}
		return guest{hello: h}, refuse("the secrets differ, that of %s and that of %s", h.caller(), here)
	}
	return guest{hello: h, accept: c.proof(labelAccept, said, answered, bound)}, nil
}

func accept(conn net.Conn, g guest) error {
	_, err := conn.Write(message(kindAccept, g.accept))
	return err
}

// reject tells the dialler why and returns the same as an error.
func reject(conn net.Conn, r *rejection) error {
	if _, err := conn.Write(message(kindReject, r.payload())); err == nil {
		hangUp(conn, time.Second)
	}
	return r
}

// hangUp ends our side and waits, to a bound, for the other end to do the same: closing with its bytes unread would make the
// kernel throw away our last message.
func hangUp(conn net.Conn, patience time.Duration) {
	if w, ok := conn.(interface{ CloseWrite() error }); ok {
		w.CloseWrite()
	}
	conn.SetReadDeadline(time.Now().Add(patience))
	var sink [512]byte
	for range 128 {
		if _, err := conn.Read(sink[:]); err != nil {
			return
		}
	}
}

// interruptible lets ctx, and limit when it is not zero, end blocked reads and writes on conn. stop ends that and clears the
// deadline; it may be called twice.
func interruptible(ctx context.Context, conn net.Conn, limit time.Duration) (stop func()) {
	if limit > 0 {
		conn.SetDeadline(time.Now().Add(limit))
	}
	fired := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		conn.SetDeadline(time.Unix(1, 0))
		close(fired)
	})
	stopped := false
	return func() {
		if stopped {
			return
		}
		stopped = true
		if !cancel() {
			<-fired
		}
		conn.SetDeadline(time.Time{})
	}
}
