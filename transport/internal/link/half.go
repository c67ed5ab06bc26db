package link

import (
	"context"
	"net"
	"sync"
	"time"
)

// A turn is taken by one goroutine at a time, in the order in which they asked (channel senders queue first in, first out).
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// take waits for the turn. It fails with net.ErrClosed or the cause of ctx.
func (t turn) take(ctx context.Context, closed <-chan struct{}) error {
	select {
	case t <- struct{}{}:
		return nil
	default:
	}
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-closed:
		return net.ErrClosed
	}
}

func (t turn) release() { <-t }

// flushBound is how long Close lets a frame go on that a cancelled Send left to be completed.
const flushBound = time.Second

var past = time.Unix(1, 0)

// A half is one direction of a stream: whose turn it is, and the deadline by which blocked I/O is ended from outside.
type half struct {
	turn   turn
	closed <-chan struct{} // closed when the table closes
	err    error           // why this direction is unusable; guarded by turn

	mu          sync.Mutex
	setDeadline func(time.Time) error // guarded by mu, like all below
	closing     bool
	finishing   bool // the turn's holder completes a frame whose Send has returned
	watching    bool // the turn's holder only looks for a hang-up and gives way to others
	waiters     int  // those who want the turn to receive
}

// take waits for the turn and for a half that still works.
func (h *half) take(ctx context.Context) error {
	if err := h.turn.take(ctx, h.closed); err != nil {
		return err
	}
	if h.isClosing() {
		h.turn.release()
		return net.ErrClosed
	}
	if h.err != nil {
		defer h.turn.release()
		return h.err
	}
	return nil
}

// fail makes the half unusable. The first reason stays. The caller has the turn.
func (h *half) fail(err error) error {
	if h.err == nil {
		h.err = err
	}
	return h.err
}

// cancelOn ends blocked I/O when ctx ends. The function that it returns undoes this: after it no deadline stands.
func (h *half) cancelOn(ctx context.Context) (undo func()) {
	if ctx.Done() == nil {
		return func() {}
	}
	cut := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		h.deadline(past)
		close(cut)
	})
	return func() {
		if !stop() {
			<-cut
			h.deadline(time.Time{})
		}
	}
}

// deadline sets the deadline of blocked I/O, unless closing has set the last one.
func (h *half) deadline(t time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closing {
		h.setDeadline(t)
	}
}

// finish begins the completion of a frame that nobody waits for any more: only closing bounds it.
func (h *half) finish() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.finishing = true
	if h.closing {
		h.setDeadline(time.Now().Add(flushBound))
	} else {
		h.setDeadline(time.Time{})
	}
}

func (h *half) finished() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.finishing = false
}

// close ends blocked I/O now, or soon if a frame is being finished.
func (h *half) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closing = true
	if h.finishing {
		h.setDeadline(time.Now().Add(flushBound))
	} else {
		h.setDeadline(past)
	}
}

func (h *half) isClosing() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closing
}
