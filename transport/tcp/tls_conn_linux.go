package tcp

import (
	"net"
	"syscall"

	"github.com/goccl/goccl/transport/internal/link"
)

// A tlsFD is a tlsConn whose socket has been taken out of Go's poller, for collectives.
type tlsFD struct {
	*tlsConn
	fd     *fdConn
	sealed int // bytes of a TryWrite that are in a record and not counted yet
}

var _ link.Nonblocking = (*tlsFD)(nil)

// overFD goes on with another descriptor of the same socket.
func (c *tlsConn) overFD(fd *fdConn) *tlsFD {
	c.sock, c.wire.conn, c.wire.fed = fd, fd, true
	return &tlsFD{tlsConn: c, fd: fd}
}

// maxTaken is how much one TryRead decrypts at most, so that other peers' bytes do not wait long.
const maxTaken = 4 * maxSealed

// TryRead implements [link.Nonblocking].
func (c *tlsFD) TryRead(head, body []byte) (n int, err error) {
	for _, p := range [2][]byte{head, body} {
		for len(p) > 0 && n < maxTaken {
			if !c.wire.feed(c.fd) {
				return n, nil
			}
			k, err := c.tls.Read(p)
			n += k
			p = p[k:]
			c.wire.in.given(k)
			if err != nil && err != errNotYet {
				return n, endOnly(n, err)
			}
		}
	}
	return n, nil
}

// TryWrite implements [link.Nonblocking]. It seals one record and counts its bytes as written when all of it has left; until
// then the caller comes again with the same bytes, which are not looked at again. The peer sees nothing of a record before
// it has all of it, so nobody can tell the difference.
func (c *tlsFD) TryWrite(head, body []byte) (int, error) {
	if c.sealed == 0 {
		n, err := c.seal(head, body)
		if err != nil {
			return 0, err
		}
		c.sealed = n
	}
	done, err := c.wire.flush(c.tryWrite)
	if !done || err != nil {
		return 0, err
	}
	n := min(c.sealed, len(head)+len(body)) // the caller may offer less than before
	c.sealed -= n
	return n, nil
}

func (c *tlsFD) tryWrite(p []byte) (int, error) { return c.fd.TryWrite(nil, p) }

// endOnly leaves an error that stays to the next call when bytes came before it.
func endOnly(n int, err error) error {
	if n > 0 {
		return nil
	}
	return err
}

// Read implements io.Reader, ended by the read deadline.
func (c *tlsFD) Read(p []byte) (int, error) {
	for {
		n, err := c.TryRead(p, nil)
		if n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
		if err := c.fd.waitToRead(); err != nil {
			return 0, err
		}
	}
}

// fdOf is the descriptor of a connection that collectiveConn has made.
func fdOf(c link.Conn) int {
	if c, ok := c.(*tlsFD); ok {
		return c.fd.fd
	}
	return c.(*fdConn).fd
}

// tryWrite writes what there is room for, without regard to deadlines.
func tryWrite(sock link.Conn, p []byte) (n int, err error) {
	if c, ok := sock.(*fdConn); ok {
		return c.TryWrite(nil, p)
	}
	sc, ok := sock.(syscall.Conn)
	if !ok {
		return sock.Write(p)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return 0, err
	}
	controlErr := raw.Control(func(fd uintptr) {
		c := fdConn{fd: int(fd)}
		n, err = c.TryWrite(nil, p)
	})
	if controlErr != nil {
		return 0, net.ErrClosed
	}
	return n, err
}
