package tcp

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"
)

// tlsFDs are the ends of a connection for collectives under TLS, with little room on the way.
func tlsFDs(t testing.TB) (near, far *tlsFD) {
	t.Helper()
	a, b := tlsEnds(t)
	var ends [2]*tlsFD
	for i, c := range []*tlsConn{a, b} {
		conn, err := collectiveConn(c)
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = conn.(*tlsFD)
		t.Cleanup(func() { conn.Close() })
	}
	return ends[0], ends[1]
}

// TestTLSTryWrite offers bytes as the engine does: as long as they are not counted it comes again, with as many or fewer, and
// by then may have other bytes in that memory. The peer gets what was offered first.
func TestTLSTryWrite(t *testing.T) {
	near, far := tlsFDs(t)
	want := pattern(4 << 20)
	got := make([]byte, 0, len(want))
	in := make([]byte, 96<<10)
	blocked, partly := 0, 0
	for sent := 0; len(got) < len(want); {
		room := false
		if sent < len(want) {
			offer := bytes.Clone(want[sent:min(len(want), sent+1+rand.IntN(64<<10))])
			if near.sealed > 0 {
				clear(offer)
			}
			cut := rand.IntN(len(offer) + 1)
			before := near.sealed
			n, err := near.TryWrite(offer[:cut], offer[cut:])
			if err != nil {
				t.Fatal(err)
			}
			if room = n > 0; !room {
				blocked++
			}
			if n < before {
				partly++
			}
			sent += n
		}
		if !room {
			n, err := far.TryRead(in[:7], in[7:])
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, in[:n]...)
		}
	}
	if !bytes.Equal(got, want) {
		t.Error("the bytes are not those that were offered")
	}
	if blocked == 0 || partly == 0 {
		t.Errorf("blocked %d times, counted in part %d times: nothing was tested", blocked, partly)
	}
	if err := near.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if n, err := far.Read(in); n != 0 || err != io.EOF {
		t.Errorf("at the end: %d, %v", n, err)
	}
	if n, err := far.TryRead(in, nil); n != 0 || err != io.EOF {
		t.Errorf("and again: %d, %v", n, err)
	}
}

// TestTLSTryNothing: no bytes are no record, and nothing to read is no error.
func TestTLSTryNothing(t *testing.T) {
	near, far := tlsFDs(t)
	if n, err := near.TryWrite(nil, nil); n != 0 || err != nil || len(near.wire.out) != 0 {
		t.Errorf("%d, %v", n, err)
	}
	for range 2 {
		if n, err := far.TryRead(nil, make([]byte, 10)); n != 0 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	unix.Shutdown(near.fd.fd, unix.SHUT_RDWR)
	if n, err := near.TryWrite([]byte("x"), nil); n != 0 || err == nil {
		t.Errorf("on a dead socket: %d, %v", n, err)
	}
}

// BenchmarkTLS is the path of collectives under TLS, one way.
func BenchmarkTLS(b *testing.B) {
	near, far := tlsFDs(b)
	out, in := pattern(64<<10), make([]byte, 64<<10)
	b.SetBytes(int64(len(out)))
	b.ReportAllocs()
	for b.Loop() {
		for sent, got := 0, 0; got < len(out); {
			if sent < len(out) {
				n, err := near.TryWrite(nil, out[sent:])
				if err != nil {
					b.Fatal(err)
				}
				sent += n
			}
			n, err := far.TryRead(nil, in[got:])
			if err != nil {
				b.Fatal(err)
			}
			got += n
		}
	}
}
