package link

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccl/goccl/transport"
)

// A scripted connection gives what its peer "sent" in the portions of the script and notes what is written.
type scripted struct {
	come   [][]byte // "" would block once; after the last comes end
	end    error    // nil: would block for ever
	room   int      // bytes that can be written; less than 0: any number
	writes []int    // sizes
	reads  int
	out    bytes.Buffer
}

func (c *scripted) TryRead(head, body []byte) (int, error) {
	if len(c.come) == 0 {
		return 0, c.end
	}
	n := copy(head, c.come[0])
	n += copy(body, c.come[0][n:])
	c.reads++
	if c.come[0] = c.come[0][n:]; len(c.come[0]) == 0 {
		c.come = c.come[1:]
	}
	return n, nil
}

func (c *scripted) TryWrite(head, body []byte) (int, error) {
	b := slices.Concat(head, body)
	if c.room >= 0 {
		b = b[:min(len(b), c.room)]
		c.room -= len(b)
	}
	if len(b) > 0 {
		c.writes = append(c.writes, len(b))
	}
	return c.out.Write(b)
}

func (c *scripted) Read([]byte) (int, error)         { panic("blocking read") }
func (c *scripted) Write([]byte) (int, error)        { panic("blocking write") }
func (c *scripted) Close() error                     { return nil }
func (c *scripted) SetReadDeadline(time.Time) error  { return nil }
func (c *scripted) SetWriteDeadline(time.Time) error { return nil }

// A stepWaiter runs a hook each time the engine would sleep.
type stepWaiter struct {
	spins int // how often Spin says to go on
	waits int
	armed []bool // read, write of the last Arm
	hook  func(wait int)
}

func (w *stepWaiter) Spin(idle int) bool          { return idle < w.spins }
func (w *stepWaiter) Arm(_ int, read, write bool) { w.armed = []bool{read, write} }
func (w *stepWaiter) Wake()                       {}
func (w *stepWaiter) Wait(context.Context) {
	if w.waits++; w.waits > 100 {
		panic("the engine waits for ever")
	}
	if w.hook != nil {
		w.hook(w.waits)
	}
}

// sink takes bytes into memory; final, if set, says what Final returns.
type sink struct {
	b     []byte
	got   int
	shut  bool
	final func() int64
}

func (s *sink) Advance(n int) error { s.got += n; return nil }

func (s *sink) Window() []byte {
	if s.shut {
		return nil
	}
	return s.b[s.got:]
}

func (s *sink) Final() int64 {
	if s.final != nil {
		return s.final()
	}
	return int64(s.got)
}

// newTestEngine is rank 0's, with one peer per connection.
func newTestEngine(w Waiter, checksum bool, conns ...*scripted) *Engine {
	closed := make(chan struct{})
	streams := []*Stream{nil}
	for i, c := range conns {
		streams = append(streams, newStream(c, Endpoint{Rank: i + 1, Addr: "there", Local: true}, transport.Collective, checksum, closed))
	}
	return newEngine(streams, w, closed)
}

var collective = transport.Tag{Class: transport.Collective, Match: 9}

// A gated send leaves in pieces worth a call while anything else moves, in any pieces when nothing does, and never early.
func TestGatedSendPieces(t *testing.T) {
	const size = 300_000
	in, out := &scripted{}, &scripted{room: -1}
	payload := bytes.Repeat([]byte("0123456789"), size/10)
	come := frame(collective, payload, false)
	for len(come) > 0 { // 10,000 bytes at a time
		n := min(10_000, len(come))
		in.come, come = append(in.come, come[:n]), come[n:]
	}
	into := &sink{b: make([]byte, size)}
	e := newTestEngine(&stepWaiter{}, false, in, out)
	steps := []transport.Step{{Peer: 1, In: into, InLen: size}, {Peer: 2, Out: into.b, After: 1}}
	if err := e.Exchange(t.Context(), collective, steps); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out.out.Bytes(), frame(collective, payload, false)) {
		t.Fatal("what was passed on is not what came")
	}
	for i, n := range out.writes[:len(out.writes)-1] {
		if n < minPiece {
			t.Errorf("piece %d of %v is small although more was coming", i, out.writes)
		}
	}
	// The rest of a frame may be stuck until the peer gets the little there is.
	stuck := &scripted{come: [][]byte{frame(collective, payload, false)[:HeaderSize+500]}}
	into, out = &sink{b: make([]byte, size)}, &scripted{room: -1}
	w := &stepWaiter{spins: 3, hook: func(wait int) {
		if wait == 1 && out.out.Len() != HeaderSize+500 {
			t.Errorf("%d bytes were passed on before the engine slept, expected %d", out.out.Len(), HeaderSize+500)
		}
		stuck.come = [][]byte{payload[500:]}
	}}
	e = newTestEngine(w, false, stuck, out)
	steps = []transport.Step{{Peer: 1, In: into, InLen: size}, {Peer: 2, Out: into.b, After: 1}}
	if err := e.Exchange(t.Context(), collective, steps); err != nil || w.waits == 0 {
		t.Fatalf("%v after %d waits", err, w.waits)
	}
	if !bytes.Equal(out.out.Bytes(), frame(collective, payload, false)) {
		t.Fatal("what was passed on is not what came")
	}
}

// A rank does not run ahead of what it receives, until nothing else moves.
func TestSendAhead(t *testing.T) {
	const size = 5 << 20
	conn := &scripted{room: -1}
	w := &stepWaiter{spins: 2}
	e := newTestEngine(w, false, conn)
	w.hook = func(int) { conn.come = [][]byte{frame(collective, make([]byte, size), false)} }
	first := 0
	into := &sink{b: make([]byte, size)}
	spin := e.waiter
	e.waiter = hookedSpin{spin, func() {
		if first == 0 {
			first = conn.out.Len()
		}
	}}
	if err := e.Exchange(t.Context(), collective, []transport.Step{{Peer: 1, Out: make([]byte, size)}, {Peer: 1, In: into, InLen: size}}); err != nil {
		t.Fatal(err)
	}
	if first != HeaderSize+maxAhead {
		t.Errorf("%d bytes left before anything came, expected %d", first, HeaderSize+maxAhead)
	}
	if conn.out.Len() != HeaderSize+size || slices.Max(conn.writes) > HeaderSize+maxPiece {
		t.Errorf("writes of %v", conn.writes)
	}
}

type hookedSpin struct {
	Waiter
	hook func()
}

func (h hookedSpin) Spin(idle int) bool { h.hook(); return h.Waiter.Spin(idle) }

// A list that cannot end is an error, not a hang.
func TestStuck(t *testing.T) {
	payload := frame(collective, make([]byte, 10), false)
	for name, steps := range map[string][]transport.Step{
		"sink":          {{Peer: 1, In: &sink{b: make([]byte, 10), shut: true}, InLen: 10}},
		"gate":          {{Peer: 1, In: &sink{b: make([]byte, 10), final: func() int64 { return 0 }}, InLen: 10}, {Peer: 1, Out: []byte{1}, After: 1}},
		"negative gate": {{Peer: 1, In: &sink{b: make([]byte, 10), final: func() int64 { return -5 }}, InLen: 10}, {Peer: 1, Out: []byte{1}, After: 1}},
	} {
		e := newTestEngine(&stepWaiter{}, false, &scripted{come: [][]byte{payload}, room: -1})
		if err := e.Exchange(t.Context(), collective, steps); err == nil || !strings.HasPrefix(err.Error(), "BUG: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Before it sleeps, the engine names the directions that would block, and those only.
func TestArms(t *testing.T) {
	conn := &scripted{room: 0}
	w := &stepWaiter{}
	w.hook = func(wait int) {
		switch wait {
		case 1:
			if !slices.Equal(w.armed, []bool{true, true}) {
				t.Errorf("armed %v with both directions blocked", w.armed)
			}
			conn.room = -1
		case 2:
			if !slices.Equal(w.armed, []bool{true, false}) {
				t.Errorf("armed %v with only the receive blocked", w.armed)
			}
			conn.come = [][]byte{frame(collective, []byte("x"), false)}
		}
	}
	e := newTestEngine(w, false, conn)
	err := e.Exchange(t.Context(), collective, []transport.Step{{Peer: 1, Out: []byte("y")}, {Peer: 1, In: &sink{b: make([]byte, 1)}, InLen: 1}})
	if err != nil || w.waits != 2 {
		t.Errorf("%v after %d waits", err, w.waits)
	}
}

// The context and closing are looked at after every sleep, and now and then in a run that never sleeps.
func TestStops(t *testing.T) {
	receive := []transport.Step{{Peer: 1, In: &sink{b: make([]byte, 1)}, InLen: 1}}
	for _, spins := range []int{0, 1 << 30} {
		ctx, cancel := context.WithCancelCause(t.Context())
		e := newTestEngine(nil, false, &scripted{})
		e.waiter = hookedSpin{&stepWaiter{spins: spins}, func() { cancel(errCause) }}
		if err := e.Exchange(ctx, collective, receive); !errors.Is(err, errCause) {
			t.Errorf("context: %v", err)
		}
		e = newTestEngine(nil, false, &scripted{})
		e.waiter = hookedSpin{&stepWaiter{spins: spins}, func() { e.interrupt() }}
		if err := e.Exchange(t.Context(), collective, receive); !errors.Is(err, net.ErrClosed) {
			t.Errorf("closing: %v", err)
		}
	}
}

func TestEngineFaults(t *testing.T) {
	whole := frame(collective, []byte("payload"), false)
	for name, c := range map[string]struct {
		come  []byte
		is    error
		words string
	}{
		"end":              {nil, io.EOF, "EOF"},
		"end in header":    {whole[:10], io.ErrUnexpectedEOF, ""},
		"end in payload":   {whole[:HeaderSize+2], io.ErrUnexpectedEOF, ""},
		"garbage":          {bytes.Repeat([]byte{'x'}, 100), nil, "protocol error: frame begins with"},
		"payload checksum": {append(frame(collective, []byte("payload"), true), 1, 2, 3, 4), nil, "protocol error: payload has checksum"},
	} {
		e := newTestEngine(&stepWaiter{}, false, &scripted{come: [][]byte{c.come}, end: io.EOF, room: -1})
		for range 2 {
			err := e.Exchange(t.Context(), collective, []transport.Step{{Peer: 1, In: &sink{b: make([]byte, 7)}, InLen: 7}})
			var fault *transport.PeerError
			if !errors.As(err, &fault) || fault.Rank != 1 || !strings.Contains(err.Error(), c.words) || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// A frame may come and go in any portions, its checksum too.
func TestTornFrames(t *testing.T) {
	payload := []byte("some payload")
	sent := &scripted{room: -1}
	out := newTestEngine(&stepWaiter{}, true, sent)
	if err := out.Exchange(t.Context(), collective, []transport.Step{{Peer: 1, Out: payload}, {Peer: 1}}); err != nil {
		t.Fatal(err)
	}
	whole := sent.out.Bytes()
	torn := &scripted{}
	for i := range whole {
		torn.come = append(torn.come, whole[i:i+1])
	}
	into := &sink{b: make([]byte, len(payload))}
	in := newTestEngine(&stepWaiter{}, false, torn)
	err := in.Exchange(t.Context(), collective, []transport.Step{{Peer: 1, In: into, InLen: int64(len(payload))}, {Peer: 1, In: &sink{}}})
	if err != nil || !bytes.Equal(into.b, payload) {
		t.Errorf("%q, %v", into.b, err)
	}
	slow := &scripted{}
	w := &stepWaiter{}
	w.hook = func(int) { slow.room = 3 }
	out = newTestEngine(w, true, slow)
	if err := out.Exchange(t.Context(), collective, []transport.Step{{Peer: 1, Out: payload}, {Peer: 1}}); err != nil || !bytes.Equal(slow.out.Bytes(), whole) {
		t.Errorf("sent three bytes at a time: %v\n%x, expected\n%x", err, slow.out.Bytes(), whole)
	}
}

// A large frame that has arrived costs one read, a small one none of its own.
func TestReads(t *testing.T) {
	const large = 300_000
	payload := bytes.Repeat([]byte("0123456789"), large/10)
	for _, torn := range []int{0, 10, HeaderSize, HeaderSize + 1} { // where a read ends
		come := slices.Concat(frame(collective, payload, false), frame(collective, []byte("small"), false), frame(collective, []byte("also"), false))
		conn := &scripted{come: [][]byte{come}}
		if torn > 0 {
			conn.come = [][]byte{come[:torn], come[torn:]}
		}
		a, b, c := &sink{b: make([]byte, large)}, &sink{b: make([]byte, 5)}, &sink{b: make([]byte, 4)}
		e := newTestEngine(&stepWaiter{}, false, conn)
		err := e.Exchange(t.Context(), collective, []transport.Step{
			{Peer: 1, In: a, InLen: large}, {Peer: 1, In: b, InLen: 5}, {Peer: 1, In: c, InLen: 4}})
		if err != nil || !bytes.Equal(a.b, payload) || string(b.b) != "small" || string(c.b) != "also" {
			t.Fatalf("torn at %d: %v", torn, err)
		}
		if torn == 0 && conn.reads != 2 {
			t.Errorf("%d reads", conn.reads)
		}
	}
}
