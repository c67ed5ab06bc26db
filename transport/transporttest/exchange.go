package transporttest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/goccl/goccl/transport"
)

// exchange tests Exchange, if the transport has it.
func (s *suite) exchange(t *testing.T) {
	_, ts := s.world(t, 1)
	if _, ok := ts[0].(transport.Exchanger); !ok {
		t.Log("the transport is no Exchanger")
		return
	}
	for _, c := range []struct {
		name string
		run  func(*suite, *testing.T)
	}{
		{"Random", (*suite).exchangeRandom},
		{"Large", (*suite).exchangeLarge},
		{"Sinks", (*suite).exchangeSinks},
		{"Empty", (*suite).exchangeEmpty},
		{"BesidePlain", (*suite).exchangeBesidePlain},
		{"Arguments", (*suite).exchangeArguments},
		{"Tags", (*suite).exchangeTags},
		{"SinkFails", (*suite).exchangeSinkFails},
		{"InLine", (*suite).exchangeInLine},
		{"Cancel", (*suite).exchangeCancel},
		{"CloseThere", (*suite).exchangeCloseThere},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(s, t) })
	}
}

func exchange(ctx context.Context, tr transport.Transport, match int, steps ...transport.Step) error {
	return tr.(transport.Exchanger).Exchange(ctx, tagOf(transport.Collective, match), steps)
}

// exchangeRandom runs random lists in which some frames pass on what other frames bring, while they bring it.
func (s *suite) exchangeRandom(t *testing.T) {
	for _, n := range []int{2, 3, 5} {
		ctx, ts := s.world(t, n)
		for round := range 10 {
			plan := s.randomPlan(rand.New(rand.NewPCG(uint64(n), uint64(round))), n)
			together(t, ts, func(tr transport.Transport) error {
				mine := plan.steps(tr.Rank())
				if err := exchange(ctx, tr, round, mine.steps...); err != nil {
					return fmt.Errorf("round %d: %w", round, err)
				}
				return mine.check(plan)
			})
		}
	}
}

// A plan is a list of frames. Every rank runs its frames with one peer in the order of the plan, and a frame passes on only
// an earlier one, so that the first unfinished frame can always move.
type plan []planned

type planned struct {
	from, to, size int
	window         int
	of             int // whose bytes it carries: its own index, or that of the earlier frame which it passes on
	source         int // that earlier frame; -1: none
}

func (s *suite) randomPlan(r *rand.Rand, n int) plan {
	sizes := []int{0, 1, 100, 5000, s.large / 200, s.large / 50}
	var p plan
	for i := range 8 * n {
		from := r.IntN(n)
		f := planned{from: from, to: (from + 1 + r.IntN(n-1)) % n, size: sizes[r.IntN(len(sizes))], window: 1 + r.IntN(40_000), of: i, source: -1}
		for j := range p {
			if p[j].to == from && r.IntN(3) == 0 {
				f.size, f.of, f.source = p[j].size, p[j].of, j
			}
		}
		p = append(p, f)
	}
	return p
}

type part struct {
	steps []transport.Step
	sinks map[int]*copySink // by frame
}

func (p plan) steps(rank int) part {
	mine := part{sinks: map[int]*copySink{}}
	step := map[int]int{} // 1 + index of the step that receives a frame
	for i, f := range p {
		switch rank {
		case f.to:
			mine.sinks[i] = newCopySink(f.size, f.window)
			mine.steps = append(mine.steps, transport.Step{Peer: f.from, In: mine.sinks[i], InLen: int64(f.size)})
			step[i] = len(mine.steps)
		case f.from:
			st := transport.Step{Peer: f.to}
			if f.source >= 0 {
				st.Out, st.After = mine.sinks[f.source].b, step[f.source]
			} else {
				st.Out = pattern(make([]byte, f.size), f.of)
			}
			mine.steps = append(mine.steps, st)
		}
	}
	return mine
}

func (m part) check(p plan) error {
	for i, sink := range m.sinks {
		if err := firstDifference(sink.b, pattern(make([]byte, p[i].size), p[i].of)); err != nil {
			return fmt.Errorf("frame %d of %+v: %w", i, p[i], err)
		}
	}
	return nil
}

// exchangeLarge sends more than any buffer holds, both ways at once.
func (s *suite) exchangeLarge(t *testing.T) {
	ctx, ts := s.world(t, 2)
	together(t, ts, func(tr transport.Transport) error {
		peer := 1 - tr.Rank()
		in := newCopySink(s.large, s.large)
		err := exchange(ctx, tr, 1,
			transport.Step{Peer: peer, Out: pattern(make([]byte, s.large), tr.Rank())},
			transport.Step{Peer: peer, In: in, InLen: int64(s.large)})
		if err != nil {
			return err
		}
		return firstDifference(in.b, pattern(make([]byte, s.large), peer))
	})
}

// exchangeSinks lets every sink of rank 0 say "not now" until another one is ahead of it, against the order of the steps.
func (s *suite) exchangeSinks(t *testing.T) {
	const n, size = 4, 200_000
	ctx, ts := s.world(t, n)
	together(t, ts, func(tr transport.Transport) error {
		if tr.Rank() != 0 {
			return exchange(ctx, tr, 1, transport.Step{Peer: 0, Out: pattern(make([]byte, size), tr.Rank())})
		}
		first := newCopySink(size, 3000)
		second := &followSink{*newCopySink(size, 5000), first}
		third := &followSink{*newCopySink(size, 100_000), &second.copySink}
		err := exchange(ctx, tr, 1,
			transport.Step{Peer: 1, In: third, InLen: size},
			transport.Step{Peer: 2, In: second, InLen: size},
			transport.Step{Peer: 3, In: first, InLen: size})
		if err != nil {
			return err
		}
		for i, b := range [][]byte{third.b, second.b, first.b} {
			if err := firstDifference(b, pattern(make([]byte, size), i+1)); err != nil {
				return err
			}
		}
		return nil
	})
}

// exchangeEmpty moves frames without bytes, and lists without frames.
func (s *suite) exchangeEmpty(t *testing.T) {
	ctx, ts := s.world(t, 2)
	together(t, ts, func(tr transport.Transport) error {
		peer := 1 - tr.Rank()
		for i := range 5 {
			if err := exchange(ctx, tr, i,
				transport.Step{Peer: peer},
				transport.Step{Peer: peer, In: newCopySink(0, 0)},
				transport.Step{Peer: peer, Out: []byte{}, After: 2},
				transport.Step{Peer: peer, In: newCopySink(0, 0)}); err != nil {
				return err
			}
			if err := exchange(ctx, tr, i); err != nil {
				return err
			}
		}
		return nil
	})
}

// exchangeBesidePlain lets one rank's Exchange meet the other's Send and Recv: they use the same streams.
func (s *suite) exchangeBesidePlain(t *testing.T) {
	ctx, ts := s.world(t, 2)
	const size = 300_000
	together(t, ts, func(tr transport.Transport) error {
		for i := range 6 {
			tag, peer := tagOf(transport.Collective, i), 1-tr.Rank()
			out, in := pattern(make([]byte, size), 10*i+tr.Rank()), newCopySink(size, size)
			var err error
			if i%2 == tr.Rank() {
				err = exchange(ctx, tr, i, transport.Step{Peer: peer, Out: out}, transport.Step{Peer: peer, In: in, InLen: size})
			} else {
				sent := start(func() error { return tr.Send(ctx, peer, tag, out) })
				err = errors.Join(tr.Recv(ctx, peer, tag, in.b), <-sent)
			}
			if err == nil {
				err = firstDifference(in.b, pattern(make([]byte, size), 10*i+peer))
			}
			if err != nil {
				return fmt.Errorf("round %d: %w", i, err)
			}
		}
		return nil
	})
}

// exchangeArguments refuses lists that cannot be meant, before any byte is sent.
func (s *suite) exchangeArguments(t *testing.T) {
	ctx, ts := s.world(t, 2)
	good := transport.Step{Peer: 1, Out: []byte("never sent")}
	for name, steps := range map[string][]transport.Step{
		"self":            {good, {Peer: 0}},
		"no such peer":    {good, {Peer: 2}},
		"negative peer":   {good, {Peer: -1}},
		"both":            {good, {Peer: 1, Out: []byte{1}, In: newCopySink(1, 1), InLen: 1}},
		"negative length": {good, {Peer: 1, In: newCopySink(1, 1), InLen: -1}},
		"after a send":    {good, {Peer: 1, After: 1}},
		"after itself":    {good, {Peer: 1, After: 2}},
		"after nothing":   {good, {Peer: 1, After: 3}},
		"after negative":  {good, {Peer: 1, After: -1}},
	} {
		if err := exchange(ctx, ts[0], 1, steps...); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	ended, cancel := context.WithCancelCause(ctx)
	cancel(errCause)
	if err := exchange(ended, ts[0], 1, good); !errors.Is(err, errCause) {
		t.Errorf("ended context: %v", err)
	}
	together(t, ts, func(tr transport.Transport) error { return ringOnce(ctx, tr, transport.Collective) })
}

// exchangeTags finds out a frame that is not the expected one.
func (s *suite) exchangeTags(t *testing.T) {
	ctx, ts := s.world(t, 2)
	sent := start(func() error { return exchange(ctx, ts[1], 8, transport.Step{Peer: 0, Out: make([]byte, 11)}) })
	want := transport.TagError{Rank: 1, Want: tagOf(transport.Collective, 7), Got: tagOf(transport.Collective, 8), WantBytes: 10, GotBytes: 11}
	for i := range 2 {
		err := exchange(ctx, ts[0], 7, transport.Step{Peer: 1, In: newCopySink(10, 10), InLen: 10})
		var got *transport.TagError
		if !errors.As(err, &got) || *got != want {
			t.Fatalf("exchange %d: %v\nexpected %v", i, err, &want)
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// exchangeSinkFails returns a sink's error, also on later use of the streams.
func (s *suite) exchangeSinkFails(t *testing.T) {
	ctx, ts := s.world(t, 2)
	sent := start(func() error { return exchange(ctx, ts[1], 1, transport.Step{Peer: 0, Out: make([]byte, 100_000)}) })
	sink := &failingSink{*newCopySink(100_000, 10_000), 50_000, errCause}
	if err := exchange(ctx, ts[0], 1, transport.Step{Peer: 1, In: sink, InLen: 100_000}); !errors.Is(err, errCause) {
		t.Errorf("failing sink: %v", err)
	}
	if err := ts[0].Recv(ctx, 1, tagOf(transport.Collective, 1), nil); !errors.Is(err, errCause) {
		t.Errorf("afterwards: %v", err)
	}
	ts[0].Close()
	<-sent
}

// exchangeInLine gives up an Exchange that waits for its turn: it has touched nothing, the one before it goes on.
func (s *suite) exchangeInLine(t *testing.T) {
	ctx, ts := s.world(t, 2)
	in := newCopySink(10, 10)
	steps := []transport.Step{{Peer: 1, Out: make([]byte, 10)}, {Peer: 1, In: in, InLen: 10}}
	first := start(func() error { return exchange(ctx, ts[0], 1, steps...) })
	if err := ts[1].Recv(ctx, 0, tagOf(transport.Collective, 1), make([]byte, 10)); err != nil { // so it is under way
		t.Fatal(err)
	}
	short, cancel := context.WithTimeoutCause(ctx, 20*time.Millisecond, errCause)
	defer cancel()
	if err := exchange(short, ts[0], 2, transport.Step{Peer: 1, Out: make([]byte, 20)}); !errors.Is(err, errCause) {
		t.Errorf("in line: %v", err)
	}
	short, cancel = context.WithTimeoutCause(ctx, 20*time.Millisecond, errCause)
	defer cancel()
	if err := ts[0].Recv(short, 1, tagOf(transport.Collective, 1), make([]byte, 10)); !errors.Is(err, errCause) {
		t.Errorf("a Recv in line: %v", err)
	}
	if err := ts[1].Send(ctx, 0, tagOf(transport.Collective, 1), pattern(make([]byte, 10), 1)); err != nil {
		t.Error(err)
	}
	if err := errors.Join(<-first, firstDifference(in.b, pattern(make([]byte, 10), 1))); err != nil {
		t.Errorf("the first: %v", err)
	}
	together(t, ts, func(tr transport.Transport) error { return ringOnce(ctx, tr, transport.Collective) })
}

// exchangeCancel ends an Exchange that waits, and says so on later use of the streams.
func (s *suite) exchangeCancel(t *testing.T) {
	ctx, ts := s.world(t, 3)
	short, cancel := context.WithCancelCause(ctx)
	call := start(func() error {
		return exchange(short, ts[0], 1,
			transport.Step{Peer: 1, Out: make([]byte, 10)},
			transport.Step{Peer: 2, In: newCopySink(10, 10), InLen: 10})
	})
	if err := ts[1].Recv(ctx, 0, tagOf(transport.Collective, 1), make([]byte, 10)); err != nil { // so it is under way
		t.Fatal(err)
	}
	cancel(errCause)
	if err := <-call; !errors.Is(err, errCause) {
		t.Errorf("cancelled: %v", err)
	}
	if err := exchange(ctx, ts[0], 2, transport.Step{Peer: 1, Out: make([]byte, 10)}); !errors.Is(err, errCause) {
		t.Errorf("afterwards: %v", err)
	}
	together(t, ts, func(tr transport.Transport) error { return ringOnce(ctx, tr, transport.Control) })
}

// exchangeCloseThere names the peer that left in the middle of an Exchange, once what it sent has been received.
func (s *suite) exchangeCloseThere(t *testing.T) {
	ctx, ts := s.world(t, 3)
	whole, cut := newCopySink(50_000, 50_000), newCopySink(9, 9)
	call := start(func() error {
		return exchange(ctx, ts[0], 1,
			transport.Step{Peer: 2, In: whole, InLen: 50_000},
			transport.Step{Peer: 2, In: cut, InLen: 9},
			transport.Step{Peer: 1, In: newCopySink(9, 9), InLen: 9})
	})
	if err := exchange(ctx, ts[2], 1, transport.Step{Peer: 0, Out: pattern(make([]byte, 50_000), 3)}); err != nil {
		t.Fatal(err)
	}
	closeInTime(t, ts[2])
	if err := ends(<-call, false, 2); err != nil {
		t.Error(err)
	}
	if err := firstDifference(whole.b, pattern(make([]byte, 50_000), 3)); err != nil {
		t.Error(err)
	}
}
