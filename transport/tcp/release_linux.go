package tcp

import (
	"io"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/goccl/goccl/transport/internal/link"
)

// finBytes is what SIOCOUTQ counts for the end of the sending direction itself. Its acknowledgement may be delayed by 40 ms,
// and nothing depends on it.
const finBytes = 1

// drainBound limits one look at a connection whose peer never stops sending.
const drainBound = 4 << 20

// settled reads what has come and reports whether everything sent has reached the peer's host, or never will.
func settled(c link.Conn) bool {
	done := true
	switch t := c.(type) {
	case *tlsFD:
		done, c = t.ended(), t.fd
	case *tlsConn:
		done, c = t.ended(), t.sock
	}
	return settledSocket(c) && done
}

func settledSocket(c link.Conn) bool {
	if c, ok := c.(*fdConn); ok {
		return settledFD(c.fd)
	}
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return true
	}
	ok := true
	raw.Control(func(fd uintptr) { ok = settledFD(int(fd)) })
	return ok
}

func settledFD(fd int) bool {
	c := fdConn{fd: fd}
	scratch := make([]byte, 64<<10)
	for range drainBound / len(scratch) {
		n, err := c.TryRead(scratch, nil)
		if err != nil && err != io.EOF {
			return true // the peer has reset the connection
		}
		if n == 0 {
			break
		}
	}
	if domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err != nil || domain == unix.AF_UNIX {
		return true // what was sent lies in the peer's socket already
	}
	queued, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
	return err != nil || queued <= finBytes
}
