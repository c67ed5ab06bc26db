//go:build !linux

package tcp

import (
	"net"

	"github.com/goccl/goccl/transport/internal/link"
)

// Collectives run over plain Send and Recv here.
func collectiveConn(conn net.Conn) (link.Conn, error) { return streamConn(conn) }

// A waiter is what an engine would need.
type waiter struct{}

func newWaiter([]link.Conn) (*waiter, error) { return &waiter{}, nil }
func (*waiter) install(t *link.Table)        { t.Ready(nil) }
func (*waiter) close()                       {}
