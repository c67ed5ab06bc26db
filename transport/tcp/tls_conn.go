package tcp

import (
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/goccl/goccl/transport/internal/link"
)

// maxSealed is how many bytes are sealed at once: the most that a TLS record holds.
const maxSealed = 16 << 10

// A socket is what a tlsConn runs over.
type socket interface {
	link.Conn
	CloseWrite() error
}

// A tlsConn is a connection under TLS, for one reader and one writer. A Write that the deadline cuts off has written, for all
// that the caller must know, the bytes that it counts: those that are sealed and have not left yet leave with the next Write,
// of nothing if need be.
type tlsConn struct {
	sock   socket
	wire   wire
	tls    *tls.Conn
	joined []byte // the writer's: two parts that share a record
	ending bool   // CloseWrite was called; sock's is still to come
}

var _ link.BuffersWriter = (*tlsConn)(nil)

func newTLSConn(sock socket, make func(net.Conn) *tls.Conn) *tlsConn {
	c := &tlsConn{sock: sock}
	c.wire.conn = sock
	c.tls = make(&c.wire)
	return c
}

func (c *tlsConn) Read(p []byte) (int, error) { return c.tls.Read(p) }

func (c *tlsConn) Write(p []byte) (int, error) {
	n, err := c.WriteBuffers(&net.Buffers{p})
	return int(n), err
}

// WriteBuffers implements [link.BuffersWriter]: parts of a frame share records, and packets.
func (c *tlsConn) WriteBuffers(v *net.Buffers) (n int64, err error) {
	return c.writeAll(v, c.sock.Write)
}

func (c *tlsConn) writeAll(v *net.Buffers, write func([]byte) (int, error)) (n int64, err error) {
	if err := c.send(write); err != nil { // what an earlier one has left
		return 0, err
	}
	for len(*v) > 0 {
		var body []byte
		if len(*v) > 1 {
			body = (*v)[1]
		}
		k, err := c.seal((*v)[0], body)
		if err != nil {
			return n, err
		}
		n += int64(k)
		consume(v, k)
		if err := c.send(write); err != nil {
			return n, err
		}
	}
	return n, nil
}

// send waits until all that is sealed has left.
func (c *tlsConn) send(write func([]byte) (int, error)) error {
	for {
		if done, err := c.wire.flush(write); done || err != nil {
			return err
		}
	}
}

// seal makes a record of what comes first of head and body, and returns how many bytes that are.
func (c *tlsConn) seal(head, body []byte) (int, error) {
	p := head[:min(len(head), maxSealed)]
	if len(p) < maxSealed && len(body) > 0 {
		if len(p) > 0 {
			c.joined = append(c.joined[:0], p...)
			p = append(c.joined, body[:min(len(body), maxSealed-len(p))]...)
			c.joined = p
		} else {
			p = body[:min(len(body), maxSealed)]
		}
	}
	if len(p) == 0 {
		return 0, nil
	}
	return c.tls.Write(p)
}

// consume takes the first n bytes from v, and empty parts with them.
func consume(v *net.Buffers, n int) {
	for len(*v) > 0 && n >= len((*v)[0]) {
		n -= len((*v)[0])
		*v = (*v)[1:]
	}
	if n > 0 {
		(*v)[0] = (*v)[0][n:]
	}
}

// CloseWrite says that no more follows. It does not wait: finish does the rest where there is no room for that now.
func (c *tlsConn) CloseWrite() error {
	if err := c.tls.CloseWrite(); err != nil {
		return err
	}
	c.ending = true
	_, err := c.finish()
	return err
}

// finish sends what is sealed, as far as there is room, and ends the socket's sending direction behind it. It reports whether
// that is done.
func (c *tlsConn) finish() (bool, error) {
	if !c.ending {
		return true, nil
	}
	done, err := c.wire.flush(func(p []byte) (int, error) { return tryWrite(c.sock, p) })
	if err != nil || !done {
		return false, err
	}
	c.ending = false
	return true, c.sock.CloseWrite()
}

// ended is finish for somebody who can do nothing about an error: true also when the rest will never leave.
func (c *tlsConn) ended() bool {
	done, err := c.finish()
	return done || err != nil
}

// Close closes the socket. It says nothing to the peer; CloseWrite does.
func (c *tlsConn) Close() error { return c.sock.Close() }

func (c *tlsConn) LocalAddr() net.Addr                { return c.wire.LocalAddr() }
func (c *tlsConn) RemoteAddr() net.Addr               { return c.wire.RemoteAddr() }
func (c *tlsConn) SetReadDeadline(t time.Time) error  { return c.sock.SetReadDeadline(t) }
func (c *tlsConn) SetWriteDeadline(t time.Time) error { return c.sock.SetWriteDeadline(t) }
func (c *tlsConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// under is the socket of a connection.
func under(conn link.Conn) link.Conn {
	switch c := conn.(type) {
	case *tlsConn:
		return c.sock
	default:
		return conn
	}
}
