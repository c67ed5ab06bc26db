package tcp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goccl/goccl/transport/internal/link"
)

// A fdConn is a socket that has been taken out of Go's poller, for the reason that sleeper gives. The engine uses it
// without blocking; Read and Write, for a collective that is run over plain Send and Recv, wait with sleepers of their own.
type fdConn struct {
	fd               int
	reading, writing vector
	reads, writes    side
}

var _ link.Nonblocking = (*fdConn)(nil)

// collectiveConn takes over a connection; after an error it is as before.
func collectiveConn(conn net.Conn) (link.Conn, error) {
	fd, err := takeOver(under(conn))
	if err != nil {
		return nil, err // not fd: a nil pointer in an interface is not nil
	}
	if secured, ok := conn.(*tlsConn); ok {
		return secured.overFD(fd), nil
	}
	return fd, nil
}

// takeOver takes a socket from Go's poller; after an error it is there still.
func takeOver(conn link.Conn) (*fdConn, error) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("BUG: tcp: connection of type %T", conn)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, err
	}
	c := &fdConn{}
	var dupErr error
	err = raw.Control(func(fd uintptr) {
		c.fd, dupErr = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	})
	if err = errors.Join(err, dupErr); err != nil {
		return nil, fmt.Errorf("tcp: taking over a socket: %w", err)
	}
	conn.Close()
	return c, nil
}

// TryRead reads what is there into head and then body, with one call: 0, nil if nothing is.
func (c *fdConn) TryRead(head, body []byte) (int, error) {
	if !c.reading.set(head, body) {
		return 0, nil
	}
	defer c.reading.forget()
	n, err := c.reading.call(unix.SYS_RECVMSG, c.fd, unix.MSG_DONTWAIT)
	if n == 0 && err == nil {
		return 0, io.EOF
	}
	return max(n, 0), err
}

// TryWrite writes head and body with one call, as far as there is room: 0, nil if there is none.
func (c *fdConn) TryWrite(head, body []byte) (int, error) {
	if !c.writing.set(head, body) {
		return 0, nil
	}
	defer c.writing.forget()
	n, err := c.writing.call(unix.SYS_SENDMSG, c.fd, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	return max(n, 0), err
}

// A vector is the argument of recvmsg and sendmsg. It belongs to the connection, because one on the stack would be moved
// to the heap with each call.
type vector struct {
	hdr unix.Msghdr
	iov [2]unix.Iovec
}

// set points the vector to the parts that are not empty, and reports whether there are any.
func (v *vector) set(head, body []byte) bool {
	n := 0
	for _, b := range [2][]byte{head, body} {
		if len(b) > 0 {
			v.iov[n].Base = &b[0]
			v.iov[n].SetLen(len(b))
			n++
		}
	}
	v.hdr.Iov = &v.iov[0]
	v.hdr.SetIovlen(n)
	return n > 0
}

func (v *vector) forget() { v.iov[0].Base, v.iov[1].Base = nil, nil }

// call returns -1, nil when the call would block.
func (v *vector) call(trap uintptr, fd, flags int) (int, error) {
	for {
		n, _, e := unix.Syscall(trap, uintptr(fd), uintptr(unsafe.Pointer(&v.hdr)), uintptr(flags))
		switch e {
		case 0:
			return int(n), nil
		case unix.EINTR:
		case unix.EAGAIN:
			return -1, nil
		default:
			return 0, e
		}
	}
}

// Read implements io.Reader, ended by the read deadline.
func (c *fdConn) Read(p []byte) (int, error) {
	for {
		if n, err := c.TryRead(p, nil); n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
		if err := c.waitToRead(); err != nil {
			return 0, err
		}
	}
}

// Write implements io.Writer, ended by the write deadline.
func (c *fdConn) Write(p []byte) (int, error) {
	for done := 0; ; {
		n, err := c.TryWrite(nil, p[done:])
		if done += n; err != nil || done == len(p) {
			return done, err
		}
		if n > 0 {
			continue
		}
		if err := c.writes.wait(c.fd, unix.EPOLLOUT); err != nil {
			return done, err
		}
	}
}

func (c *fdConn) waitToRead() error { return c.reads.wait(c.fd, unix.EPOLLIN) }

func (c *fdConn) SetReadDeadline(t time.Time) error  { return c.reads.setDeadline(t) }
func (c *fdConn) SetWriteDeadline(t time.Time) error { return c.writes.setDeadline(t) }
func (c *fdConn) CloseWrite() error                  { return unix.Shutdown(c.fd, unix.SHUT_WR) }

// Close is called when nobody uses the connection any more: a descriptor that is closed under somebody's feet could by then
// be another file's.
func (c *fdConn) Close() error {
	c.reads.close()
	c.writes.close()
	return unix.Close(c.fd)
}

// A side is how one direction blocks. Its sleeper is made at the first wait: collectives that run in the engine need none.
type side struct {
	mu       sync.Mutex
	sleeper  *sleeper
	deadline time.Time
}

func (s *side) wait(fd int, events uint32) error {
	if err := s.prepare(fd); err != nil {
		return err
	}
	s.sleeper.arm(fd, events)
	return s.sleeper.wait()
}

func (s *side) prepare(fd int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sleeper != nil {
		return nil
	}
	if !s.deadline.IsZero() && !s.deadline.After(time.Now()) {
		return os.ErrDeadlineExceeded
	}
	sl, err := newSleeper()
	if err != nil {
		return err
	}
	if err := errors.Join(sl.add(fd), sl.file.SetReadDeadline(s.deadline)); err != nil {
		sl.close()
		return err
	}
	s.sleeper = sl
	return nil
}

func (s *side) setDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = t
	if s.sleeper == nil {
		return nil
	}
	return s.sleeper.file.SetReadDeadline(t)
}

func (s *side) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sleeper != nil {
		s.sleeper.close()
	}
}
