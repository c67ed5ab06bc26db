package hostile

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// guard accepts on a loopback port and does to each connection what the test says.
func guard(t *testing.T, do func(net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			do(conn)
		}
	}()
	return ln.Addr().String()
}

// A port that hangs up on everybody passes with every kind sent.
func TestAttackCounts(t *testing.T) {
	addr := guard(t, func(c net.Conn) { c.Close() })
	n := 2 * len(Kinds)
	r := Attack(t.Context(), addr, 0, n)
	if r.Sent != n || r.Kept != 0 || r.Refused != 0 || len(r.ByKind) != len(Kinds) {
		t.Errorf("%v", r)
	}
	if !strings.Contains(r.String(), "slow loris 2") {
		t.Errorf("%v", r)
	}
}

// A port that keeps a stranger is found out, and the context ends the attack.
func TestAttackEndsWithContext(t *testing.T) {
	came := make(chan net.Conn, 100)
	addr := guard(t, func(c net.Conn) { came <- c })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan Report)
	go func() { done <- Target{Addr: addr, Kinds: Named("one byte")}.Attack(ctx, 0, 3) }()
	for range 3 {
		conn := <-came
		defer conn.Close()
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil { // the stranger is past its dial then
			t.Fatal(err)
		}
	}
	began := time.Now()
	cancel()
	if r := <-done; r.Sent != 3 || r.Kept != 0 || time.Since(began) > Patience {
		t.Errorf("%v", r)
	}
	near, far := net.Pipe()
	defer far.Close()
	near.SetDeadline(time.Unix(1, 0))
	if endsWithin(near) {
		t.Error("a connection that stays open counts as ended")
	}
}

func TestPace(t *testing.T) {
	addr := guard(t, func(c net.Conn) { c.Close() })
	began := time.Now()
	Target{Addr: addr, Kinds: Named("scan")}.Attack(t.Context(), 100, 21)
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("20 intervals of 10 ms took %v", took)
	}
}

func TestTapRecords(t *testing.T) {
	addr := guard(t, func(c net.Conn) { go func() { io.Copy(c, c); c.Close() }() })
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tap := NewTap(ln, addr)
	defer tap.Close()
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	said := bytes.Repeat([]byte("0123456789"), 1000)
	go func() { conn.Write(said); conn.(*net.TCPConn).CloseWrite() }()
	back, err := io.ReadAll(conn)
	if err != nil || !bytes.Equal(back, said) {
		t.Fatalf("%d bytes came back, %v", len(back), err)
	}
	if got := tap.Recorded(); len(got) != 1 || !bytes.Equal(got[0], said[:maxRecord]) {
		t.Errorf("recorded %d streams", len(got))
	}
}
