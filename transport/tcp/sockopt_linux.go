package tcp

import (
	"crypto/rand"
	"encoding/hex"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goccl/goccl/transport"
)

// abstractSockets tells whether Unix-domain sockets can have names without a file: nothing is left behind by kill -9.
const abstractSockets = true

func abstractName() string {
	var id [16]byte
	rand.Read(id[:])
	return "@goccl-" + hex.EncodeToString(id[:])
}

// tune sets what every connection needs; a failure costs speed or early notice, nothing else, so it is ignored.
//
// TCP_USER_TIMEOUT is for the control class alone. It ends a connection whose peer answers but does not read as well
// (measured on Linux 6.18: 3.3 s after the window closed with 3 s set), and on the data classes a closed window is how a late
// rank holds its peers back. Those have keepalive while idle and the kernel's retransmission limit while sending.
func tune(conn net.Conn, class transport.Class, sameHost bool) {
	c, ok := under(conn).(*net.TCPConn)
	if !ok {
		return
	}
	c.SetNoDelay(true)
	c.SetKeepAliveConfig(keepAlive)
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) {
		if class == transport.Control {
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(deadAfter/time.Millisecond))
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_RTO_MAX_MS, int(maxRetry/time.Millisecond)) // since Linux 6.15
		}
		if sameHost { // BBR, the default of some systems, paces even loopback to half its speed
			unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic")
		}
	})
}

// maxRetry is the longest time between two attempts to get a control frame through. The kernel doubles it up to two minutes, so
// that what is sent into an outage of 4 s arrives up to 7 s after its beginning, and the ranks look dead long after it is over:
// with heartbeats every 2 s a rank heard nothing for 8.9 s, with this 6.7 s, of which 2 s were before the outage.
const maxRetry = time.Second

// dropUnanswered ends a connection when what is sent on it stays unanswered for so long.
func dropUnanswered(conn net.Conn, after time.Duration) {
	c, ok := under(conn).(*net.TCPConn)
	if !ok {
		return
	}
	if raw, err := c.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) {
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(after/time.Millisecond))
		})
	}
}

// descriptorLimit is the number of files this process may have open, 0 when unknown.
func descriptorLimit() uint64 {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil {
		return 0
	}
	return l.Cur
}
