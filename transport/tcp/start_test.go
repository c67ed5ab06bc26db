package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goccl/goccl/transport"
)

// listener is a caller's own listener on a free loopback port.
func listener(t testing.TB) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// freePort is an address that nobody listens on and that nothing takes by chance: its port is below those that the system
// hands out.
func freePort(t testing.TB) string {
	t.Helper()
	for range 100 {
		at := fmt.Sprintf("127.0.0.1:%d", 12000+rand.IntN(18000))
		if ln, err := net.Listen("tcp", at); err == nil {
			ln.Close()
			return at
		}
	}
	t.Fatal("no free port")
	return ""
}

// world gives size configurations that meet at a free loopback port; each may be changed before they start.
func world(t testing.TB, size int) []Config {
	ln := listener(t)
	cfgs := make([]Config, size)
	for r := range cfgs {
		cfgs[r] = Config{Rank: r, Size: size, Coordinator: ln.Addr().String(), Timeout: 30 * time.Second}
	}
	cfgs[0].Listener = ln
	return cfgs
}

// startAll joins every configuration at once and returns what each got. Meshes are closed with the test.
func startAll(t testing.TB, cfgs []Config) ([]*mesh, []error) {
	t.Helper()
	meshes, errs := make([]*mesh, len(cfgs)), make([]error, len(cfgs))
	var wg sync.WaitGroup
	for i, cfg := range cfgs {
		wg.Go(func() { meshes[i], errs[i] = join(t.Context(), cfg, fullMesh) })
	}
	wg.Wait()
	t.Cleanup(func() {
		for _, m := range meshes {
			if m != nil {
				m.close()
			}
		}
	})
	return meshes, errs
}

// fullMesh opens what the transport opens and sends each peer a greeting both ways, so that no connection is mixed up.
func fullMesh(ctx context.Context, m *mesh) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for peer := range m.size {
		for _, class := range []transport.Class{transport.Collective, transport.Control} {
			if peer != m.rank {
				wg.Go(func() {
					if err := greet(ctx, m, peer, class, 0); err != nil {
						cancel(err)
					}
				})
			}
		}
	}
	wg.Wait()
	return context.Cause(ctx)
}

func greet(ctx context.Context, m *mesh, peer int, class transport.Class, group uint64) error {
	with := m.await
	if m.rank > peer {
		with = m.dial
	}
	conn, err := with(ctx, peer, class, group)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := interruptible(ctx, conn, 0)
	defer stop()
	say := func(from, to int) string { return fmt.Sprintf("%04d>%04d %d %08x", from, to, class, group) }
	if _, err := io.WriteString(conn, say(m.rank, peer)); err != nil {
		return err
	}
	got := make([]byte, len(say(0, 0)))
	if _, err := io.ReadFull(conn, got); err != nil {
		return fmt.Errorf("from rank %d: %w", peer, err)
	}
	if string(got) != say(peer, m.rank) {
		return fmt.Errorf("rank %d got %q from rank %d", m.rank, got, peer)
	}
	return nil
}

func noErrors(t testing.TB, errs []error) {
	t.Helper()
	for i, err := range errs {
		if err != nil {
			t.Errorf("config %d: %v", i, err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// wantAll checks that every error is a *JoinError whose text contains all of the words.
func wantAll(t *testing.T, errs []error, words ...string) {
	t.Helper()
	for i, err := range errs {
		var e *JoinError
		if !errors.As(err, &e) {
			t.Errorf("config %d: got %v, want a *JoinError", i, err)
			continue
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("config %d: %q lacks %q", i, err, w)
			}
		}
	}
}

func TestWorlds(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 2, 3, 5, 8} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			meshes, errs := startAll(t, world(t, size))
			noErrors(t, errs)
			for _, m := range meshes {
				for peer := range m.size {
					if size > 1 && m.addr(peer) == "" || !m.sameHost(peer) {
						t.Errorf("rank %d knows rank %d as %q, same host %v", m.rank, peer, m.addr(peer), m.sameHost(peer))
					}
				}
			}
		})
	}
}

func TestLinkKinds(t *testing.T) {
	t.Parallel()
	for _, link := range []string{"", "auto", "tcp", "unix"} {
		if link == "unix" && !abstractSockets {
			continue
		}
		cfgs := world(t, 2)
		for i := range cfgs {
			cfgs[i].Link = link
		}
		meshes, errs := startAll(t, cfgs)
		noErrors(t, errs)
		for _, class := range []transport.Class{transport.Collective, transport.PointToPoint, transport.Control} {
			conn, err := meshes[1].dial(t.Context(), 0, class, 7)
			if err != nil {
				t.Fatal(err)
			}
			conn.Close()
			_, unix := conn.(*net.UnixConn)
			if want := abstractSockets && link != "tcp" && class == transport.Collective; unix != want {
				t.Errorf("link %q, %v: a Unix-domain socket: %v, want %v", link, class, unix, want)
			}
		}
	}
}

// TestUnixSocketsOutOfReach has ranks that look like one host and yet cannot reach each other's Unix-domain sockets.
func TestUnixSocketsOutOfReach(t *testing.T) {
	t.Parallel()
	if !abstractSockets {
		return
	}
	for _, link := range []string{"auto", "unix"} {
		cfgs := world(t, 2)
		for r := range cfgs {
			fake := machine()
			dial := fake.dial
			fake.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				if network == "unix" {
					return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.EACCES}
				}
				return dial(ctx, network, address)
			}
			cfgs[r].Link, cfgs[r].net = link, fake
		}
		_, errs := startAll(t, cfgs)
		if link == "auto" {
			noErrors(t, errs)
		} else {
			wantAll(t, errs, "permission denied", "collective connection")
		}
	}
	cfgs := world(t, 2)
	cfgs[0].Link, cfgs[1].Link = "tcp", "unix"
	_, errs := startAll(t, cfgs)
	wantAll(t, errs, `Link "unix"`, "share no Unix-domain sockets")
}

func TestPeers44_SixtyFourRanks(t *testing.T) {
	cfgs := world(t, 64)
	began := time.Now()
	_, errs := startAll(t, cfgs)
	noErrors(t, errs)
	t.Logf("64 ranks in one process met in %v", time.Since(began))
}

func TestPeers38_FiftyGroupsAtOnce(t *testing.T) {
	t.Parallel()
	var all []Config
	for range 50 {
		all = append(all, world(t, 3)...)
	}
	_, errs := startAll(t, all)
	noErrors(t, errs)
}

func TestPeers37_WorkersFirst(t *testing.T) {
	t.Parallel()
	cfgs := world(t, 4)
	cfgs[0].Listener.Close()
	cfgs[0].Listener = nil
	at := freePort(t)
	refused := make(chan struct{})
	var once sync.Once
	for r := range cfgs {
		cfgs[r].Coordinator = at
		fake := machine()
		dial := fake.dial
		fake.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dial(ctx, network, address)
			if err != nil {
				once.Do(func() { close(refused) })
			}
			return c, err
		}
		cfgs[r].net = fake
	}
	meshes, errs := make([]*mesh, 4), make([]error, 4)
	var wg sync.WaitGroup
	for r := range cfgs {
		wg.Go(func() {
			if r == 0 {
				<-refused // rank 0 comes when the others have been refused
			}
			meshes[r], errs[r] = join(t.Context(), cfgs[r], fullMesh)
		})
	}
	wg.Wait()
	noErrors(t, errs)
	for _, m := range meshes {
		m.close()
	}
}

// TestNoLeaks starts, fails and closes worlds and then finds neither goroutines nor descriptors of them.
func TestNoLeaks(t *testing.T) {
	warm, errs := startAll(t, world(t, 2)) // the runtime's own poller stays
	noErrors(t, errs)
	for _, m := range warm {
		m.close()
	}
	files := openFiles(t)
	meshes, errs := startAll(t, world(t, 4))
	noErrors(t, errs)
	if _, err := meshes[2].dial(t.Context(), 1, transport.PointToPoint, 9); err != nil { // parked at rank 1, never awaited
		t.Fatal(err)
	}
	cfgs := world(t, 3)
	cfgs[2].Size = 2
	cfgs[2].Rank = 1
	_, errs = startAll(t, cfgs)
	wantAll(t, errs, "sizes disagree")
	for _, m := range meshes {
		m.close()
		m.close()
	}
	noneLeft(t, files)
}

func openFiles(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(list)
}

// eventually polls cond, which must come true within a bound.
func eventually(t *testing.T, what string, cond func() (bool, string)) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; runtime.Gosched() {
		ok, state := cond()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s: %s", what, state)
		}
	}
}

// lines is a logger's output.
type lines struct {
	mu  sync.Mutex
	buf strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func logger(l *lines) *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }
