package goccl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goccl/goccl/transport"
)

// records is a slog handler that keeps what it is given.
type records struct {
	mu  sync.Mutex
	all []slog.Record
}

func (h *records) Enabled(context.Context, slog.Level) bool { return true }
func (h *records) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h *records) WithGroup(string) slog.Handler            { return h }

func (h *records) Handle(_ context.Context, r slog.Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, r)
	return nil
}

// take returns the warnings so far and forgets them.
func (h *records) take() (all []slog.Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.all {
		if r.Level == slog.LevelWarn {
			all = append(all, r)
		}
	}
	h.all = nil
	return all
}

// address is what messages have of the address of a rank, before its call.
func address(g *ProcessGroup, rank int) string {
	if a, ok := g.t.(transport.Addresser); ok {
		return a.Addr(rank) + "; "
	}
	return ""
}

func attr(r slog.Record, key string) (v any) {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == key {
			v = a.Value.Any()
		}
		return true
	})
	return v
}

// Each rank that waits warns once per call, of who is missing and where all are.
func TestStallWarning(t *testing.T) {
	for _, set := range []time.Duration{0, 3 * time.Second, 100 * time.Millisecond} {
		inFakeTimeOnly(t, func(t *testing.T, w world) {
			logged := &records{}
			gs := groups(t, w, 4, Config{Logger: slog.New(logged), StallWarning: set})
			errs := each(gs, func(g *ProcessGroup) error {
				for _, late := range []time.Duration{0, time.Minute, 90 * time.Second} {
					if g.Rank() == 2 {
						time.Sleep(late)
					}
					if err := AllReduce(t.Context(), g, make([]float32, 10), Sum); err != nil {
						return err
					}
				}
				return nil
			})
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			limit := set
			if set == 0 {
				limit = defaultStallWarning
			}
			warnings := logged.take()
			if len(warnings) != 6 {
				t.Fatalf("%d warnings, want one of each of three ranks in each of two calls", len(warnings))
			}
			for i, r := range warnings {
				seq := uint64(2 + i/3)
				want := fmt.Sprintf("goccl: all-reduce #%d waits for rank 2 (%sall-reduce f32 x 10 sum, doubling, #%d completed)", seq, address(gs[0], 2), seq-1)
				if r.Message != want {
					t.Errorf("%q, want %q", r.Message, want)
				}
				if w := attr(r, "waited").(time.Duration); w < limit || w > limit+decideGrace {
					t.Errorf("waited %v", w)
				}
				if attr(r, "op") != "all-reduce" || attr(r, "seq") != seq || !slices.Equal(attr(r, "missing").([]int), []int{2}) {
					t.Errorf("attributes of %v", r)
				}
				for rank, call := range attr(r, "calls").([]string) {
					if strings.HasSuffix(call, "completed") != (rank == 2) {
						t.Errorf("rank %d is said to be in %q", rank, call)
					}
				}
			}
		})
	}
}

// A sub-group's warning also says which ranks of the parent its own are.
func TestStallWarningOfSubgroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logged := &records{}
		gs := groups(t, memWorld, 3, Config{Logger: slog.New(logged)})
		each(gs[1:], func(g *ProcessGroup) error {
			child, err := g.Subgroup(t.Context(), []int{2, 1})
			if err != nil {
				t.Error(err)
				return err
			}
			if g.Rank() == 1 {
				time.Sleep(time.Minute)
			}
			return child.Barrier(t.Context())
		})
		w := logged.take()
		if len(w) != 1 || !strings.Contains(w[0].Message, "waits for rank 1") || !slices.Equal(attr(w[0], "parent_ranks").([]int), []int{2, 1}) {
			t.Errorf("got %v", w)
		}
	})
}

// A call that ends before its time, or while the others are being asked, is not warned of; nor is any when warnings are off.
func TestNoStallWarning(t *testing.T) {
	for name, c := range map[string]struct {
		set, late time.Duration
	}{"in time": {0, defaultStallWarning - time.Millisecond}, "off": {-1, time.Hour}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				logged := &records{}
				gs := groups(t, memWorld, 2, Config{Logger: slog.New(logged), StallWarning: c.set, Timeout: -1})
				each(gs, func(g *ProcessGroup) error {
					time.Sleep(time.Duration(g.Rank()) * c.late)
					return g.Barrier(t.Context())
				})
				go func() {
					time.Sleep(c.late)
					Send(t.Context(), gs[0], 1, 1, []int8{1})
				}()
				if _, err := Recv[int8](t.Context(), gs[1], 0, 1); err != nil {
					t.Error(err)
				}
				if w := logged.take(); len(w) > 0 {
					t.Errorf("logged %v", w)
				}
			})
		})
	}
}

// Whoever does not answer is missing, and the warning does not wait for it for ever.
func TestStallWarningOfTheSilent(t *testing.T) {
	w := newWard(t, 3)
	w.ranks[0].warnAfter = 3 * time.Second
	w.begin(1, 0, 1)
	w.dead[2] = true
	w.pass(3*time.Second + decideGrace)
	got := w.ranks[0].takeWarning()
	if got == nil || !slices.Equal(got.Missing, []int{2}) || got.Calls[2] != "" {
		t.Fatalf("got %v", got)
	}
	if s := got.String(); s != "goccl: all-reduce #1 waits for rank 2 (host2)" {
		t.Errorf("text %q", s)
	}
	w.pass(time.Hour)
	if got := w.ranks[0].takeWarning(); got != nil {
		t.Errorf("warned again: %v", got)
	}
}

func TestStallWarningOfMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logged := &records{}
		gs := groups(t, memWorld, 3, Config{Logger: slog.New(logged), MailboxBytes: 1000})
		go func() {
			time.Sleep(time.Minute)
			Send(t.Context(), gs[2], 0, 9, []int8{1})
		}()
		if _, err := Recv[int8](t.Context(), gs[0], 2, 9); err != nil {
			t.Error(err)
		}
		w := logged.take()
		if len(w) != 1 || w[0].Message != "goccl: recv from rank 2 tag 9 waits" || attr(w[0], "waited") != defaultStallWarning {
			t.Errorf("of a receive: %v", w)
		}
		time.AfterFunc(time.Minute, func() { Recv[int8](t.Context(), gs[1], 0, 7) })
		if err := Send(t.Context(), gs[0], 1, 7, make([]int8, 1<<20)); err != nil {
			t.Error(err)
		}
		w = logged.take()
		if len(w) != 1 || w[0].Message != "goccl: send to rank 1 tag 7 waits, mailbox full at rank 1" {
			t.Errorf("of a send: %v", w)
		}
	})
}

// A rank whose logger hangs is no dead rank: it goes on giving signs of life, and closes in bounded time.
func TestStallWarningToAHungLogger(t *testing.T) {
	inFakeTimeOnly(t, func(t *testing.T, w world) {
		h := hung{make(chan struct{})}
		defer close(h.release)
		gs := groups(t, w, 3, Config{Logger: slog.New(h)})
		errs := each(gs, func(g *ProcessGroup) error {
			if g.Rank() == 2 {
				time.Sleep(5 * defaultStallWarning)
			}
			return g.Barrier(t.Context())
		})
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
		began := time.Now()
		each(gs, (*ProcessGroup).Close)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("Close took %v", took)
		}
	})
}
