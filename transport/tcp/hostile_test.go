package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/goccl/goccl/internal/hostile"
	"github.com/goccl/goccl/transport"
)

// guards are the ways to keep strangers out. Without any, one that knows the run id and claims a rank is that rank for all that
// a coordinator can tell, so there the attack does not know it.
var guards = map[string]struct {
	cfg   Config
	knows bool
}{
	"neither": {Config{RunID: "guarded"}, false},
	"secret":  {Config{RunID: "guarded", Secret: theSecret}, true},
	"tls":     {Config{RunID: "guarded", TLS: testCA.Loopback("a rank")}, true},
	"both":    {Config{RunID: "guarded", Secret: theSecret, TLS: testCA.Loopback("a rank")}, true},
}

// An attack goes on until it is stopped.
type attack struct {
	stop    context.CancelFunc
	done    sync.WaitGroup
	mu      sync.Mutex
	reports []hostile.Report
}

// besiege sends strangers to all addresses, n of them to each.
func besiege(t *testing.T, knows bool, n int, addrs ...string) *attack {
	ctx, stop := context.WithCancel(t.Context())
	a := &attack{stop: stop}
	for _, addr := range addrs {
		target := hostile.Target{Addr: addr, Size: 4}
		if knows {
			target.RunID = "guarded"
		}
		a.done.Go(func() {
			r := target.Attack(ctx, 0, n)
			a.mu.Lock()
			defer a.mu.Unlock()
			a.reports = append(a.reports, r)
		})
	}
	return a
}

func (a *attack) end(t *testing.T, min int) {
	t.Helper()
	a.stop()
	a.done.Wait()
	sent := 0
	for _, r := range a.reports {
		if sent += r.Sent; r.Kept > 0 {
			t.Errorf("%v", r)
		}
	}
	if sent < min {
		t.Errorf("only %d strangers came", sent)
	}
}

// TestStrangersAtStart attacks the coordinator before and while the ranks meet.
func TestStrangersAtStart(t *testing.T) {
	for name, guard := range guards {
		t.Run(name, func(t *testing.T) {
			files := openFiles(t)
			var log lines
			cfgs := world(t, 4)
			at := cfgs[1].Coordinator
			for r := range cfgs {
				cfg := guard.cfg
				cfg.Rank, cfg.Size, cfg.Coordinator, cfg.Timeout, cfg.Listener = r, 4, at, 30*time.Second, cfgs[r].Listener
				cfg.Logger = logger(&log)
				cfgs[r] = cfg
			}
			n := 10 * len(hostile.Kinds)
			a := besiege(t, guard.knows, n, at)
			meshes, errs := startAll(t, cfgs)
			noErrors(t, errs)
			for _, m := range meshes {
				m.close()
			}
			a.end(t, len(hostile.Kinds))
			noneLeft(t, files)
			if n := strings.Count(log.String(), "dropped a connection"); n > 2*4 {
				t.Errorf("%d lines about strangers:\n%s", n, log.String())
			}
		})
	}
}

// TestStrangersAtWork attacks every port of a running group, the Unix-domain ones too, while it computes and opens more
// connections.
func TestStrangersAtWork(t *testing.T) {
	for name, guard := range guards {
		t.Run(name, func(t *testing.T) {
			files := openFiles(t)
			ts := newWorld(t, 3, guard.cfg)
			var addrs []string
			for r := range ts {
				addrs = append(addrs, ts[0].Addr(r))
				if at := ts[0].mesh.peers[r].unix; at != "" {
					addrs = append(addrs, at)
				}
			}
			n := 4 * len(hostile.Kinds)
			a := besiege(t, guard.knows, n, addrs...)
			var attacked atomic.Bool
			go func() { a.done.Wait(); attacked.Store(true) }()
			began := time.Now()
			for round := 0; round < 20 || !attacked.Load() && time.Since(began) < 2*time.Second; round++ {
				if errs := work(t, ts, uint64(round)); errs != nil {
					t.Fatalf("round %d: %v", round, errs)
				}
			}
			var closing sync.WaitGroup
			for _, tr := range ts {
				closing.Go(func() { tr.Close() })
			}
			closing.Wait()
			a.end(t, n)
			noneLeft(t, files)
		})
	}
}

// work sends some bytes round on the connections that are there, and on one of its own that may have to be opened.
func work(t *testing.T, ts []*Transport, round uint64) error {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	errs := make([]error, len(ts))
	var wg sync.WaitGroup
	for r, tr := range ts {
		wg.Go(func() {
			next, prev := (r+1)%len(ts), (r+len(ts)-1)%len(ts)
			for _, tag := range []transport.Tag{
				{Class: transport.Collective}, {Class: transport.Control}, {Class: transport.PointToPoint, Group: 1 + round%5},
			} {
				if errs[r] == nil {
					errs[r] = tr.Send(ctx, next, tag, make([]byte, 10_000))
				}
				if errs[r] == nil {
					errs[r] = tr.Recv(ctx, prev, tag, make([]byte, 10_000))
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// A scarce listener's process has few descriptors: when that many of its connections are open, the next is refused as the
// system does.
type scarce struct {
	net.Listener
	open *atomic.Int32
	most int32
}

func (l *scarce) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if l.open.Add(1) > l.most {
		l.open.Add(-1)
		conn.Close()
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: syscall.EMFILE}
	}
	return &counted{TCPConn: conn.(*net.TCPConn), open: l.open}, nil
}

type counted struct {
	*net.TCPConn
	open *atomic.Int32
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.TCPConn.Close()
}

// TestStrangersTakeDescriptors: strangers that say nothing hold every descriptor when the ranks come. They are dropped, and
// the start goes on; so does a dial that finds none free.
func TestStrangersTakeDescriptors(t *testing.T) {
	cfgs := world(t, 3)
	var open atomic.Int32
	cfgs[0].Listener = &scarce{cfgs[0].Listener, &open, 12}
	for range 40 {
		silent, err := net.Dial("tcp", cfgs[1].Coordinator)
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
	}
	meshes, errs := startAll(t, cfgs)
	noErrors(t, errs)

	full := machine()
	tries := 0
	dial := full.dial
	full.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if tries++; tries == 1 {
			return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.EMFILE}
		}
		return dial(ctx, network, address)
	}
	meshes[2].host.net = full
	silent, err := net.Dial("tcp", meshes[0].addr(2))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	srv := meshes[2].host.srv
	eventually(t, "the silent one to be pending", func() (bool, string) {
		srv.mu.Lock()
		defer srv.mu.Unlock()
		return srv.pending.Len() == 1, ""
	})
	conn, err := meshes[2].dial(t.Context(), 1, transport.PointToPoint, 9)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if srv.shed() {
		t.Error("the silent stranger still holds its descriptor")
	}
}

// noneLeft waits until no goroutine of this package is left beside tests, and no more files are open than were.
func noneLeft(t *testing.T, files int) {
	t.Helper()
	eventually(t, "everything to end", func() (bool, string) {
		runtime.GC()
		buf := make([]byte, 1<<20)
		var stray []string
		for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if strings.Contains(g, "goccl/transport/tcp.") && !strings.Contains(g, "testing.tRunner") {
				stray = append(stray, g)
			}
		}
		now := openFiles(t)
		return len(stray) == 0 && now <= files, fmt.Sprintf("%d files (had %d), goroutines: %s", now, files, strings.Join(stray, "\n\n"))
	})
}
