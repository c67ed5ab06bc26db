package goccl_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"

	"github.com/goccl/goccl"
	"github.com/goccl/goccl/transport/mem"
)

// survive does the work, if need be with fewer and fewer ranks, and returns the group that finished it.
func survive(ctx context.Context, g *goccl.ProcessGroup, work func(context.Context, *goccl.ProcessGroup) error) (*goccl.ProcessGroup, error) {
	for {
		err := work(ctx, g) // begins with a Broadcast of the state from rank 0: some ranks may be a step ahead
		var lost *goccl.PeerError
		if !errors.As(err, &lost) {
			return g, err // nil: done
		}
		next, err := g.Shrink(ctx)
		if err != nil {
			return g, err // ErrNoMajority: too few are left, others may go on
		}
		g = next // the ranks that are left, numbered anew
	}
}

// One of four ranks dies in the middle of some work; the others finish it.
func ExampleProcessGroup_Shrink() {
	var ranks sync.WaitGroup
	for rank, t := range mem.NewWorld(4) {
		ranks.Go(func() {
			g, err := goccl.New(t, goccl.Config{})
			if err != nil {
				log.Fatal(err)
			}
			state := []int32{0} // steps done; changes only when a step is complete
			g, err = survive(context.Background(), g, func(ctx context.Context, g *goccl.ProcessGroup) error {
				if err := goccl.Broadcast(ctx, g, state, 0); err != nil {
					return err
				}
				for state[0] < 10 {
					if rank == 1 && state[0] == 5 {
						t.Close() // as if the process had been killed
					}
					if err := g.Barrier(ctx); err != nil {
						return err
					}
					state[0]++
				}
				return nil
			})
			if err == nil && g.IsLeader() {
				fmt.Println(g.Size(), "ranks got to", state[0])
			}
			g.Close()
		})
	}
	ranks.Wait()
	// Output: 3 ranks got to 10
}
