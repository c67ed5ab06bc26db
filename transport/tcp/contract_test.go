package tcp

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/transporttest"
)

// newWorld connects n ranks over loopback.
func newWorld(t testing.TB, n int, cfg Config) []*Transport {
	t.Helper()
	var listener net.Listener
	if n > 1 {
		var err error
		if listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		cfg.Coordinator = listener.Addr().String()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ts := make([]*Transport, n)
	var wg sync.WaitGroup
	for rank := range ts {
		c := cfg
		c.Rank, c.Size = rank, n
		if rank == 0 {
			c.Listener = listener
		}
		wg.Go(func() {
			var err error
			if ts[rank], err = Connect(ctx, c); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return ts
}

func TestContract(t *testing.T) {
	for _, c := range []struct {
		name  string
		cfg   Config
		plain bool
		large int
	}{
		{"tcp", Config{Link: "tcp"}, false, 0},
		{"unix", Config{Link: "auto", Checksum: true}, false, 16 << 20},
		{"plain", Config{Link: "tcp"}, true, 16 << 20},
		{"tls", Config{Link: "tcp", Secret: theSecret, TLS: testCA.Loopback("a rank")}, false, 16 << 20},
		{"tls unix", Config{Link: "auto", TLS: testCA.Loopback("a rank"), Checksum: true}, false, 16 << 20},
		{"tls plain", Config{Link: "tcp", TLS: testCA.Loopback("a rank")}, true, 4 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			transporttest.RunWith(t, transporttest.Options{Large: c.large}, func(t *testing.T, n int) []transport.Transport {
				ts := make([]transport.Transport, n)
				for i, tr := range newWorld(t, n, c.cfg) {
					ts[i] = tr
					if c.plain {
						ts[i] = transporttest.Plain(tr)
					}
				}
				return ts
			})
		})
	}
}
