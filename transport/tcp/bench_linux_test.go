package tcp

import (
	"fmt"
	"testing"
)

// BenchmarkExchange swaps bytes between two ranks of one process.
func BenchmarkExchange(b *testing.B) {
	for _, cfg := range []Config{{Link: "tcp"}, {Link: "auto"}, {Link: "tcp", TLS: testCA.Loopback("a rank")}} {
		for _, size := range []int{4, 64 << 10, 1 << 20, 16 << 20} {
			b.Run(fmt.Sprintf("link=%s/tls=%v/size=%d", cfg.Link, cfg.TLS != nil, size), func(b *testing.B) {
				ts := newWorld(b, 2, cfg)
				defer ts[0].Close()
				defer ts[1].Close()
				here, there := newSwap(ts[0], 1, size), newSwap(ts[1], 0, size)
				done := make(chan error, 1)
				n := b.N
				b.SetBytes(int64(size))
				b.ReportAllocs()
				b.ResetTimer()
				go func() {
					for range n {
						if err := there.run(b.Context()); err != nil {
							done <- err
							return
						}
					}
					done <- nil
				}()
				for range n {
					if err := here.run(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
				if err := <-done; err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}
