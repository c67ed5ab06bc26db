package ring

import (
	"context"
	"fmt"
	"testing"
)

// Scenario 8: with fewer elements than ranks another path is taken, which is broken or slow (ompi PR#8186). Lengths 0 to n+1
// for n = 1 to 9, every type, operation and algorithm, against the oracle.
func TestPeers08_FewerElementsThanRanks(t *testing.T) {
	for n := 1; n <= 9; n++ {
		if testing.Short() && n > 5 && n != 8 {
			continue
		}
		for op, algorithms := range reductions {
			for _, a := range algorithms {
				t.Run(fmt.Sprintf("%d/%v/%v", n, op, a), func(t *testing.T) {
					var script []reduction
					for _, typ := range allTypes {
						for _, reduce := range opsOf(typ) {
							for count := range n + 2 {
								k := len(script)
								r := reduction{op: op, t: typ, reduce: reduce, count: count, root: k % n, inPlace: k%2 == 1, special: k%3 == 0}
								if op == OpReduceScatter && count%n != 0 {
									r.counts = unequal(count, n)
								}
								script = append(script, r)
							}
						}
					}
					runScript(t, roomy, n, Options{Algorithm: a}, script)
				})
			}
		}
		for op, algorithms := range movements {
			for _, a := range algorithms {
				roomy.run(t, n, Options{Algorithm: a}, func(ctx context.Context, x *Executor) error {
					for count := range n + 2 {
						for k, typ := range allTypes {
							m := movement{op: op, t: typ, counts: evenParts(n, count), root: (count + k) % n}
							if op != OpBroadcast && k%2 == 1 {
								m.counts, m.v = unequal(count, n), true // count in all
							}
							if err := m.run(ctx, x, uint64(count*len(allTypes)+k)); err != nil {
								return err
							}
						}
					}
					return nil
				})
			}
		}
	}
}
