package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goccl/goccl"
	"github.com/goccl/goccl/dtype"
	"github.com/goccl/goccl/transport/mem"
)

// Ranks that a failure stopped at different places all go on from where rank 0 is.
func TestAgree(t *testing.T) {
	data, test, err := load()
	if err != nil {
		t.Fatal(err)
	}
	err = runRanks(t, 3, func(ctx context.Context, g *goccl.ProcessGroup) error {
		r := float64(g.Rank())
		tr := newTrainer(g, data[:10], test[:10], options{wire: dtype.F64, epochs: 1, seed: uint64(g.Rank())})
		tr.epoch, tr.step = 4, 7
		switch g.Rank() {
		case 1: // was not done with the step before
			tr.step = 6
		case 2: // was not done with the epoch before
			tr.epoch, tr.step = 3, 12
		}
		tr.optimizer.velocity[5] = 10 + r
		tr.sums = sums{loss: 1 + r, samples: 5}
		if err := tr.agree(ctx); err != nil {
			return err
		}
		if tr.epoch != 4 || tr.step != 7 {
			t.Errorf("rank %d goes on at epoch %d, step %d, not 4 and 7", g.Rank(), tr.epoch, tr.step)
		}
		if v := tr.optimizer.velocity[5]; v != 10 {
			t.Errorf("rank %d has velocity %v, not rank 0's 10", g.Rank(), v)
		}
		if start := newNetwork(0, layerSizes...); !slices.Equal(tr.network.params, start.params) {
			t.Errorf("rank %d has other parameters than rank 0", g.Rank())
		}
		if want := []sums{{1, 5}, {2, 5}, {}}[g.Rank()]; tr.sums != want {
			t.Errorf("rank %d: sums of the epoch are %v, want %v", g.Rank(), tr.sums, want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A rank 0 that is lost when only a part of its state has left it leaves the others with the state they had.
func TestAgreeIsAllOrNothing(t *testing.T) {
	data, test, err := load()
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var trainers [2]*trainer
		for r, transport := range mem.NewWorld(2) {
			g, err := goccl.New(transport, goccl.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			trainers[r] = newTrainer(g, data[:10], test[:10], options{wire: dtype.F64, epochs: 1, seed: uint64(r)})
		}
		sent := make(chan error)
		go func() { sent <- trainers[0].agree(t.Context()) }()
		synctest.Wait() // the first 64 KiB are under way
		if err := trainers[0].group.Transport().Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-sent; err == nil {
			t.Fatal("nothing was left to send")
		}
		tr := trainers[1]
		tr.epoch, tr.step = 2, 3
		before := slices.Concat(tr.network.params, tr.optimizer.velocity)
		var lost *goccl.PeerError
		if err := tr.agree(t.Context()); !errors.As(err, &lost) || lost.Rank != 0 {
			t.Errorf("got %v", err)
		}
		if after := slices.Concat(tr.network.params, tr.optimizer.velocity); !slices.Equal(before, after) || tr.epoch != 2 || tr.step != 3 {
			t.Error("the state has changed")
		}
	})
}

// survivors trains as size ranks in memory, of which some end without a word at the given steps, and returns the trainers of
// the others.
func survivors(t *testing.T, size int, deaths map[int]int, o options, watch func(*trainer)) []*trainer {
	data, test, err := load()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var mu sync.Mutex
	var left []*trainer
	var ranks sync.WaitGroup
	for rank, transport := range mem.NewWorld(size) {
		ranks.Go(func() {
			g, err := goccl.New(transport, goccl.Config{})
			if err != nil {
				t.Error(err)
				return
			}
			tr := newTrainer(g, data[:3*batchSize], test, o)
			at, dies := deaths[rank]
			tr.atStep = func(step int) {
				if dies && step == at {
					tr.group.Transport().Close()
				}
			}
			watch(tr)
			err = tr.survive(ctx, tr.train)
			switch {
			case dies && err == nil:
				t.Errorf("rank %d should have died", rank)
			case !dies && err != nil:
				t.Errorf("rank %d: %v", rank, err)
			case !dies:
				_, err = sameBits(ctx, tr.group, tr.network.params)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				left = append(left, tr)
				mu.Unlock()
			}
			tr.group.Close()
		})
	}
	ranks.Wait()
	return left
}

// Whoever is lost, and however often: the others see every sample in every later epoch, print every epoch and end with the
// same parameters.
func TestSurvive(t *testing.T) {
	for _, c := range []struct {
		size   int
		deaths map[int]int // step by rank; an epoch has three
		want   []string
	}{
		{4, map[int]int{2: 5}, []string{"epoch 2: rank 2 lost in", "going on with 3 ranks"}},
		{3, map[int]int{0: 3}, []string{"epoch 2: rank 0 lost in", "going on with 2 ranks"}},
		{5, map[int]int{0: 1, 3: 4}, []string{"epoch 1: rank 0 lost in", "epoch 2: rank 2 lost in", "going on with 3 ranks"}},
	} {
		t.Run(fmt.Sprint(c.deaths), func(t *testing.T) {
			o := options{wire: dtype.F64, epochs: 3, seed: 3}
			var mu sync.Mutex
			var said, epochs []string
			left := survivors(t, c.size, c.deaths, o, func(tr *trainer) {
				tr.changed = func(what string) {
					if mu.Lock(); tr.group.IsLeader() {
						said = append(said, fmt.Sprintf("epoch %d: %s", tr.epoch+1, what))
					}
					mu.Unlock()
				}
				tr.report = func(r epochReport) {
					if mu.Lock(); tr.group.IsLeader() {
						epochs = append(epochs, fmt.Sprint(r.epoch))
					}
					mu.Unlock()
				}
			})
			if len(left) != c.size-len(c.deaths) {
				t.Fatalf("%d ranks are left", len(left))
			}
			for _, tr := range left {
				if tr.plan.size != len(left) || tr.group.Size() != len(left) {
					t.Errorf("shards for %d ranks, group of %d, want %d", tr.plan.size, tr.group.Size(), len(left))
				}
			}
			for _, want := range c.want {
				if !strings.Contains(strings.Join(said, "\n"), want) {
					t.Errorf("said %q, want %q", said, want)
				}
			}
			if epochs = slices.Compact(epochs); !slices.Equal(epochs, []string{"1", "2", "3"}) {
				t.Errorf("epochs %v were reported", epochs)
			}
		})
	}
}

// What going on without a rank would not mend ends the training.
func TestSurviveOnlyLosses(t *testing.T) {
	data, test, err := load()
	if err != nil {
		t.Fatal(err)
	}
	aborted := errors.New("no more")
	err = runRanks(t, 3, func(ctx context.Context, g *goccl.ProcessGroup) error {
		tr := newTrainer(g, data, test, options{wire: dtype.F64, epochs: 1000, seed: 1})
		tr.atStep = func(step int) {
			if step == 3 && g.Rank() == 1 {
				g.Abort(aborted)
			}
		}
		err := tr.survive(ctx, tr.train)
		if abort := new(goccl.AbortError); !errors.As(err, &abort) || abort.Rank != 1 {
			t.Errorf("rank %d: %v", g.Rank(), err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
