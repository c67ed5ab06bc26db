package ring_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/goccl/goccl/dtype"
	"github.com/goccl/goccl/ring"
	"github.com/goccl/goccl/transport/mem"
)

// Three ranks of one process average their vectors.
func ExampleAllReduce() {
	var wg sync.WaitGroup
	for _, t := range mem.NewWorld(3) {
		wg.Go(func() {
			defer t.Close()
			v := []float32{float32(t.Rank()), 10}
			if err := ring.AllReduce(context.Background(), t, dtype.Of(v), dtype.Mean); err != nil {
				fmt.Println(err)
				return
			}
			if t.Rank() == 0 {
				fmt.Println(v)
			}
		})
	}
	wg.Wait()
	// Output: [1 10]
}

// An Executor numbers its calls and keeps its memory from one to the next.
func ExampleExecutor() {
	var wg sync.WaitGroup
	for _, t := range mem.NewWorld(2) {
		wg.Go(func() {
			defer t.Close()
			x := ring.NewExecutor(t, 0, ring.Options{})
			v := dtype.Of([]int64{1, 2, 3})
			for seq := range uint64(10) {
				c := ring.Call{Op: ring.OpAllReduce, Dst: v, Src: v, Reduce: dtype.Sum}
				if err := x.Run(context.Background(), seq, &c); err != nil {
					fmt.Println(err)
					return
				}
			}
			if s, err := dtype.View[int64](v); err == nil && t.Rank() == 1 {
				fmt.Println(s)
			}
		})
	}
	wg.Wait()
	// Output: [1024 2048 3072]
}

func ExampleChoose() {
	b := dtype.Of(make([]float32, 1<<20))
	c := ring.Call{Op: ring.OpAllReduce, Dst: b, Src: b, Reduce: dtype.Sum}
	a, why := ring.Choose(&c, 8, ring.Auto, nil)
	fmt.Printf("%v: %s\n", a, why)
	// Output: ring: neighbours only, all links busy at once above 262144 bytes
}
