// Package transporttest is the contract of package transport as a test suite: a Transport is done when it passes [Run].
package transporttest

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/goccl/goccl/transport"
)

// Options change how heavy the suite is.
type Options struct {
	// Large is the length of a large frame in bytes, more than any buffer on the way holds; 0: 64 MiB. Other frames are
	// smaller where it is, for transports made slow on purpose.
	Large int
}

// Run tests the transports that newWorld makes: n of them, connected with each other, by rank. The suite closes them. What
// a transport offers beyond the five methods is tested too; see [Plain] for how to hide it.
func Run(t *testing.T, newWorld func(t *testing.T, n int) []transport.Transport) {
	RunWith(t, Options{}, newWorld)
}

// RunWith is Run with options.
func RunWith(t *testing.T, o Options, newWorld func(t *testing.T, n int) []transport.Transport) {
	if o.Large == 0 {
		o.Large = 64 << 20
	}
	s := &suite{newWorld: newWorld, large: o.Large}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { c.run(s, t) })
	}
}

type suite struct {
	newWorld func(t *testing.T, n int) []transport.Transport
	large    int
}

var cases = []struct {
	name string
	run  func(*suite, *testing.T)
}{
	{"Identity", (*suite).identity},
	{"Arguments", (*suite).arguments},
	{"Order", (*suite).order},
	{"Tags", (*suite).tags},
	{"LargeBothWays", (*suite).largeBothWays},
	{"Independent", (*suite).independent},
	{"ConcurrentSenders", (*suite).concurrentSenders},
	{"EndedContext", (*suite).endedContext},
	{"CancelRecv", (*suite).cancelRecv},
	{"CancelSend", (*suite).cancelSend},
	{"CloseHere", (*suite).closeHere},
	{"CloseThere", (*suite).closeThere},
	{"CloseDelivers", (*suite).closeDelivers},
	{"CloseTwice", (*suite).closeTwice},
	{"Leaks", (*suite).leaks},
	{"Exchange", (*suite).exchange},
	{"Subset", (*suite).subset},
	{"Regroup", (*suite).regroup},
}

// patience bounds every test: a transport that hangs fails by the context's error.
const patience = 60 * time.Second

// world makes the transports of a test and closes them at its end.
func (s *suite) world(t *testing.T, n int) (context.Context, []transport.Transport) {
	t.Helper()
	ts := s.newWorld(t, n)
	if len(ts) != n {
		t.Fatalf("newWorld made %d transports of %d", len(ts), n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(func() {
		cancel()
		closeAll(ts)
	})
	return ctx, ts
}

func closeAll(ts []transport.Transport) {
	done := make(chan struct{})
	for _, tr := range ts {
		go func() {
			tr.Close()
			done <- struct{}{}
		}()
	}
	for range ts {
		<-done
	}
}

// together runs f for each transport at once and reports the first error of each.
func together(t *testing.T, ts []transport.Transport, f func(tr transport.Transport) error) {
	t.Helper()
	errs := make(chan error)
	for _, tr := range ts {
		go func() {
			err := f(tr)
			if err != nil {
				err = fmt.Errorf("rank %d: %w", tr.Rank(), err)
			}
			errs <- err
		}()
	}
	for range ts {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// start runs f and returns where its error will be.
func start(f func() error) <-chan error {
	c := make(chan error, 1)
	go func() { c <- f() }()
	return c
}

// pattern fills p with bytes that tell their place and the frame that they belong to.
func pattern(p []byte, frame int) []byte {
	for i := range p {
		p[i] = byte(i + i>>8 + i>>16 + 31*frame)
	}
	return p
}

func firstDifference(got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Errorf("byte %d of %d is %#x, expected %#x", i, len(want), got[i], want[i])
		}
	}
	return fmt.Errorf("%d bytes, expected %d", len(got), len(want))
}

func tagOf(c transport.Class, match int) transport.Tag {
	return transport.Tag{Class: c, Match: uint64(match), Call: 0xCA11, Count: uint64(match) << 40}
}

var classes = []transport.Class{transport.Collective, transport.PointToPoint, transport.Control}

// leaks makes worlds, uses and closes them, and counts goroutines.
func (s *suite) leaks(t *testing.T) {
	round := func() {
		ts := s.newWorld(t, 3)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		waiting := start(func() error {
			return ts[0].Recv(ctx, 1, transport.Tag{Class: transport.PointToPoint}, make([]byte, 1))
		})
		together(t, ts, func(tr transport.Transport) error { return ringOnce(ctx, tr, transport.Control) })
		closeAll(ts)
		<-waiting
	}
	round() // what is started once and for all
	before := runtime.NumGoroutine()
	for range 3 {
		round()
	}
	settles(t, before)
}

// settles waits until no more goroutines run than before. Close joins what a transport started, but a goroutine that has said
// so may have yet to end.
func settles(t *testing.T, before int) {
	t.Helper()
	deadline := time.After(patience / 4)
	for runtime.NumGoroutine() > before {
		select {
		case <-deadline:
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), stacks[:runtime.Stack(stacks, true)])
		default:
			runtime.Gosched()
		}
	}
}

// ringOnce sends a frame to the next rank and receives one from the previous.
func ringOnce(ctx context.Context, tr transport.Transport, c transport.Class) error {
	next, prev := (tr.Rank()+1)%tr.Size(), (tr.Rank()+tr.Size()-1)%tr.Size()
	sent := start(func() error { return tr.Send(ctx, next, tagOf(c, 1), pattern(make([]byte, 1000), tr.Rank())) })
	got := make([]byte, 1000)
	if err := tr.Recv(ctx, prev, tagOf(c, 1), got); err != nil {
		return err
	}
	if err := <-sent; err != nil {
		return err
	}
	return firstDifference(got, pattern(make([]byte, 1000), prev))
}
