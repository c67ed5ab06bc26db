//go:build !linux

package tcp

import (
	"net"
	"time"

	"github.com/goccl/goccl/transport"
)

const abstractSockets = false

func abstractName() string { return "" }

func tune(conn net.Conn, class transport.Class, sameHost bool) {
	if c, ok := under(conn).(*net.TCPConn); ok {
		c.SetNoDelay(true)
		c.SetKeepAliveConfig(keepAlive)
	}
}

func dropUnanswered(net.Conn, time.Duration) {}

func descriptorLimit() uint64 { return 0 }
