package tcp

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// tlsEnds are the two ends of a TCP connection under TLS, with small socket buffers.
func tlsEnds(t testing.TB) (dialler, acceptor *tlsConn) {
	t.Helper()
	cred, err := newCredentials(nil, testCA.Loopback("a rank"))
	if err != nil {
		t.Fatal(err)
	}
	ln := listener(t)
	defer ln.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		conn, err := ln.Accept()
		if err == nil {
			conn.(*net.TCPConn).SetReadBuffer(64 << 10)
			conn, err = cred.welcome(conn)
		}
		if err != nil {
			t.Error(err)
		}
		accepted <- conn
	}()
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn.(*net.TCPConn).SetWriteBuffer(64 << 10)
	near, err := cred.secure(t.Context(), conn, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	far := <-accepted
	t.Cleanup(func() { near.Close(); far.Close() })
	return near.(*tlsConn), far.(*tlsConn)
}

func pattern(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i>>8) ^ byte(i*7)
	}
	return p
}

// TestTLSWriteCutOff ends writes by their deadline, again and again, and goes on after each: the peer gets every byte once.
func TestTLSWriteCutOff(t *testing.T) {
	near, far := tlsEnds(t)
	want := pattern(1 << 20)
	cut := 0
	for rest := want; len(rest) > 0 || cut == 0; {
		near.SetWriteDeadline(time.Now().Add(5 * time.Millisecond))
		v := net.Buffers{rest[:len(rest)/3], rest[len(rest)/3:]}
		n, err := near.WriteBuffers(&v)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		left := bytes.Join(v, nil)
		if rest = rest[n:]; !bytes.Equal(left, rest) {
			t.Fatalf("%d written, %d left in the buffers, want %d", n, len(left), len(rest))
		}
		if err == nil {
			continue
		}
		if cut++; cut == 3 { // from now on somebody reads
			go func() {
				got, err := io.ReadAll(far)
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("got %d bytes of %d, %v", len(got), len(want), err)
				}
				far.CloseWrite()
			}()
		}
	}
	near.SetWriteDeadline(time.Time{})
	if _, err := near.Write(nil); err != nil { // what is sealed leaves
		t.Fatal(err)
	}
	if err := near.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, near); err != nil {
		t.Error(err)
	}
	if cut < 3 {
		t.Errorf("cut off %d times", cut)
	}
}

// TestTLSReadCutOff ends a read by its deadline in the middle of a record: nothing is lost.
func TestTLSReadCutOff(t *testing.T) {
	near, far := tlsEnds(t)
	if _, err := near.tls.Write([]byte("in two halves")); err != nil { // sealed, not sent
		t.Fatal(err)
	}
	record := bytes.Clone(near.wire.out)
	near.wire.out = near.wire.out[:0]
	for _, half := range [][]byte{record[:10], record[10:]} {
		far.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		if n, err := far.Read(make([]byte, 100)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%d, %v", n, err)
		}
		if _, err := near.sock.Write(half); err != nil {
			t.Fatal(err)
		}
	}
	far.SetReadDeadline(time.Time{})
	p := make([]byte, 100)
	if n, err := far.Read(p); err != nil || string(p[:n]) != "in two halves" {
		t.Errorf("%q, %v", p[:n], err)
	}
}

// TestTLSEndWithoutRoom says goodbye on a full socket: finish does the rest, and the peer sees a proper end.
func TestTLSEndWithoutRoom(t *testing.T) {
	near, far := tlsEnds(t)
	n := 0
	for room := true; room; {
		k, err := near.seal(pattern(maxSealed), nil)
		if err != nil {
			t.Fatal(err)
		}
		n += k
		if room, err = near.wire.flush(func(p []byte) (int, error) { return tryWrite(near.sock, p) }); err != nil {
			t.Fatal(err)
		}
	}
	if err := near.CloseWrite(); err != nil || near.ended() {
		t.Fatalf("ended although there was no room, %v", err)
	}
	got := make(chan int)
	go func() {
		p, err := io.ReadAll(far)
		if err != nil {
			t.Error(err)
		}
		got <- len(p)
	}()
	eventually(t, "the end to leave", func() (bool, string) { return near.ended(), "" })
	if m := <-got; m != n {
		t.Errorf("%d bytes arrived, %d were written", m, n)
	}
}

// TestTLSWireIsBounded: what crypto/tls says on its own, in answer to a peer that does not listen, is kept only so far; and
// what it says while another goroutine sends goes behind that.
func TestTLSWireIsBounded(t *testing.T) {
	w := &wire{sealing: true}
	if _, err := w.Write([]byte("first")); err != nil {
		t.Fatal(err)
	}
	var sent bytes.Buffer
	done, err := w.flush(func(p []byte) (int, error) {
		if sent.Len() == 0 {
			w.Write([]byte(", then"))
		}
		n := min(len(p), 2)
		return sent.Write(p[:n])
	})
	if !done || err != nil || sent.String() != "first, then" {
		t.Errorf("%q, %v, %v", sent.String(), done, err)
	}
	full := false
	for range maxUnsent {
		if _, err := w.Write(make([]byte, 27)); err != nil {
			full = true
			break
		}
	}
	if !full || len(w.out) > maxUnsent {
		t.Errorf("%d bytes are kept", len(w.out))
	}
}
