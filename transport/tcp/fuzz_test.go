package tcp

import (
	"bytes"
	"errors"
	"net"
	"runtime"
	"testing"
	"time"
)

// What comes from the network may do no harm: no decoder panics, what it accepts it would have written the same, and what it
// allocates is bounded by what has come, whatever lengths are announced.

// allocated is how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// bound is how much may be allocated for n bytes: strings and lists of them take more than they did on the wire.
func bound(n int) uint64 { return 64<<10 + 64*uint64(n) }

func FuzzMessage(f *testing.F) {
	for k, p := range samples() {
		f.Add(message(k, p))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		var h header
		var payload, again []byte
		var err error
		n := allocated(func() {
			if h, payload, err = readMessage(bytes.NewReader(p)); err == nil && h.version == version {
				again, err = decode(h.kind, payload)
			}
		})
		if err == nil && h.version == version && !bytes.Equal(again, payload) {
			t.Errorf("kind %d: %x became %x", h.kind, payload, again)
		}
		if n > bound(len(p)) {
			t.Errorf("%d bytes made us allocate %d", len(p), n)
		}
	})
}

// FuzzHello: of another version only what comes up to the run id is read.
func FuzzHello(f *testing.F) {
	for _, v := range []uint16{0, version, 2, 1<<16 - 1} {
		f.Add(v, samples()[kindHello])
		f.Add(v, append((&hello{purpose: purposeRegister, from: 1<<32 - 1, runID: "\xff\x00"}).payload(), "fields of a later version"...))
	}
	f.Fuzz(func(t *testing.T, v uint16, p []byte) {
		h, err := decodeHello(v, p)
		if v == version {
			if err == nil && !bytes.Equal(h.payload(), p) {
				t.Errorf("%x became %x", p, h.payload())
			}
			return
		}
		if e := (*versionError)(nil); !errors.As(err, &e) || e.theirs != v {
			t.Fatalf("version %d: %v", v, err)
		}
		if h == nil {
			return
		}
		if known := h.payload()[:16+2+len(h.runID)]; !bytes.HasPrefix(p, known) {
			t.Errorf("%x was read as %x", p, known)
		}
	})
}

func FuzzTicket(f *testing.F) {
	f.Add(newTicket([ticketSize]byte{1, 2}, &peerInfo{tcp: "10.0.0.1:5000", unix: "@goccl-x"}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, p []byte) {
		nonce, info, err := readTicket(p)
		if err == nil && !bytes.Equal(newTicket(nonce, &info), p) {
			t.Errorf("%x became %x", p, newTicket(nonce, &info))
		}
	})
}

// FuzzAnswer is an acceptor whose caller says p: with a secret nobody gets in who could not see the challenge.
func FuzzAnswer(f *testing.F) {
	for _, auth := range []uint8{authNone, authSecret} {
		f.Add(message(kindHello, (&hello{purpose: purposeLink, auth: auth, runID: "run"}).payload()))
		f.Add(append(message(kindHello, (&hello{purpose: purposeRegister, auth: auth}).payload()), message(kindProof, make([]byte, proofSize))...))
	}
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"))
	f.Add(messageOf(2, kindHello, (&hello{purpose: purposeLink}).payload()))
	handlers := map[purpose]handler{purposeLink: counting{}}
	open := newServer(nil, roleRank, orDiscard(nil), handlers)
	guarded := newServer(&credentials{secret: theSecret}, roleRank, orDiscard(nil), handlers)
	f.Fuzz(func(t *testing.T, p []byte) {
		h, serve, err := open.receive(t.Context(), &scripted{in: bytes.NewReader(p)}, "fuzz")
		if err == nil && (h == nil || serve == nil) {
			t.Fatalf("%v, %v", h, err)
		}
		if _, _, err := guarded.receive(t.Context(), &scripted{in: bytes.NewReader(p)}, "fuzz"); err == nil {
			t.Fatal("a caller without the secret was let in")
		}
	})
}

// FuzzWelcome is an acceptor with TLS whose caller says p.
func FuzzWelcome(f *testing.F) {
	cred, err := newCredentials(theSecret, testCA.Loopback("a rank"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(message(kindHello, (&hello{purpose: purposeLink}).payload()))
	f.Add([]byte("\x15\x03\x03\x00\x02\x02\x28"))
	f.Add([]byte("SSH-2.0-OpenSSH_9.6\r\n"))
	f.Fuzz(func(t *testing.T, p []byte) {
		n := allocated(func() {
			if _, err := cred.welcome(&scripted{in: bytes.NewReader(p)}); err == nil {
				t.Fatal("a caller without a certificate was let in")
			}
		})
		if n > 1<<20+bound(len(p)) { // crypto/tls takes what it takes
			t.Errorf("%d bytes made us allocate %d", len(p), n)
		}
	})
}

// FuzzIntroduce is a dialler whose acceptor answers p: with a secret it is content with nobody who could not see its hello.
func FuzzIntroduce(f *testing.F) {
	for _, auth := range []uint8{authNone, authSecret} {
		p := message(kindChallenge, (&challenge{auth: auth, role: roleRank}).payload())
		f.Add(append(p, message(kindAccept, make([]byte, proofSize))...))
	}
	f.Add(message(kindReject, refuse("go away").payload()))
	f.Add(messageOf(7, kindReject, refuse("go away").payload()))
	f.Add([]byte("\x15\x03\x01\x00\x02\x02\x46\x00"))
	f.Fuzz(func(t *testing.T, p []byte) {
		h := hello{purpose: purposeLink, runID: "run"}
		open, guarded := h, h
		if _, err := (*credentials)(nil).introduce(t.Context(), &scripted{in: bytes.NewReader(p)}, "x", &open, nil); err == nil && len(p) < 2*headerSize {
			t.Fatal("content with half an answer")
		}
		c := &credentials{secret: theSecret}
		if _, err := c.introduce(t.Context(), &scripted{in: bytes.NewReader(p)}, "x", &guarded, nil); err == nil {
			t.Fatal("an acceptor without the secret was believed")
		}
	})
}

// A scripted connection has sent all it ever will.
type scripted struct {
	net.Conn
	in *bytes.Reader
}

func (s *scripted) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (s *scripted) Read(p []byte) (int, error)       { return s.in.Read(p) }
func (s *scripted) Write(p []byte) (int, error)      { return len(p), nil }
func (s *scripted) SetReadDeadline(time.Time) error  { return nil }
func (s *scripted) SetDeadline(time.Time) error      { return nil }
func (s *scripted) CloseWrite() error                { return nil }
func (s *scripted) Close() error                     { return nil }
func (s *scripted) SetWriteDeadline(time.Time) error { return nil }
