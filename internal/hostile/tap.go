package hostile

import (
	"io"
	"net"
	"sync"
)

// maxRecord is how much a Tap keeps of each connection.
const maxRecord = 4 << 10

// A Tap stands between honest diallers and the port they mean, and records how each of them begins.
type Tap struct {
	ln net.Listener
	to string
	wg sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	conns    []net.Conn
	recorded [][]byte
}

// NewTap forwards the connections of ln, which it owns, to addr.
func NewTap(ln net.Listener, addr string) *Tap {
	t := &Tap{ln: ln, to: addr}
	t.wg.Go(t.accept)
	return t
}

func (t *Tap) accept() {
	for {
		near, err := t.ln.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", t.to)
		if err != nil {
			near.Close()
			continue
		}
		t.mu.Lock()
		i := len(t.recorded)
		t.recorded = append(t.recorded, nil)
		t.conns = append(t.conns, near, far)
		if t.closed {
			near.Close()
			far.Close()
		}
		t.mu.Unlock()
		t.wg.Go(func() { pipe(far, io.TeeReader(near, &record{t, i})) })
		t.wg.Go(func() { pipe(near, far) })
	}
}

func pipe(to net.Conn, from io.Reader) {
	io.Copy(to, from)
	to.(*net.TCPConn).CloseWrite()
}

// A record takes the first bytes of one connection.
type record struct {
	t *Tap
	i int
}

func (r *record) Write(p []byte) (int, error) {
	r.t.mu.Lock()
	defer r.t.mu.Unlock()
	have := &r.t.recorded[r.i]
	*have = append(*have, p[:min(len(p), maxRecord-len(*have))]...)
	return len(p), nil
}

// Recorded returns a copy of what has been recorded, for a target's Recorded.
func (t *Tap) Recorded() [][]byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list [][]byte
	for _, p := range t.recorded {
		list = append(list, append([]byte(nil), p...))
	}
	return list
}

// Close ends the tap and whatever runs through it.
func (t *Tap) Close() {
	t.ln.Close()
	t.mu.Lock()
	t.closed = true
	for _, c := range t.conns {
		c.Close()
	}
	t.mu.Unlock()
	t.wg.Wait()
}
