package tcp

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/goccl/goccl/transport/internal/link"
)

// maxUnsent bounds what crypto/tls may want to say on its own account, in answer to what it reads, before this end writes
// again: updates of keys, which are a few bytes each.
const maxUnsent = 64 << 10

// errNotYet is what crypto/tls hears when there is no record to read. It takes such an error, a temporary one, to pass.
var errNotYet net.Error = notYet{}

type notYet struct{}

func (notYet) Error() string   { return "nothing to read yet" }
func (notYet) Timeout() bool   { return true }
func (notYet) Temporary() bool { return true }

// A wire is what crypto/tls takes for its connection. Once the TLS handshake is over it never sees the socket's deadlines,
// nor a socket that has no room: a write that it sees fail ends a TLS connection for good. What it writes is kept, and
// whoever writes through the connection sends it.
type wire struct {
	conn    link.Conn // the socket
	fed     bool      // Read takes what has come and never reads: somebody else does, without blocking
	sealing bool      // the handshake is over

	in  records // the reader's, like the next
	err error   // how the socket ended, where fed

	mu    sync.Mutex
	out   []byte // sealed, from sent on not sent yet; owned by the sender while busy
	sent  int
	busy  bool
	aside []byte // written meanwhile; follows out
}

func (w *wire) Read(p []byte) (int, error) {
	for {
		if n := w.in.take(p); n > 0 || len(p) == 0 {
			return n, nil
		}
		if w.fed && w.err == nil {
			return 0, errNotYet
		}
		n, err := 0, w.err
		if !w.fed {
			n, err = w.conn.Read(w.in.space())
			w.in.came(n)
		}
		if n > 0 || err == nil {
			continue
		}
		if err == io.EOF && w.in.w > w.in.r {
			err = io.ErrUnexpectedEOF
		}
		return 0, err
	}
}

// feed takes in what raw has, until there is a record. False: there is none yet.
func (w *wire) feed(raw link.Nonblocking) bool {
	for w.in.content == 0 && w.err == nil {
		n, err := raw.TryRead(w.in.space(), nil)
		if n == 0 && err == nil {
			return false
		}
		w.in.came(n)
		w.err = err
	}
	return true
}

func (w *wire) Write(p []byte) (int, error) {
	if !w.sealing {
		return w.conn.Write(p)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.out)-w.sent+len(w.aside)+len(p) > maxUnsent {
		return 0, errors.New("tls: the peer makes this end speak and does not listen")
	}
	if w.busy {
		w.aside = append(w.aside, p...)
	} else {
		w.out = append(w.out, p...)
	}
	return len(p), nil
}

// flush hands what has been sealed to write, which returns 0, nil when there is no room. It reports whether all has left. One
// goroutine flushes at a time.
func (w *wire) flush(write func(p []byte) (int, error)) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		for w.sent < len(w.out) {
			rest := w.out[w.sent:]
			w.busy = true
			w.mu.Unlock()
			n, err := write(rest)
			w.mu.Lock()
			w.busy = false
			w.sent += n
			if err != nil || n == 0 {
				return false, err
			}
		}
		w.out, w.sent = append(w.out[:0], w.aside...), 0
		w.aside = w.aside[:0]
		if len(w.out) == 0 {
			return true, nil
		}
	}
}

func (w *wire) addr(which func(net.Conn) net.Addr) net.Addr {
	if c, ok := w.conn.(net.Conn); ok {
		return which(c)
	}
	return nil
}

func (w *wire) Close() error                     { return w.conn.Close() }
func (w *wire) LocalAddr() net.Addr              { return w.addr(net.Conn.LocalAddr) }
func (w *wire) RemoteAddr() net.Addr             { return w.addr(net.Conn.RemoteAddr) }
func (w *wire) SetDeadline(time.Time) error      { return nil }
func (w *wire) SetReadDeadline(time.Time) error  { return nil }
func (w *wire) SetWriteDeadline(time.Time) error { return nil }
