package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccl/goccl"
	"github.com/goccl/goccl/transport/mem"
)

// runMem runs a sweep over mem and returns what rank 0 prints and each rank's error.
func runMem(t *testing.T, args string) (string, []error) {
	t.Helper()
	cfg, err := parseFlags(strings.Fields(args), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return sweepMem(t, cfg)
}

func sweepMem(t *testing.T, cfg *config) (string, []error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	errs := make([]error, cfg.ranks)
	var ranks sync.WaitGroup
	for r, transport := range mem.NewWorld(cfg.ranks) {
		ranks.Go(func() {
			g, err := goccl.New(transport, goccl.Config{Algorithm: cfg.algorithm})
			if err != nil {
				errs[r] = err
				return
			}
			defer g.Close()
			w := io.Discard
			if r == 0 {
				w = &out
			}
			errs[r] = sweep(ctx, g, cfg, w)
		})
	}
	ranks.Wait()
	return out.String(), errs
}

func TestAllOperationsAreRight(t *testing.T) {
	for _, ranks := range []int{1, 2, 3, 5} {
		t.Run(fmt.Sprint(ranks), func(t *testing.T) {
			out, errs := runMem(t, fmt.Sprintf("-ranks %d -op all -b 0 -e 1000 -f 999 -d f32,bf16,i8 -o sum,mean -n 1 -w 0 -r %d -csv", ranks, ranks-1))
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range rows[1:] {
				if row[9] != "0" {
					t.Errorf("wrong: %v", row)
				}
			}
		})
	}
}

// The checks must be able to fail: with an operation that does nothing, and with one that spoils its input.
func TestWrongResultsAreCounted(t *testing.T) {
	spoil := func(c *cell) {
		for i := range c.src.HostBytes() {
			c.src.HostBytes()[i] ^= 1
		}
	}
	for _, op := range operations {
		if op.noData {
			continue
		}
		for name, run := range map[string]func(context.Context, *cell) error{
			"does nothing":     func(context.Context, *cell) error { return nil },
			"spoils its input": func(ctx context.Context, c *cell) error { err := op.run(ctx, c); spoil(c); return err },
		} {
			broken := *op
			broken.run = run
			cfg, err := parseFlags(strings.Fields("-ranks 3 -b 3000 -e 3000 -n 1 -w 0"), io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			cfg.ops = []*operation{&broken}
			out, errs := sweepMem(t, cfg)
			for r, err := range errs {
				if !errors.Is(err, errWrong) {
					t.Errorf("%s that %s: rank %d: %v", op.name, name, r, err)
				}
			}
			if !strings.Contains(out, "FAILED") {
				t.Errorf("%s that %s: printed %s", op.name, name, out)
			}
		}
	}
}

func TestUnevenParts(t *testing.T) {
	for size := range 9 {
		for _, count := range []int{0, 1, 7, 1000} {
			for shift := range size {
				c := &cell{size: size, count: count}
				if got := c.uneven(shift); sum(got) != count || len(got) != size {
					t.Errorf("%d in %d parts from %d: %v", count, size, shift, got)
				}
			}
		}
	}
}

func TestSizesAreRoundedUp(t *testing.T) {
	out, errs := runMem(t, "-ranks 3 -op all_gather -b 10 -e 10 -n 5 -csv")
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, "\nall_gather,12,1,f32,none,-1,") {
		t.Errorf("got %s", out)
	}
}

func TestBadRootAndRanks(t *testing.T) {
	if _, errs := runMem(t, "-ranks 2 -r 2"); errs[0] == nil || errs[1] == nil {
		t.Errorf("root 2 of 2 ranks: %v", errs)
	}
}

func TestText(t *testing.T) {
	out, errs := runMem(t, "-ranks 2 -op all_reduce,broadcast -b 4 -e 16 -n 5 -p")
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	var names []string
	var rows [][]string
	for line := range strings.Lines(out) {
		switch f := strings.Fields(strings.TrimPrefix(line, "#")); {
		case !strings.HasPrefix(line, "#"):
			rows = append(rows, f)
		case len(f) > 0 && f[0] == "size":
			names = f
		}
	}
	if got := strings.Join(names, " "); got != "size count type redop time algbw busbw #wrong p50 p90 p99 max" {
		t.Errorf("columns %q", got)
	}
	if len(rows) != 4 {
		t.Fatalf("printed %s", out)
	}
	for i, want := range []string{"4 1 f32 sum", "16 4 f32 sum", "4 1 f32 none", "16 4 f32 none"} {
		if len(rows[i]) != len(names) || strings.Join(rows[i][:4], " ") != want || rows[i][7] != "0" {
			t.Errorf("row %d is %v, want %s", i, rows[i], want)
		}
	}
	if !strings.Contains(out, "# Wrong values: 0 OK\n") {
		t.Errorf("printed %s", out)
	}
}

func TestJSON(t *testing.T) {
	out, errs := runMem(t, "-ranks 2 -b 1K -e 1K -n 6 -json -c 0 -average")
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Ranks     int
		Statistic string
		Results   []map[string]any
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if doc.Ranks != 2 || doc.Statistic != "average" || len(doc.Results) != 1 {
		t.Fatalf("got %s", out)
	}
	r := doc.Results[0]
	if r["op"] != "all_reduce" || r["size"] != 1024.0 || r["count"] != 256.0 || r["iterations"] != 6.0 || r["wrong"] != nil || r["time_us"] != r["average_us"] {
		t.Errorf("got %v", r)
	}
	if alg, bus := r["algbw_GBps"].(float64), r["busbw_GBps"].(float64); alg <= 0 || bus != alg {
		t.Errorf("two ranks: algbw %v, busbw %v", alg, bus)
	}
}

func TestStats(t *testing.T) {
	var times []time.Duration
	for i := range 101 {
		times = append(times, time.Duration(100-i)*time.Microsecond)
	}
	if got, want := newStats(times), (stats{Median: 50, P90: 90, P99: 99, Max: 100, Average: 50}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := newStats(times[:1]); got.Median != got.Max {
		t.Errorf("one time: %+v", got)
	}
	if got := bandwidth(1e6, 1000); got != 1 {
		t.Errorf("1 MB in 1 ms is %v GB/s", got)
	}
}

func TestBusFactors(t *testing.T) {
	want := map[string]float64{"all_reduce": 1.5, "all_gather": 0.75, "reduce_scatter": 0.75, "all_to_all": 0.75, "broadcast": 1, "reduce": 1, "sendrecv": 1}
	for _, op := range operations {
		if w, ok := want[op.name]; ok && op.bus(4) != w {
			t.Errorf("%s on 4 ranks: factor %v, want %v", op.name, op.bus(4), w)
		}
	}
}

func TestIterations(t *testing.T) {
	const budget = 600 * time.Millisecond
	for _, c := range []struct {
		nbytes   int64
		estimate time.Duration
		want     int
	}{
		{4, 0, 2000}, {4, time.Millisecond, 600}, {1 << 20, time.Millisecond, 120}, {16 << 20, time.Millisecond, 24},
		{1 << 30, time.Millisecond, 10}, {1 << 30, time.Second, minIterations},
	} {
		if got := iterations(c.nbytes, c.estimate, budget); got != c.want {
			t.Errorf("%d bytes in %v: %d iterations, want %d", c.nbytes, c.estimate, got, c.want)
		}
	}
}
