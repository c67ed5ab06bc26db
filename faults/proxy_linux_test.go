package faults

import (
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Classes of connections, as in HELLO.
const (
	collective = 1
	messages   = 2
	control    = 3
)

// A wire is the network between the ranks of a job: every connection between two of them goes through it, in the test's own
// process, where it can be held up or cut.
type wire struct {
	t       *testing.T
	plan    plan
	mu      sync.Mutex
	changed *sync.Cond
	open    map[net.Conn]bool
	closed  bool
	blocked func(way) bool  // nil: nothing is
	cut     *cut            // nil: nothing is cut
	pace    func(n int) int // how many of n bytes to pass on at once; nil: all
	relays  sync.WaitGroup
}

// A way is one direction of one connection.
type way struct {
	from, to int // ranks; stranger: not known
	class    byte
	dialled  bool // from has dialled
	epoch    uint64
}

// stranger is the dialler in a later epoch: its number there does not tell who it was in the world that was launched.
const stranger = -1

// A cut ends the first connection it fits after that many bytes.
type cut struct {
	way   way
	after int
	reset bool
	done  chan struct{} // closed when it has happened
}

// newWire makes a network for n ranks and completes the plan.
func newWire(t *testing.T, n int, p plan) *wire {
	w := &wire{t: t, plan: p, open: map[net.Conn]bool{}}
	w.changed = sync.NewCond(&w.mu)
	w.plan.Link = "tcp"
	t.Cleanup(w.relays.Wait) // after what is cleaned up for each rank
	w.plan.Listen = loopbackAddrs(n)
	for r, target := range w.plan.Listen {
		ln, err := net.Listen("tcp", net.JoinHostPort(strings.Split(target, ":")[0], "0"))
		if err != nil {
			t.Fatal(err)
		}
		w.plan.Advertise = append(w.plan.Advertise, ln.Addr().String())
		w.relays.Go(func() { w.accept(ln, r, target) })
		t.Cleanup(func() { ln.Close(); w.close() })
	}
	return w
}

func (w *wire) close() {
	w.mu.Lock()
	w.closed = true
	for c := range w.open {
		c.Close()
	}
	w.mu.Unlock()
	w.changed.Broadcast()
}

func (w *wire) accept(ln net.Listener, rank int, target string) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		w.relays.Go(func() { w.carry(conn.(*net.TCPConn), rank, target) })
	}
}

// carry connects a dialler with the rank it wants.
func (w *wire) carry(dialler *net.TCPConn, rank int, target string) {
	defer w.forget(dialler)
	if !w.keep(dialler) {
		return
	}
	hello, up, err := readHello(dialler, rank)
	if err != nil {
		return
	}
	conn, err := net.Dial("tcp", target)
	if err != nil {
		return // as if the rank had refused it
	}
	acceptor := conn.(*net.TCPConn)
	defer w.forget(acceptor)
	if !w.keep(acceptor) {
		return
	}
	down := way{from: up.to, to: up.from, class: up.class, epoch: up.epoch}
	var both sync.WaitGroup
	both.Go(func() { w.relay(acceptor, dialler, up, hello) })
	both.Go(func() { w.relay(dialler, acceptor, down, nil) })
	both.Wait()
}

// readHello reads the first message of a dialler and returns it with what it says. SPEC.md has its layout.
func readHello(conn net.Conn, to int) (hello []byte, up way, err error) {
	head := make([]byte, 16)
	if _, err := io.ReadFull(conn, head); err != nil {
		return nil, up, err
	}
	payload := make([]byte, min(binary.LittleEndian.Uint32(head[12:]), 512))
	if _, err := io.ReadFull(conn, payload); err != nil {
		return nil, up, err
	}
	up = way{from: int(binary.LittleEndian.Uint32(payload[4:])), to: to, class: payload[2], dialled: true}
	runID := int(binary.LittleEndian.Uint16(payload[16:]))
	if up.epoch = binary.LittleEndian.Uint64(payload[18+runID+16+8:]); up.epoch > 0 {
		up.from = stranger
	}
	return append(head, payload...), up, nil
}

func (w *wire) keep(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open[c] = true
	return !w.closed
}

func (w *wire) forget(c net.Conn) {
	c.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open, c)
}

// relay passes one direction on, its end included.
func (w *wire) relay(to, from *net.TCPConn, way way, first []byte) {
	left := w.cutAfter(way)
	err := w.pass(to, first, way, &left)
	buf := make([]byte, 64<<10)
	for err == nil {
		var n int
		n, err = from.Read(buf)
		if e := w.pass(to, buf[:n], way, &left); e != nil {
			err = e
		}
	}
	switch {
	case errors.Is(err, errCut):
		w.sever(to, from)
	case errors.Is(err, io.EOF):
		w.hold(way)
		_ = to.CloseWrite()
	case errors.Is(err, syscall.ECONNRESET):
		w.hold(way)
		_ = to.SetLinger(0)
		to.Close()
	default: // a write failed: whoever it was for is gone, and the sender sees that
		_ = from.SetLinger(0)
		from.Close()
	}
}

var errCut = errors.New("cut")

// pass writes bytes when the network lets them through.
func (w *wire) pass(to net.Conn, p []byte, way way, left *int) error {
	for len(p) > 0 {
		w.hold(way)
		n := len(p)
		if w.pace != nil {
			n = w.pace(n)
		}
		if *left >= 0 {
			n = min(n, *left)
		}
		if _, err := to.Write(p[:n]); err != nil {
			return err
		}
		p = p[n:]
		if *left >= 0 {
			if *left -= n; *left == 0 {
				return errCut
			}
		}
	}
	return nil
}

// hold waits while a way is blocked.
func (w *wire) hold(way way) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.blocked != nil && w.blocked(way) && !w.closed {
		w.changed.Wait()
	}
}

// block changes what is blocked; nil: nothing.
func (w *wire) block(blocked func(way) bool) (at int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blocked = blocked
	w.changed.Broadcast()
	return now()
}

// cutAfter returns after how many bytes a new way is to be cut; -1: never.
func (w *wire) cutAfter(way way) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut == nil || w.cut.way != way {
		return -1
	}
	return w.cut.after
}

// sever ends both directions of a connection, once.
func (w *wire) sever(a, b *net.TCPConn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut == nil {
		return
	}
	for _, c := range []*net.TCPConn{a, b} {
		if w.cut.reset {
			_ = c.SetLinger(0)
		}
		c.Close()
	}
	close(w.cut.done)
	w.cut = nil
}

// trickle passes few bytes at a time, and now and then waits.
func trickle(n int) int {
	if rand.IntN(200) == 0 {
		time.Sleep(rand.N(20 * time.Millisecond))
	}
	return 1 + rand.IntN(min(n, 3000))
}
