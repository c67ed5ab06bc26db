package ring

import (
	"context"
	"fmt"
	"testing"

	"github.com/goccl/goccl/dtype"
	"github.com/goccl/goccl/transport"
)

// instant is a transport whose peers always have sent zeros.
type instant struct{ transport.Transport }

func (instant) Exchange(_ context.Context, _ transport.Tag, steps []transport.Step) error {
	for i := range steps {
		for left := int(steps[i].InLen); left > 0; {
			w := steps[i].In.Window()
			clear(w)
			if err := steps[i].In.Advance(len(w)); err != nil {
				return err
			}
			left -= len(w)
		}
	}
	return nil
}

// BenchmarkOverhead is what a small all-reduce costs apart from its transport.
func BenchmarkOverhead(b *testing.B) {
	for _, n := range []int{2, 8} {
		b.Run(fmt.Sprintf("ranks=%d", n), func(b *testing.B) {
			ts := roomy.make(b, n)
			x := NewExecutor(instant{ts[0]}, 0, Options{})
			buf := f32s(1)
			c := Call{Op: OpAllReduce, Dst: buf, Src: buf, Reduce: dtype.Sum}
			for b.Loop() {
				if err := x.Run(b.Context(), 0, &c); err != nil {
					b.Fatal(err)
				}
			}
			for _, t := range ts {
				t.Close()
			}
		})
	}
}
