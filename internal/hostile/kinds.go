package hostile

import (
	"context"
	"crypto/tls"
	"io"
	"math/rand/v2"
	"net"
	"time"
)

// A Kind is one way to be unwelcome.
type Kind struct {
	Name string
	// Do says on conn what the stranger says. gone tells that it wants to hear nothing more; otherwise it waits to be thrown
	// out. Errors are the other end's good right.
	Do func(ctx context.Context, t *Target, conn net.Conn) (gone bool)
}

// Kinds are all kinds, in the order in which an attack sends them.
var Kinds = []Kind{
	{"scan", func(_ context.Context, _ *Target, conn net.Conn) bool { return true }},
	{"reset", reset},
	{"nothing", says("")},
	{"one byte", says("\x89")},
	{"half magic", says(magic[:4])},
	{"half close", halfClose},
	{"http", says("GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\n\r\n")},
	{"tls", tlsHello},
	{"tls and goccl", tlsThenGoccl},
	{"noise", noise(4 << 10)},
	{"flood", noise(1 << 20)},
	{"slow loris", slowLoris},
	{"huge length", says(magic + "\x01\x00\x01\x00\xff\xff\xff\xff")},
	{"unknown kind", says(magic + "\x01\x00\x63\x00\x00\x00\x00\x00")},
	{"table first", says(string(message(version, kindTable, make([]byte, 100))))},
	{"broken hello", says(string(message(version, kindHello, []byte{1, 2, 3})))},
	{"hello and silence", func(_ context.Context, t *Target, conn net.Conn) bool {
		conn.Write(message(version, kindHello, registerHello(t).payload()))
		return false
	}},
	{"other version", func(_ context.Context, t *Target, conn net.Conn) bool {
		conn.Write(message(version+uint16(1+rand.IntN(100)), kindHello, registerHello(t).payload()))
		return false
	}},
	{"claims a rank", claim(authNone)},
	{"claims a rank, wrong proof", claim(authSecret)},
	{"claims a link", func(_ context.Context, t *Target, conn net.Conn) bool {
		conn.Write(message(version, kindHello, linkHello(t).payload()))
		conn.Write(message(version, kindProof, make([]byte, 32)))
		return false
	}},
	{"wrong run id", anotherRun},
	{"replay", replay},
}

// Named returns the kinds of these names, for a target's Kinds.
func Named(names ...string) []Kind {
	var list []Kind
	for _, name := range names {
		n := len(list)
		for _, k := range Kinds {
			if k.Name == name {
				list = append(list, k)
			}
		}
		if len(list) == n {
			panic("hostile: no kind " + name)
		}
	}
	return list
}

func pick(n int) uint32 { return uint32(rand.IntN(n)) }

func says(what string) func(context.Context, *Target, net.Conn) bool {
	return func(_ context.Context, _ *Target, conn net.Conn) bool {
		io.WriteString(conn, what)
		return false
	}
}

func reset(_ context.Context, _ *Target, conn net.Conn) bool {
	if c, ok := conn.(*net.TCPConn); ok {
		c.SetLinger(0)
	}
	return true
}

func halfClose(_ context.Context, _ *Target, conn net.Conn) bool {
	if c, ok := conn.(interface{ CloseWrite() error }); ok {
		c.CloseWrite()
	}
	return false
}

func noise(size int) func(context.Context, *Target, net.Conn) bool {
	return func(_ context.Context, _ *Target, conn net.Conn) bool {
		p := make([]byte, size)
		for i := range p {
			p[i] = byte(rand.Uint32())
		}
		conn.Write(p)
		return false
	}
}

// tlsHello is a client that means it: it has no certificate and does not look at the other end's.
func tlsHello(ctx context.Context, _ *Target, conn net.Conn) bool {
	tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx)
	return false
}

// tlsThenGoccl goes on inside, where the port speaks TLS: in TLS 1.3 a client learns with its first read that its
// certificate, here none, is refused.
func tlsThenGoccl(ctx context.Context, t *Target, conn net.Conn) bool {
	c := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
	if c.HandshakeContext(ctx) == nil {
		c.Write(message(version, kindHello, registerHello(t).payload()))
		io.Copy(io.Discard, c)
	}
	return false
}

// slowLoris sends a faultless hello, a byte now and then, to keep its place for ever.
func slowLoris(ctx context.Context, t *Target, conn net.Conn) bool {
	every := time.NewTicker(250 * time.Millisecond)
	defer every.Stop()
	for _, b := range message(version, kindHello, registerHello(t).payload()) {
		select {
		case <-every.C:
		case <-ctx.Done():
			return true
		}
		if _, err := conn.Write([]byte{b}); err != nil {
			break
		}
	}
	return false
}

// claim says that it is one of the ranks, goes through the handshake as far as it is let, and registers.
func claim(auth byte) func(context.Context, *Target, net.Conn) bool {
	return func(_ context.Context, t *Target, conn net.Conn) bool {
		h := registerHello(t)
		h.auth = auth
		conn.Write(message(version, kindHello, h.payload()))
		conn.Write(message(version, kindProof, make([]byte, 32)))
		conn.Write(message(version, kindRegister, registration()))
		return false
	}
}

// anotherRun has the secret, where there is one, and belongs to another run.
func anotherRun(_ context.Context, t *Target, conn net.Conn) bool {
	h := registerHello(t)
	h.auth, h.runID = authSecret, "another "+t.RunID
	if len(h.runID) > 128 {
		h.runID = h.runID[:128]
	}
	if prove(conn, h, t.Secret) == nil {
		conn.Write(message(version, kindRegister, registration()))
	}
	return false
}

// replay sends what somebody else has sent before.
func replay(_ context.Context, t *Target, conn net.Conn) bool {
	if len(t.Recorded) > 0 {
		conn.Write(t.Recorded[pick(len(t.Recorded))])
		return false
	}
	h := registerHello(t)
	h.auth = authSecret
	conn.Write(message(version, kindHello, h.payload()))
	conn.Write(message(version, kindProof, []byte("thirty-two bytes of an old proof")))
	conn.Write(message(version, kindRegister, registration()))
	return false
}
