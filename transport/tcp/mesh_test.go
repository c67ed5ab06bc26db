package tcp

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/goccl/goccl/transport"
)

// sayHello says hello to rank 0 of a world of two, changed by edit, and returns the connection or what rank 0 said.
func sayHello(t *testing.T, m *mesh, edit func(h *hello)) (net.Conn, error) {
	t.Helper()
	conn, err := net.Dial("tcp", m.addr(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	h := &hello{purpose: purposeLink, class: transport.Control, group: 42, world: m.world, runID: m.host.runID, from: 1, to: 0, size: 2}
	edit(h)
	_, err = m.host.cred.introduce(t.Context(), conn, "127.0.0.1", h, nil)
	return conn, err
}

func TestLinkRefusals(t *testing.T) {
	t.Parallel()
	cfgs := world(t, 2)
	for r := range cfgs {
		cfgs[r].RunID = "run 7"
	}
	meshes, errs := startAll(t, cfgs)
	noErrors(t, errs)
	for want, edit := range map[string]func(h *hello){
		"you look for rank 1, this is rank 0":                               func(h *hello) { h.to = 1 },
		`run id differs: you belong to "run 6", this rank to "run 7"`:       func(h *hello) { h.runID = "run 6" },
		"sizes disagree: you say 3, rank 0 says 2":                          func(h *hello) { h.size = 3 },
		"you belong to another start of this run":                           func(h *hello) { h.world[3]++ },
		"rank 0 does not connect to rank 0 of 2":                            func(h *hello) { h.from = 0 },
		"rank 2 does not connect to rank 0 of 2":                            func(h *hello) { h.from = 2 },
		"epoch 1 is not this one":                                           func(h *hello) { h.epoch = 1 },
		"class 0 unknown":                                                   func(h *hello) { h.class = 0 },
		"class 9 unknown":                                                   func(h *hello) { h.class = 9 },
		"nobody serves purpose 9 here":                                      func(h *hello) { h.purpose = 9 },
		`rank 1 belongs to "run 8", the run at `:                            func(h *hello) { h.purpose, h.runID = purposeRegister, "run 8" },
		"rank 0 has a control connection for group 0x0 with rank 1 already": func(h *hello) { h.group = 0 },
	} {
		_, err := sayHello(t, meshes[1], edit)
		if r := (*rejection)(nil); !errors.As(err, &r) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	// None of them may have taken the place of a real one.
	if _, err := sayHello(t, meshes[1], func(*hello) {}); err != nil {
		t.Error(err)
	}
}

func TestParkedReplacedAndBounded(t *testing.T) {
	t.Parallel()
	cfgs := world(t, 2)
	meshes, errs := startAll(t, cfgs)
	noErrors(t, errs)
	zero, one := meshes[0], meshes[1]

	old, err := sayHello(t, one, func(*hello) {})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first connection to be parked", func() (bool, string) { return zero.parkedOf(1) == 1, "" })
	fresh, err := sayHello(t, one, func(*hello) {})
	if err != nil {
		t.Fatal(err)
	}
	old.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := old.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "timeout") {
		t.Errorf("the replaced connection is still open: %v", err)
	}
	got, err := zero.await(t.Context(), 1, transport.Control, 42)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	if got.RemoteAddr().String() != fresh.LocalAddr().String() {
		t.Errorf("awaited %v, want %v", got.RemoteAddr(), fresh.LocalAddr())
	}
	if _, err := sayHello(t, one, func(*hello) {}); err == nil {
		t.Error("a second connection was accepted beside one in use")
	}
	for i := range maxParked {
		if _, err := sayHello(t, one, func(h *hello) { h.group = uint64(1000 + i) }); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all to be parked", func() (bool, string) { return zero.parkedOf(1) == maxParked, "" })
	_, err = sayHello(t, one, func(h *hello) { h.group = 5000 })
	if r := (*rejection)(nil); !errors.As(err, &r) || r.code != rejectBusy {
		t.Errorf("beyond the bound: %v", err)
	}
	zero.forget(1000)
	if _, err := sayHello(t, one, func(h *hello) { h.group = 5000 }); err != nil {
		t.Errorf("after one was forgotten: %v", err)
	}
	zero.forget(42)
	if _, err := sayHello(t, one, func(*hello) {}); err == nil {
		t.Error("there was room again, though only one place had been made")
	}
	zero.forget(1001)
	late, err := sayHello(t, one, func(h *hello) { h.group = 1001 })
	if err != nil {
		t.Fatal(err)
	}
	late.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := late.Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Errorf("a connection for a group that has ended is kept: %v", err)
	}
	if n := zero.parkedOf(1); n != maxParked-1 {
		t.Errorf("%d connections are parked, want %d", n, maxParked-1)
	}
}

func (m *mesh) parkedOf(peer uint32) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.parked[peer]
}

func TestAwaitEnds(t *testing.T) {
	t.Parallel()
	meshes, errs := startAll(t, world(t, 2))
	noErrors(t, errs)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	_, err := meshes[0].await(ctx, 1, transport.PointToPoint, 3)
	var pe *transport.PeerError
	if !errors.Is(err, why) || !errors.As(err, &pe) || pe.Rank != 1 || pe.Addr != meshes[0].addr(1) {
		t.Errorf("%v", err)
	}
	done := make(chan error)
	go func() {
		_, err := meshes[0].await(t.Context(), 1, transport.PointToPoint, 3)
		done <- err
	}()
	meshes[0].close()
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("await on a closed mesh: %v", err)
	}
	if _, err := meshes[0].dial(t.Context(), 1, transport.PointToPoint, 3); !errors.Is(err, net.ErrClosed) {
		t.Errorf("dial on a closed mesh: %v", err)
	}
}

func TestDialGonePeer(t *testing.T) {
	t.Parallel()
	cfgs := world(t, 3)
	meshes, errs := startAll(t, cfgs)
	noErrors(t, errs)
	meshes[1].close()
	began := time.Now()
	_, err := meshes[2].dial(t.Context(), 1, transport.PointToPoint, 0)
	var pe *transport.PeerError
	if !errors.As(err, &pe) || pe.Rank != 1 || !strings.Contains(err.Error(), "refused") {
		t.Errorf("%v", err)
	}
	if took := time.Since(began); took > 2*refusedPatience {
		t.Errorf("took %v", took)
	}
}
