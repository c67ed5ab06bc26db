package tcp

import (
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goccl/goccl/transport"
)

func TestSocketOptions(t *testing.T) {
	t.Parallel()
	meshes, errs := startAll(t, world(t, 2))
	noErrors(t, errs)
	for _, class := range []transport.Class{transport.PointToPoint, transport.Control} {
		dialled, err := meshes[1].dial(t.Context(), 0, class, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer dialled.Close()
		accepted, err := meshes[0].await(t.Context(), 1, class, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer accepted.Close()
		for _, c := range []net.Conn{dialled, accepted} {
			if n := sockopt(t, c, unix.IPPROTO_TCP, unix.TCP_NODELAY); n == 0 {
				t.Errorf("%v: TCP_NODELAY is off", class)
			}
			if n := sockopt(t, c, unix.SOL_SOCKET, unix.SO_KEEPALIVE); n == 0 {
				t.Errorf("%v: keepalive is off", class)
			}
			if n := sockopt(t, c, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE); n != 60 {
				t.Errorf("%v: keepalive after %d s idle", class, n)
			}
			want := 0
			if class == transport.Control {
				want = 120_000
			}
			if n := sockopt(t, c, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT); n != want {
				t.Errorf("%v: TCP_USER_TIMEOUT is %d ms, want %d", class, n, want)
			}
			if n, err := rtoMax(t, c); err != nil {
				t.Logf("TCP_RTO_MAX_MS: %v: this kernel lacks it", err)
			} else if class == transport.Control && n != 1000 {
				t.Errorf("a control frame is sent again after up to %d ms", n)
			}
			raw, _ := c.(*net.TCPConn).SyscallConn()
			raw.Control(func(fd uintptr) {
				if name, err := unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION); err != nil || strings.TrimRight(name, "\x00") != "cubic" {
					t.Logf("congestion control %q, %v: this kernel lacks cubic, or keeps it from us", name, err)
				}
			})
		}
	}
}

func rtoMax(t *testing.T, c net.Conn) (ms int, err error) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { ms, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_RTO_MAX_MS) })
	return ms, err
}

func sockopt(t *testing.T, c net.Conn, level, name int) (value int) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { value, err = unix.GetsockoptInt(int(fd), level, name) })
	if err != nil {
		t.Fatal(err)
	}
	return value
}
