package tcp

import (
	"context"
	"net"
	"sync"
)

// A reception serves registrations: with this rank's coordinator, if it has one, while the run starts, and with its lobby once
// the run has begun.
type reception struct {
	runID string

	mu          sync.Mutex
	coordinator *coordinator // guarded by mu, like lobby
	lobby       *lobby
}

func (r *reception) now() (*coordinator, *lobby) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.coordinator, r.lobby
}

func (r *reception) coordinate(c *coordinator) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.coordinator = c
}

func (r *reception) open(l *lobby) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lobby, r.coordinator = l, nil
}

// check implements handler.
func (r *reception) check(ctx context.Context, h *hello, conn net.Conn) *rejection {
	c, l := r.now()
	switch {
	case l != nil:
		return l.check(h)
	case h.runID != r.runID && c == nil:
		return refuse("run id differs: %s belongs to %q, this rank to %q", h.caller(), h.runID, r.runID)
	case c == nil || h.runID == r.runID && r.runID != "" && c.begun():
		return &rejection{rejectBusy, "this rank does not run yet, and another one coordinates"}
	}
	return c.check(ctx, h, conn)
}

// take implements handler.
func (r *reception) take(conn net.Conn, h *hello, settled func()) error {
	c, l := r.now()
	if l != nil {
		return l.take(conn, h, settled)
	}
	return c.take(conn, h, settled)
}

// refused implements handler.
func (r *reception) refused(h *hello, why error, from string) {
	if c, _ := r.now(); c != nil {
		c.refused(h, why, from)
	}
}
