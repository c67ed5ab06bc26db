//go:build !linux

package tcp

import (
	"time"

	"github.com/goccl/goccl/transport/internal/link"
)

// settled reads what has come. There is no portable way to ask how much of what was sent is still under way.
func settled(c link.Conn) bool {
	done := true
	if t, ok := c.(*tlsConn); ok {
		done, c = t.ended(), t.sock
	}
	scratch := make([]byte, 64<<10)
	c.SetReadDeadline(time.Now().Add(time.Millisecond))
	for {
		if n, err := c.Read(scratch); n == 0 || err != nil {
			return done
		}
	}
}
