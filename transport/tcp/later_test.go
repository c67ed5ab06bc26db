package tcp

import (
	"context"
	"testing"
	"time"

	"github.com/goccl/goccl/transport"
)

// TestFirstSendCancelled: a Send that gives up while its connection is being opened does not spoil the connection for those
// that follow.
func TestFirstSendCancelled(t *testing.T) {
	t.Parallel()
	ts := newWorld(t, 2, Config{})
	defer ts[0].Close()
	defer ts[1].Close()
	for i := range uint64(150) {
		tag := transport.Tag{Class: transport.PointToPoint, Group: i + 1}
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*10*time.Microsecond)
		sent := ts[0].Send(ctx, 1, tag, []byte{1}) == nil
		cancel()
		ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
		if err := ts[0].Send(ctx, 1, tag, []byte{2}); err != nil {
			t.Fatalf("after a first Send cancelled within %d µs: %v", 10*i, err)
		}
		want := []byte{1, 2}
		if !sent {
			want = want[1:]
		}
		for _, b := range want {
			var p [1]byte
			if err := ts[1].Recv(ctx, 0, tag, p[:]); err != nil || p[0] != b {
				t.Fatalf("got %d, %v, want %d", p[0], err, b)
			}
		}
		cancel()
	}
}
