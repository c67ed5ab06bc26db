package link

import (
	"context"
	"net"
	"runtime"
	"time"
)

// takeToReceive is take for receivers, to whom a watcher gives way.
func (h *half) takeToReceive(ctx context.Context) error {
	h.mu.Lock()
	h.waiters++
	if h.watching && !h.closing {
		h.setDeadline(past)
	}
	h.mu.Unlock()
	err := h.take(ctx)
	h.mu.Lock()
	h.waiters--
	h.mu.Unlock()
	return err
}

// watch says whether the turn's holder is only watching. It refuses to begin while somebody wants to receive.
func (h *half) watch(on bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if on && h.waiters > 0 {
		return false
	}
	h.watching = on
	if !on && !h.closing {
		h.setDeadline(time.Time{})
	}
	return true
}

// hangup blocks until the stream has failed or ended, and returns why. When ctx ends first it returns its cause. It takes
// nothing from the stream and gives way to whoever wants to receive; a peer whose frames nobody takes, so that the
// read-ahead is full, is not watched.
func (s *Stream) hangup(ctx context.Context) error {
	for {
		if err := s.in.take(ctx); err != nil {
			return err
		}
		full := len(s.ahead.space()) == 0
		var err error
		if !full {
			err = s.look(ctx)
		}
		s.in.turn.release()
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case full:
			select {
			case <-ctx.Done():
			case <-s.in.closed:
				return net.ErrClosed
			}
		default:
			runtime.Gosched() // the receiver that we gave way to has yet to ask for its turn
		}
	}
}

// look reads ahead until something comes, somebody wants to receive or ctx ends. It returns the stream's end only.
func (s *Stream) look(ctx context.Context) error {
	if !s.in.watch(true) {
		return nil
	}
	undo := s.in.cancelOn(ctx)
	err := s.fill(len(s.ahead.unread()) > 0)
	undo()
	s.in.watch(false)
	if err == nil || isTimeout(err) && !s.in.isClosing() {
		return nil
	}
	return s.in.fail(err)
}
