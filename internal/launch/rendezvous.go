package launch

import (
	"context"
	"net"

	"github.com/goccl/goccl/transport/tcp"
)

// serve answers the ranks on ln until ctx ends, as often as they meet: a program may leave its group and join again.
// What goes wrong the ranks are told, and say, themselves.
func serve(ctx context.Context, ln net.Listener, size int, runID string) {
	for ctx.Err() == nil {
		if err := tcp.Rendezvous(ctx, ln, tcp.RendezvousConfig{Size: size, RunID: runID}); err != nil {
			return
		}
	}
}
