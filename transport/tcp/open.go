package tcp

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/internal/link"
)

// arrivalGrace is how long a connection that a peer opened before it left may take to get through our own listener.
const arrivalGrace = time.Second

// openLater opens one direction of a stream when it is first used: the sender dials. While it is under way the peer's
// control connection is watched, because a peer that has gone will neither dial nor answer.
func (t *Transport) openLater(ctx context.Context, peer int, class transport.Class, group uint64, dir link.Direction) (link.Conn, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watched, stopWatching := context.WithCancel(ctx)
	left := make(chan struct{})
	go func() {
		defer close(left)
		err := t.table.Hangup(watched, peer)
		if watched.Err() == nil && dir == link.Incoming {
			sleepUntil(watched, t.sawLeave(peer).Add(arrivalGrace))
		}
		if watched.Err() == nil {
			cancel(err)
		}
	}()
	with := t.mesh.dial
	if dir == link.Incoming {
		with = t.mesh.await
	}
	conn, err := with(ctx, t.ranks[peer], class, t.streamID(group))
	stopWatching()
	<-left
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, t.opening(peer, class, err)
	}
	return streamConn(conn)
}

// sawLeave returns when it was first seen that a peer has left.
func (t *Transport) sawLeave(peer int) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.left[peer].IsZero() {
		t.left[peer] = time.Now()
	}
	return t.left[peer]
}

func sleepUntil(ctx context.Context, when time.Time) {
	timer := time.NewTimer(time.Until(when))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// streamID is what a connection's handshake carries for a tag's group in this group. Two sub-groups may use the same tag.
func (t *Transport) streamID(group uint64) uint64 {
	if group == 0 {
		return t.id
	}
	if t.id == 0 {
		return group
	}
	// splitmix64 of both: ids are hashes themselves, so that a clash is as unlikely as one among them.
	x := t.id + 0x9e3779b97f4a7c15*group
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// streamConn is for the classes that are read and written the blocking way.
func streamConn(conn net.Conn) (link.Conn, error) {
	c, ok := conn.(interface {
		link.Conn
		CloseWrite() error
	})
	if !ok {
		conn.Close()
		return nil, fmt.Errorf("BUG: tcp: connection of type %T", conn)
	}
	return c, nil
}
