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

// openLater opens one direction of a stream when it is first used: the sender dials.
func (t *Transport) openLater(ctx context.Context, peer int, class transport.Class, group uint64, dir link.Direction) (link.Conn, error) {
	with, grace := t.mesh.dial, time.Duration(0)
	if dir == link.Incoming {
		with, grace = t.mesh.await, arrivalGrace
	}
	ctx, stop := t.whilePresent(ctx, peer, grace)
	defer stop()
	conn, err := with(ctx, t.ranks[peer], class, t.streamID(group))
	switch {
	case err == nil:
		return streamConn(conn)
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, t.blame(peer, class, err)
}

// whilePresent returns a context that also ends, with a PeerError, when the peer's control connection does, or so much
// later: a peer that has gone will neither dial nor answer.
func (t *Transport) whilePresent(ctx context.Context, peer int, grace time.Duration) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := t.table.Hangup(ctx, peer)
		if ctx.Err() == nil && grace > 0 {
			sleepUntil(ctx, t.sawLeave(peer).Add(grace))
		}
		cancel(err) // does nothing where ctx has ended
	}()
	return ctx, func() {
		cancel(nil)
		<-done
	}
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

func (t *Transport) hasLeft(peer int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.left[peer].IsZero()
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
