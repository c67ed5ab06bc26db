package launch

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/transport/tcp"
)

// serve answers the ranks on ln until ctx ends, as often as they meet: a program may leave its group and join again. A rank that
// comes back while the others run is sent to them.
// What goes wrong the ranks are told, and say, themselves.
func serve(ctx context.Context, ln *net.TCPListener, cfg tcp.RendezvousConfig) {
	for ctx.Err() == nil {
		_ = ln.SetDeadline(time.Time{})
		err := tcp.Rendezvous(ctx, &lease{TCPListener: ln}, cfg)
		if errors.As(err, new(*tcp.ConfigError)) { // more ranks, or a longer run id, than can meet
			return
		}
	}
}

// A lease is a listener for one meeting. Closing it leaves the socket open, so that the port stays ours.
type lease struct {
	*net.TCPListener
	closed atomic.Bool
}

func (l *lease) Close() error {
	l.closed.Store(true)
	return l.SetDeadline(time.Unix(1, 0)) // wakes Accept
}

func (l *lease) Accept() (net.Conn, error) {
	conn, err := l.TCPListener.Accept()
	if err != nil && l.closed.Load() {
		return nil, net.ErrClosed
	}
	return conn, err
}
