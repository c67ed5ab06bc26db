//go:build !race

package tcp

import "testing"

// Under TLS crypto/tls allocates once for each record that it reads, however often a waiting rank looks for one; with the race
// detector its buffer pool forgets on purpose, hence the constraint.
func TestTLSExchangeAllocations(t *testing.T) {
	for name, c := range exchangeKinds {
		t.Run(name, func(t *testing.T) {
			records := 2 * (c.size/maxSealed + 1)
			if n := exchangeAllocations(t, Config{TLS: testCA.Loopback("a rank")}, c.size, c.spin); n > float64(records) {
				t.Errorf("%v allocations per exchange of %d records", n, records)
			}
		})
	}
}
