package mem

import (
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"time"
)

// A pipe carries bytes one way through a bounded buffer. Whoever waits on it does so on a sync.Cond or a channel, never by
// the clock, so that testing/synctest sees it as idle.
type pipe struct {
	mu       sync.Mutex
	readable sync.Cond
	writable sync.Cond
	ring     []byte // grows up to limit: most pipes of a large world stay unused
	limit    int
	r, n     int // unread bytes are ring[r : r+n], wrapped
	jitter   *rand.Rand

	ended  bool // by the writer: EOF after what is unread
	broken bool // by the reader: nothing can be written
	reads  deadline
	writes deadline

	reader, writer signal // the engines at both ends
}

func newPipe(limit int, jitter *rand.Rand, reader, writer signal) *pipe {
	p := &pipe{limit: limit, jitter: jitter, reader: reader, writer: writer}
	p.readable.L, p.writable.L = &p.mu, &p.mu
	return p
}

// read takes unread bytes. It returns 0, nil when there are none yet.
func (p *pipe) read(b []byte) (int, error) {
	if p.broken {
		return 0, io.ErrClosedPipe
	}
	if p.n == 0 && p.ended {
		return 0, io.EOF
	}
	n := p.some(min(len(b), p.n))
	k := copy(b[:n], p.ring[p.r:min(p.r+p.n, len(p.ring))])
	copy(b[k:n], p.ring)
	if p.n -= n; p.n == 0 {
		p.r = 0
	} else {
		p.r = (p.r + n) % len(p.ring)
	}
	if n > 0 {
		p.writable.Broadcast()
		p.writer.raise()
	}
	return n, nil
}

// write puts in as much of b as there is room for.
func (p *pipe) write(b []byte) (int, error) {
	if p.broken || p.ended {
		return 0, io.ErrClosedPipe
	}
	n := p.some(min(len(b), p.limit-p.n))
	p.grow(p.n + n)
	for rest := b[:n]; len(rest) > 0; {
		w := (p.r + p.n) % len(p.ring)
		k := copy(p.ring[w:min(len(p.ring), w+len(rest))], rest)
		p.n += k
		rest = rest[k:]
	}
	if n > 0 {
		p.readable.Broadcast()
		p.reader.raise()
	}
	return n, nil
}

// some is n, or with jitter any number of bytes up to n. Only a try that could move nothing moves nothing: an engine sleeps
// after that.
func (p *pipe) some(n int) int {
	if p.jitter == nil || n == 0 {
		return n
	}
	return 1 + p.jitter.IntN(n)
}

func (p *pipe) grow(need int) {
	if need <= len(p.ring) {
		return
	}
	ring := make([]byte, min(p.limit, max(need, 2*len(p.ring), 512)))
	k := copy(ring, p.ring[p.r:min(p.r+p.n, len(p.ring))])
	copy(ring[k:p.n], p.ring)
	p.ring, p.r = ring, 0
}

func (p *pipe) blockingRead(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(b) > 0 {
		if p.reads.passed {
			return 0, os.ErrDeadlineExceeded
		}
		if n, err := p.read(b); n > 0 || err != nil {
			return n, err
		}
		p.readable.Wait()
	}
	return 0, nil
}

func (p *pipe) blockingWrite(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	done := 0
	for done < len(b) {
		if p.writes.passed {
			return done, os.ErrDeadlineExceeded
		}
		n, err := p.write(b[done:])
		if err != nil {
			return done, err
		}
		if done += n; n == 0 {
			p.writable.Wait()
		}
	}
	return done, nil
}

func (p *pipe) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.readable.Broadcast()
	p.writable.Broadcast()
	p.reader.raise()
}

func (p *pipe) breakOff() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken, p.ring, p.r, p.n = true, nil, 0, 0
	p.readable.Broadcast()
	p.writable.Broadcast()
	p.writer.raise()
}

// A deadline ends the blocking calls of one end of a pipe; guarded by the pipe's mutex.
type deadline struct {
	passed bool
	timer  *time.Timer
	count  int // of settings, so that a timer that fires late does nothing
}

func (p *pipe) setDeadline(d *deadline, c *sync.Cond, t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
	}
	d.count++
	wait := time.Until(t)
	d.passed = !t.IsZero() && wait <= 0
	if !t.IsZero() && wait > 0 {
		count := d.count
		d.timer = time.AfterFunc(wait, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			if d.count == count {
				d.passed = true
				c.Broadcast()
			}
		})
	}
	c.Broadcast()
}
