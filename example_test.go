package goccl_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"sync"

	"github.com/goccl/goccl"
	"github.com/goccl/goccl/dtype"
	"github.com/goccl/goccl/transport/mem"
)

// onRanks runs a program on n ranks that are goroutines of this process, and prints what rank 0 returns.
func onRanks(n int, program func(ctx context.Context, g *goccl.ProcessGroup) (any, error)) {
	var wg sync.WaitGroup
	for _, t := range mem.NewWorld(n) {
		wg.Go(func() {
			g, err := goccl.New(t, goccl.Config{})
			if err != nil {
				log.Fatal(err)
			}
			defer g.Close()
			out, err := program(context.Background(), g)
			if err != nil {
				log.Fatal(err)
			}
			if g.IsLeader() {
				fmt.Println(out)
			}
		})
	}
	wg.Wait()
}

// Two ranks of a job meet over TCP. Usually they are processes, and what JoinConfig says comes from the environment.
func ExampleJoin() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	var wg sync.WaitGroup
	for rank := range 2 {
		wg.Go(func() {
			cfg := goccl.JoinConfig{Rank: rank, Size: 2, Coordinator: ln.Addr().String()}
			if rank == 0 {
				cfg.Listener = ln
			}
			g, err := goccl.Join(context.Background(), cfg)
			if err != nil {
				log.Fatal(err)
			}
			defer g.Close()
			gradients := []float32{float32(rank), 10}
			if err := goccl.AllReduce(context.Background(), g, gradients, goccl.Mean); err != nil {
				log.Fatal(err)
			}
			if rank == 0 {
				fmt.Println(gradients)
			}
		})
	}
	wg.Wait()
	// Output: [0.5 10]
}

func ExampleNew() {
	g, err := goccl.New(mem.Solo(), goccl.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()
	fmt.Println(g.Rank(), g.Size(), g.IsLeader())
	// Output: 0 1 true
}

func ExampleAllReduce() {
	onRanks(4, func(ctx context.Context, g *goccl.ProcessGroup) (any, error) {
		x := []float64{1, float64(g.Rank())}
		return x, goccl.AllReduce(ctx, g, x, goccl.Sum)
	})
	// Output: [4 6]
}

// Buckets of gradients are averaged while the next ones are being computed.
func ExampleAllReduceAsync() {
	onRanks(2, func(ctx context.Context, g *goccl.ProcessGroup) (any, error) {
		buckets := [][]float32{{1, 2}, {3}, {4, 5, 6}}
		var works []*goccl.Work
		for _, b := range buckets {
			works = append(works, goccl.AllReduceAsync(ctx, g, b, goccl.Mean))
		}
		for _, w := range works {
			if err := w.Wait(ctx); err != nil {
				return nil, err
			}
		}
		return buckets, nil
	})
	// Output: [[1 2] [3] [4 5 6]]
}

func ExampleReduceScatter() {
	onRanks(2, func(ctx context.Context, g *goccl.ProcessGroup) (any, error) {
		part := make([]int32, 2)
		return part, goccl.ReduceScatter(ctx, g, part, []int32{1, 2, 3, 4}, goccl.Sum)
	})
	// Output: [2 4]
}

func ExampleAllGather() {
	onRanks(3, func(ctx context.Context, g *goccl.ProcessGroup) (any, error) {
		all := make([]int64, 3)
		return all, goccl.AllGather(ctx, g, all, []int64{int64(g.Rank() * 10)})
	})
	// Output: [0 10 20]
}

func ExampleAllGatherV() {
	onRanks(3, func(ctx context.Context, g *goccl.ProcessGroup) (any, error) {
		counts := []int{2, 0, 1} // known to all
		mine := make([]uint8, counts[g.Rank()])
		for i := range mine {
			mine[i] = uint8(g.Rank())
		}
		all := make([]uint8, 3)
		return all, goccl.AllGatherV(ctx, g, all, mine, counts)
	})
	// Output: [0 0 2]
}

func ExampleBroadcast() {
	onRanks(3, func(ctx context.Context, g *goccl.ProcessGroup) (any, error) {
		weights := make([]float32, 2)
		if g.Rank() == 2 {
			weights = []float32{0.25, 0.75}
		}
		return weights, goccl.Broadcast(ctx, g, weights, 2)
	})
	// Output: [0.25 0.75]
}

func ExampleReduce() {
	onRanks(3, func(ctx context.Context, g *goccl.ProcessGroup) (any, error) {
		var total []float64 // used on the root only
		if g.IsLeader() {
			total = make([]float64, 1)
		}
		return total, goccl.Reduce(ctx, g, total, []float64{1.5}, goccl.Sum, 0)
	})
	// Output: [4.5]
}

func ExampleGather() {
	onRanks(3, func(ctx context.Context, g *goccl.ProcessGroup) (any, error) {
		var all []int8
		if g.IsLeader() {
			all = make([]int8, 3)
		}
		return all, goccl.Gather(ctx, g, all, []int8{int8(g.Rank())}, 0)
	})
	// Output: [0 1 2]
}

func ExampleScatter() {
	onRanks(2, func(ctx context.Context, g *goccl.ProcessGroup) (any, error) {
		var shards []float32
		if g.Rank() == 1 {
			shards = []float32{1, 2, 3, 4}
		}
		mine := make([]float32, 2)
		return mine, goccl.Scatter(ctx, g, mine, shards, 1)
	})
	// Output: [1 2]
}

func ExampleAllToAll() {
	onRanks(2, func(ctx context.Context, g *goccl.ProcessGroup) (any, error) {
		src := []int32{int32(10 * g.Rank()), int32(10*g.Rank() + 1)}
		dst := make([]int32, 2)
		return dst, goccl.AllToAll(ctx, g, dst, src)
	})
	// Output: [0 10]
}

func ExampleAllToAllV() {
	onRanks(2, func(ctx context.Context, g *goccl.ProcessGroup) (any, error) {
		if g.Rank() == 0 { // keeps 1, gives 2
			dst := make([]int32, 1)
			return dst, goccl.AllToAllV(ctx, g, dst, []int{1, 0}, []int32{7, 8, 9}, []int{1, 2})
		}
		dst := make([]int32, 2)
		return dst, goccl.AllToAllV(ctx, g, dst, []int{2, 0}, nil, []int{0, 0})
	})
	// Output: [7]
}

func ExampleSend() {
	onRanks(2, func(ctx context.Context, g *goccl.ProcessGroup) (any, error) {
		const tag = 7
		if g.Rank() == 1 {
			return nil, goccl.Send(ctx, g, 0, tag, []float32{1, 2, 3})
		}
		return goccl.Recv[float32](ctx, g, 1, tag)
	})
	// Output: [1 2 3]
}

func ExampleProcessGroup_Split() {
	onRanks(4, func(ctx context.Context, g *goccl.ProcessGroup) (any, error) {
		half, err := g.Split(ctx, g.Rank()%2, g.Rank()) // even ranks, odd ranks
		if err != nil {
			return nil, err
		}
		defer half.Close()
		x := []int32{int32(g.Rank())}
		return x, goccl.AllReduce(ctx, half, x, goccl.Sum)
	})
	// Output: [2]
}

// A program that lets processes come in now and then. Where nobody waits, Admit costs a small collective.
func ExampleProcessGroup_Admit() {
	onRanks(2, func(ctx context.Context, g *goccl.ProcessGroup) (any, error) {
		weights := []float32{1, 2}
		for range 3 { // epochs of the training
			next, err := g.Admit(ctx)
			if err != nil {
				return nil, err
			}
			if next != g { // others are in: give them the state
				g = next
				if err := goccl.Broadcast(ctx, g, weights, 0); err != nil {
					return nil, err
				}
			}
			if err := goccl.AllReduce(ctx, g, weights, goccl.Mean); err != nil {
				return nil, err
			}
		}
		return weights, nil
	})
	// Output: [1 2]
}

func ExampleProcessGroup_Plan() {
	onRanks(4, func(ctx context.Context, g *goccl.ProcessGroup) (any, error) {
		return g.Plan("all-reduce", dtype.BF16, 1<<24), nil
	})
	// Output: all-reduce bf16 x 16777216 on 4 ranks: direct (one rounding: no forwarding of partial results in this type)
}

// Raw typed bytes go through the untyped twins.
func ExampleProcessGroup_AllReduce() {
	onRanks(2, func(ctx context.Context, g *goccl.ProcessGroup) (any, error) {
		raw := []byte{1, 0, 2, 0} // two f16 values, little-endian
		buf, err := dtype.Bytes(dtype.F16, raw)
		if err != nil {
			return nil, err
		}
		return raw, g.AllReduce(ctx, buf, goccl.Max)
	})
	// Output: [1 0 2 0]
}
