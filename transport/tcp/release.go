package tcp

import (
	"slices"
	"time"

	"github.com/goccl/goccl/transport/internal/link"
)

// releaseBound is how long Close waits for peers to take what was sent to them.
const releaseBound = time.Second

// release closes connections that nobody uses any more, without losing what was sent: a socket that is closed while bytes
// of the peer are unread, or still come, answers with a reset, and that throws away what the peer's host has yet to
// receive. So it only says that no more follows, and keeps reading until all of it is there.
func release(conns []link.Conn) {
	conns = slices.DeleteFunc(conns, func(c link.Conn) bool {
		err := c.(interface{ CloseWrite() error }).CloseWrite()
		if err != nil { // the connection is dead, and whoever saw its error took that away
			c.Close()
		}
		return err != nil
	})
	deadline := time.Now().Add(releaseBound)
	for pause := 50 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		conns = slices.DeleteFunc(conns, func(c link.Conn) bool {
			if !settled(c) {
				return false
			}
			c.Close()
			return true
		})
		if len(conns) == 0 {
			return
		}
		if time.Now().After(deadline) {
			break
		}
		time.Sleep(pause)
	}
	for _, c := range conns {
		c.Close()
	}
}
