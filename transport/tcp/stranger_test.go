package tcp

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccl/goccl/transport"
)

// strangerKinds is what knocks on open ports.
var strangerKinds = map[string]func(c *net.TCPConn){
	"nothing":    func(c *net.TCPConn) {},
	"one byte":   func(c *net.TCPConn) { c.Write([]byte{0x89}) },
	"half magic": func(c *net.TCPConn) { c.Write([]byte(magic[:4])) },
	"http":       func(c *net.TCPConn) { io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n") },
	"tls":        func(c *net.TCPConn) { c.Write([]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 and so on")) },
	"noise": func(c *net.TCPConn) {
		p := make([]byte, 4096)
		for i := range p {
			p[i] = byte(rand.Uint32())
		}
		c.Write(p)
	},
	"hang up":       func(c *net.TCPConn) { c.Close() },
	"reset":         func(c *net.TCPConn) { c.SetLinger(0); c.Close() },
	"half close":    func(c *net.TCPConn) { c.CloseWrite() },
	"huge length":   func(c *net.TCPConn) { c.Write([]byte(magic + "\x01\x00\x01\x00\xff\xff\xff\xff")) },
	"unknown kind":  func(c *net.TCPConn) { c.Write([]byte(magic + "\x01\x00\x63\x00\x00\x00\x00\x00")) },
	"hello only":    func(c *net.TCPConn) { c.Write(message(kindHello, (&hello{purpose: purposeLink}).payload())) },
	"table first":   func(c *net.TCPConn) { c.Write(message(kindTable, make([]byte, 100))) },
	"broken hello":  func(c *net.TCPConn) { c.Write(message(kindHello, []byte{1, 2, 3})) },
	"wrong purpose": func(c *net.TCPConn) { c.Write(message(kindHello, (&hello{purpose: 9}).payload())) },
	"secret": func(c *net.TCPConn) {
		c.Write(message(kindHello, (&hello{purpose: purposeRegister, auth: 1}).payload()))
	},
	"never registers": func(c *net.TCPConn) {
		c.Write(message(kindHello, (&hello{purpose: purposeRegister, from: 1, to: nobody, size: 4}).payload()))
		c.Write(message(kindProof, make([]byte, proofSize)))
	},
	"another run": func(c *net.TCPConn) {
		c.Write(message(kindHello, (&hello{purpose: purposeRegister, runID: "another"}).payload()))
		c.Write(message(kindProof, make([]byte, proofSize)))
	},
}

// knock sends every kind of stranger n times and leaves those that stay silent connected until the test ends.
func knock(t *testing.T, at string, n int) {
	for range n {
		for _, do := range strangerKinds {
			c, err := net.Dial("tcp", at)
			if err != nil {
				t.Errorf("a stranger could not even connect: %v", err)
				return
			}
			t.Cleanup(func() { c.Close() })
			do(c.(*net.TCPConn))
		}
	}
}

// TestPeers76_Strangers has more strangers than may be pending before, during and after a start.
func TestPeers76_Strangers(t *testing.T) {
	cfgs := world(t, 4)
	var log lines
	for r := range cfgs {
		cfgs[r].Logger = logger(&log)
	}
	at := cfgs[1].Coordinator
	rounds := maxPending/len(strangerKinds) + 5
	knock(t, at, rounds)
	stop := make(chan struct{})
	var during sync.WaitGroup
	during.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				knock(t, at, 1)
			}
		}
	})
	meshes, errs := startAll(t, cfgs)
	close(stop)
	during.Wait()
	noErrors(t, errs)
	_, port, _ := net.SplitHostPort(meshes[0].addr(2))
	knock(t, "127.0.0.1:"+port, rounds)

	conn, err := meshes[3].dial(t.Context(), 2, transport.PointToPoint, 5)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	for _, m := range meshes {
		m.close()
	}
	if n := strings.Count(log.String(), "dropped a connection"); n == 0 || n > 4*4 {
		t.Errorf("%d lines about strangers in the log, want a few", n)
	}
	if !strings.Contains(log.String(), "unreported=") {
		t.Error("the log does not count the strangers it leaves out")
	}
	if strings.Contains(log.String(), "unreported=0") {
		t.Error("the log counts strangers where it leaves out none")
	}
}

// A counting handler accepts everything.
type counting struct{ took chan *hello }

func (c counting) check(context.Context, *hello, net.Conn) *rejection { return nil }
func (c counting) take(conn net.Conn, h *hello, settled func()) error {
	settled()
	conn.Close()
	c.took <- h
	return nil
}
func (c counting) refused(*hello, error, string) {}

// TestSilentStrangerIsDropped: also one that says a byte now and then, and under TLS.
func TestSilentStrangerIsDropped(t *testing.T) {
	t.Parallel()
	if handshakeTimeout > 10*time.Second {
		t.Errorf("a silent stranger stays for %v", handshakeTimeout)
	}
	secured, err := newCredentials(nil, testCA.Loopback("a rank"))
	if err != nil {
		t.Fatal(err)
	}
	said := string(message(kindHello, (&hello{purpose: purposeLink}).payload()))
	for _, cred := range []*credentials{nil, secured} {
		ln := listener(t)
		s := newServer(cred, roleRank, orDiscard(nil), nil)
		s.patience = 200 * time.Millisecond
		s.serve(ln)
		defer s.close()
		for _, first := range []string{"", magic, said, "\x16\x03\x01", clientHello(t)} {
			c, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			io.WriteString(c, first)
			c.SetReadDeadline(time.Now().Add(5 * time.Second))
			if _, err := io.Copy(io.Discard, c); err != nil && !strings.Contains(err.Error(), "reset") {
				t.Errorf("after %q: %v, want the end of the connection", first, err)
			}
		}
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for began, i := time.Now(), 0; ; i++ {
			if _, err := c.Write([]byte{(said + said)[i%len(said)]}); err != nil {
				break
			}
			if time.Since(began) > 5*time.Second {
				t.Error("one that says a byte now and then may stay")
				break
			}
			time.Sleep(s.patience / 20)
		}
	}
}

// clientHello is how a TLS client begins.
func clientHello(t *testing.T) string {
	near, far := net.Pipe()
	defer far.Close()
	defer near.Close()
	go tls.Client(near, &tls.Config{InsecureSkipVerify: true}).Handshake()
	p := make([]byte, 4<<10)
	n, err := far.Read(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(p[:n])
}

func TestPendingIsBounded(t *testing.T) {
	t.Parallel()
	ln := listener(t)
	took := make(chan *hello, 1)
	s := newServer(nil, roleRank, orDiscard(nil), map[purpose]handler{purposeLink: counting{took}})
	s.serve(ln)
	defer s.close()
	var first net.Conn
	for i := range maxPending + 50 {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if i == 0 {
			first = c
		}
	}
	first.SetReadDeadline(time.Now().Add(5 * time.Second))
	if n, err := first.Read(make([]byte, 1)); n != 0 || err == nil || strings.Contains(err.Error(), "timeout") {
		t.Errorf("the oldest stranger was not pushed out: %v", err)
	}
	conn := pretend(t, ln.Addr().String(), &hello{purpose: purposeLink, from: 3})
	defer conn.Close()
	if h := <-took; h.from != 3 {
		t.Errorf("took %+v", h)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.pending.Len(); n > maxPending {
		t.Errorf("%d pending connections, at most %d allowed", n, maxPending)
	}
}

// TestHandshakeLeavesTheRest has a dialler that sends on at once: the handler must get its bytes.
func TestHandshakeLeavesTheRest(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	s := newServer(nil, roleRank, orDiscard(nil), map[purpose]handler{purposeLink: counting{}})
	h := hello{purpose: purposeLink, runID: "r", from: 1, group: 7}
	go func() {
		near.Write(append(message(kindHello, h.payload()), append(message(kindProof, make([]byte, proofSize)), "data"...)...))
	}()
	go io.Copy(io.Discard, near)
	got, _, err := s.receive(t.Context(), far, "test")
	if err != nil || got.group != 7 || got.runID != "r" {
		t.Fatalf("%+v, %v", got, err)
	}
	rest := make([]byte, 4)
	if _, err := io.ReadFull(far, rest); err != nil || string(rest) != "data" {
		t.Errorf("left %q, %v", rest, err)
	}
}

// A hungLog is a log handler that takes one record and does not return until it is released.
type hungLog struct {
	slog.Handler
	came, release chan struct{}
}

func (h hungLog) Enabled(context.Context, slog.Level) bool { return true }

func (h hungLog) Handle(context.Context, slog.Record) error {
	close(h.came)
	<-h.release
	return nil
}

// While a logger hangs, only the stranger that it hangs on stays.
func TestHungLoggerHoldsOneStranger(t *testing.T) {
	h := hungLog{came: make(chan struct{}), release: make(chan struct{})}
	defer close(h.release)
	s := &strangers{log: slog.New(h)}
	go s.report("a", io.EOF)
	<-h.came
	done := make(chan struct{})
	go func() {
		s.report("b", io.EOF)
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("a second stranger waits for the logger")
	}
	if s.hidden != 1 {
		t.Errorf("%d unreported, want 1", s.hidden)
	}
}
