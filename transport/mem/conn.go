package mem

import (
	"context"
	"runtime"
	"time"
)

// A conn is one end of two pipes, or of one, when the stream serves one direction only.
type conn struct {
	in, out *pipe
}

func (c *conn) Read(b []byte) (int, error)  { return c.in.blockingRead(b) }
func (c *conn) Write(b []byte) (int, error) { return c.out.blockingWrite(b) }

func (c *conn) TryRead(head, body []byte) (int, error) {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	n, err := c.in.read(head)
	if n < len(head) || err != nil {
		return n, err
	}
	m, err := c.in.read(body)
	if n > 0 {
		err = nil // the next read meets it again
	}
	return n + m, err
}

func (c *conn) TryWrite(head, body []byte) (int, error) {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	n, err := c.out.write(head)
	if n < len(head) || err != nil {
		return n, err
	}
	m, err := c.out.write(body)
	return n + m, err
}

func (c *conn) SetReadDeadline(t time.Time) error {
	if c.in != nil {
		c.in.setDeadline(&c.in.reads, &c.in.readable, t)
	}
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	if c.out != nil {
		c.out.setDeadline(&c.out.writes, &c.out.writable, t)
	}
	return nil
}

func (c *conn) Close() error {
	if c.out != nil {
		c.out.end()
	}
	if c.in != nil {
		c.in.breakOff()
	}
	return nil
}

// A signal tells one rank's engine that some pipe of its has changed.
type signal chan struct{}

func (s signal) raise() {
	select {
	case s <- struct{}{}:
	default: // it has one to look at already
	}
}

// spins is how often an engine lets the other goroutines run before it sleeps.
const spins = 4

// A waiter is how an engine over pipes waits.
type waiter struct {
	changed signal
	woken   chan struct{} // closed by Wake
}

func (w *waiter) Spin(idle int) bool {
	runtime.Gosched()
	return idle < spins
}

func (w *waiter) Arm(int, bool, bool) {} // a pipe always tells

func (w *waiter) Wait(ctx context.Context) {
	select {
	case <-w.changed:
	case <-ctx.Done():
	case <-w.woken:
	}
}

func (w *waiter) Wake() { close(w.woken) }
