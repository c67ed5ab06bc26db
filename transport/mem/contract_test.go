package mem_test

import (
	"testing"

	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/mem"
	"github.com/goccl/goccl/transport/transporttest"
)

func TestContract(t *testing.T) {
	for _, c := range []struct {
		name    string
		options mem.Options
		large   int
	}{
		{"default", mem.Options{}, 0},
		{"tiny", mem.Options{Buffer: 200}, 1 << 19},
		{"jitter", mem.Options{Buffer: 5000, Jitter: 1}, 1 << 20},
		{"checksum", mem.Options{Checksum: true}, 4 << 20},
		{"jitter and checksum", mem.Options{Buffer: 500, Jitter: 2, Checksum: true}, 1 << 19},
	} {
		t.Run(c.name, func(t *testing.T) {
			transporttest.RunWith(t, transporttest.Options{Large: c.large}, func(_ *testing.T, n int) []transport.Transport {
				return mem.NewWorldWith(n, c.options)
			})
		})
	}
	t.Run("plain", func(t *testing.T) {
		transporttest.RunWith(t, transporttest.Options{Large: 4 << 20}, func(_ *testing.T, n int) []transport.Transport {
			ts := mem.NewWorld(n)
			for i := range ts {
				ts[i] = transporttest.Plain(ts[i])
			}
			return ts
		})
	})
}
