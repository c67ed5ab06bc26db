package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccl/goccl"
	"github.com/goccl/goccl/dtype"
	"github.com/goccl/goccl/transport/mem"
)

// runRanks runs f as each rank of a group in memory and returns the first error.
func runRanks(t *testing.T, size int, f func(ctx context.Context, g *goccl.ProcessGroup) error) error {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	errs := make([]error, size)
	var ranks sync.WaitGroup
	for r, transport := range mem.NewWorld(size) {
		ranks.Go(func() {
			g, err := goccl.New(transport, goccl.Config{})
			if err == nil {
				err = f(ctx, g)
				err = errors.Join(err, g.Close())
			}
			errs[r] = err
		})
	}
	ranks.Wait()
	return errors.Join(errs...)
}

func TestTrainingTogetherEqualsTrainingAlone(t *testing.T) {
	data, test, err := load()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		size int
		wire dtype.Type
	}{{1, dtype.F64}, {3, dtype.F64}, {4, dtype.F32}, {2, dtype.F16}, {3, dtype.BF16}} {
		t.Run(fmt.Sprintf("%d ranks, %v", c.size, c.wire), func(t *testing.T) {
			o := options{wire: c.wire, epochs: 2, seed: 7}
			alone := trainAlone(data, c.size, o)
			start := newNetwork(o.seed, layerSizes...)
			err := runRanks(t, c.size, func(ctx context.Context, g *goccl.ProcessGroup) error {
				reports := 0
				trainer := newTrainer(g, data, test, o)
				trainer.report = func(r epochReport) {
					if reports++; r.epoch != reports || r.loss <= 0 || r.waited > r.took {
						t.Errorf("rank %d: report %d is %+v", g.Rank(), reports, r)
					}
				}
				if err := trainer.train(ctx); err != nil {
					return err
				}
				n := trainer.network
				if reports != o.epochs {
					t.Errorf("%d reports", reports)
				}
				if d := distance(n.params, alone.params); !(d <= bounds[c.wire]) {
					t.Errorf("rank %d: %v from training alone, bound %v", g.Rank(), d, bounds[c.wire])
				}
				if d := distance(n.params, start.params); d < bounds[c.wire] {
					t.Errorf("the parameters moved by %v only: the bound proves nothing", d)
				}
				_, err := sameBits(ctx, g, n.params)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Few samples on many ranks: some shards are empty.
func TestEmptyShards(t *testing.T) {
	data, test, err := load()
	if err != nil {
		t.Fatal(err)
	}
	data, test = data[:5], test[:2]
	o := options{wire: dtype.F64, epochs: 3, seed: 1}
	alone := trainAlone(data, 7, o)
	err = runRanks(t, 7, func(ctx context.Context, g *goccl.ProcessGroup) error {
		trainer := newTrainer(g, data, test, o)
		err := trainer.train(ctx)
		if err == nil {
			if d := distance(trainer.network.params, alone.params); !(d <= bounds[dtype.F64]) {
				t.Errorf("%v from training alone", d)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestRun(t *testing.T) {
	data, test, err := load()
	if err != nil {
		t.Fatal(err)
	}
	var out [2]bytes.Buffer
	o := options{wire: dtype.F64, epochs: 3, seed: 1}
	err = runRanks(t, 2, func(ctx context.Context, g *goccl.ProcessGroup) error {
		return run(ctx, newTrainer(g, data, test, o), &out[g.Rank()])
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2 ranks", "\n    3  ", "all 2 ranks hold bit-identical parameters", "‖a−b‖₂/‖b‖₂ = "} {
		if !strings.Contains(out[0].String(), want) {
			t.Errorf("printed %s\nlacks %q", out[0].String(), want)
		}
	}
	if out[1].Len() > 0 {
		t.Errorf("rank 1 prints too: %s", out[1].String())
	}
}

func TestVerdictsCanFail(t *testing.T) {
	data, _, err := load()
	if err != nil {
		t.Fatal(err)
	}
	o := options{wire: dtype.F64, epochs: 1, seed: 1}
	n := trainAlone(data, 2, o)
	if err := compare(n, data, 2, o, new(bytes.Buffer)); err != nil {
		t.Errorf("the same network: %v", err)
	}
	n.params[17] += 1e-6
	if err := compare(n, data, 2, o, new(bytes.Buffer)); err == nil {
		t.Error("a parameter is off by 1e-6 and nobody notices")
	}
	if err := verdict(defaultEpochs, 0.94); err == nil {
		t.Error("94 % pass")
	}
	if err := errors.Join(verdict(defaultEpochs, 0.95), verdict(1, 0.5)); err != nil {
		t.Error(err)
	}
	err = runRanks(t, 3, func(ctx context.Context, g *goccl.ProcessGroup) error {
		params := []float64{1, 2, 0}
		if g.Rank() == 1 {
			params[2] = 1 / params[2] * 0 // NaN
		}
		if _, err := sameBits(ctx, g, params); err == nil {
			t.Errorf("rank %d does not see that rank 1's parameters differ", g.Rank())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestFlight(t *testing.T) {
	var f flight
	at := func(ms int) time.Time { return time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond) }
	f.begin(at(0))
	f.begin(at(10))
	f.end(at(20))
	f.end(at(30))
	f.begin(at(100))
	f.end(at(105))
	if f.total != 35*time.Millisecond {
		t.Errorf("under way for %v, want 35ms", f.total)
	}
}
