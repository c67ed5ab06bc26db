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
		}
		if sameHost { // BBR, the default of some systems, paces even loopback to half its speed
			unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic")
		}
	})
}

// descriptorLimit is the number of files this process may have open, 0 when unknown.
func descriptorLimit() uint64 {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil {
		return 0
	}
	return l.Cur
}
