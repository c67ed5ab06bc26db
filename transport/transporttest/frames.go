package transporttest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/goccl/goccl/transport"
)

func (s *suite) identity(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		_, ts := s.world(t, n)
		for i, tr := range ts {
			if tr.Rank() != i || tr.Size() != n {
				t.Errorf("transport %d of %d says that it is %d of %d", i, n, tr.Rank(), tr.Size())
			}
		}
	}
}

// A call that cannot be meant is refused and leaves the transport as it was.
func (s *suite) arguments(t *testing.T) {
	ctx, ts := s.world(t, 2)
	good := transport.Tag{Class: transport.Collective}
	for _, c := range []struct {
		peer int
		tag  transport.Tag
	}{{0, good}, {-1, good}, {2, good}, {1, transport.Tag{}}, {1, transport.Tag{Class: 77}}} {
		refused := func(what string, call func(context.Context, int, transport.Tag, []byte) error) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			switch err := call(ctx, c.peer, c.tag, nil); {
			case err == nil:
				t.Errorf("%s rank %d with %+v: no error", what, c.peer, c.tag)
			case ctx.Err() != nil:
				t.Errorf("%s rank %d with %+v blocks; want an error at once", what, c.peer, c.tag)
			}
		}
		refused("Send to", ts[0].Send)
		refused("Recv from", ts[0].Recv)
	}
	together(t, ts, func(tr transport.Transport) error { return ringOnce(ctx, tr, transport.Collective) })
}

// frameSizes lie around the header's and the read-ahead's, and beyond.
func (s *suite) frameSizes() []int {
	return []int{0, 1, 63, 64, 65, 1000, 16<<10 - 64, 16 << 10, 16<<10 + 1, 0, 7, s.large / 64}
}

// Frames of all sizes arrive whole and in order, between all pairs, in every class and in a group of the caller's.
func (s *suite) order(t *testing.T) {
	ctx, ts := s.world(t, 3)
	streams := []transport.Tag{{Group: 0xABCD, Class: transport.Collective}}
	for _, c := range classes {
		streams = append(streams, transport.Tag{Class: c})
	}
	together(t, ts, func(tr transport.Transport) error {
		var wg sync.WaitGroup
		errs := make(chan error, 2*len(streams)*tr.Size())
		for _, tag := range streams {
			for d := 1; d < tr.Size(); d++ {
				peer := (tr.Rank() + d) % tr.Size()
				wg.Go(func() { errs <- s.sendAll(ctx, tr, peer, tag) })
				wg.Go(func() { errs <- s.recvAll(ctx, tr, peer, tag) })
			}
		}
		wg.Wait()
		close(errs)
		for err := range errs {
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *suite) sendAll(ctx context.Context, tr transport.Transport, to int, tag transport.Tag) error {
	for i, size := range s.frameSizes() {
		tag.Match, tag.Count = uint64(i), uint64(size)
		if err := tr.Send(ctx, to, tag, pattern(make([]byte, size), i+tr.Rank())); err != nil {
			return fmt.Errorf("frame %d to %d: %w", i, to, err)
		}
	}
	return nil
}

func (s *suite) recvAll(ctx context.Context, tr transport.Transport, from int, tag transport.Tag) error {
	for i, size := range s.frameSizes() {
		tag.Match, tag.Count = uint64(i), uint64(size)
		p := make([]byte, size)
		err := tr.Recv(ctx, from, tag, p)
		if err == nil {
			err = firstDifference(p, pattern(make([]byte, size), i+from))
		}
		if err != nil {
			return fmt.Errorf("%v frame %d from %d: %w", tag.Class, i, from, err)
		}
	}
	return nil
}

// A frame that is not the expected one is a TagError that says both, on this call and on all later ones of the stream.
func (s *suite) tags(t *testing.T) {
	base := transport.Tag{Class: transport.Collective, Match: 5, Call: 6, Count: 7}
	for name, c := range map[string]struct {
		change func(*transport.Tag)
		bytes  int
	}{
		"match":   {func(tag *transport.Tag) { tag.Match++ }, 10},
		"call":    {func(tag *transport.Tag) { tag.Call |= 1 << 63 }, 10},
		"count":   {func(tag *transport.Tag) { tag.Count = 0 }, 10},
		"shorter": {func(*transport.Tag) {}, 9},
		"longer":  {func(*transport.Tag) {}, 100_000},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, ts := s.world(t, 2)
			sent := base
			c.change(&sent)
			done := start(func() error { return ts[1].Send(ctx, 0, sent, make([]byte, c.bytes)) })
			want := transport.TagError{Rank: 1, Want: base, Got: sent, WantBytes: 10, GotBytes: uint64(c.bytes)}
			for i := range 2 {
				err := ts[0].Recv(ctx, 1, base, make([]byte, 10))
				var got *transport.TagError
				if !errors.As(err, &got) || *got != want {
					t.Fatalf("Recv %d: %v\nexpected %v", i, err, &want)
				}
			}
			together(t, ts, func(tr transport.Transport) error { return ringOnce(ctx, tr, transport.Control) })
			ts[0].Close() // lets a Send that waits for the rest of its frame to be taken go
			<-done
		})
	}
}

// Two ranks that send each other more than any buffer holds, before either receives it all, both get through.
func (s *suite) largeBothWays(t *testing.T) {
	ctx, ts := s.world(t, 2)
	together(t, ts, func(tr transport.Transport) error {
		peer, tag := 1-tr.Rank(), tagOf(transport.PointToPoint, 1)
		sent := start(func() error { return tr.Send(ctx, peer, tag, pattern(make([]byte, s.large), tr.Rank())) })
		got := make([]byte, s.large)
		if err := errors.Join(tr.Recv(ctx, peer, tag, got), <-sent); err != nil {
			return err
		}
		return firstDifference(got, pattern(make([]byte, s.large), peer))
	})
}

// A stream that nobody receives from holds up no other one between the same ranks.
func (s *suite) independent(t *testing.T) {
	ctx, ts := s.world(t, 2)
	stuck := []transport.Tag{tagOf(transport.Collective, 1), {Class: transport.PointToPoint, Group: 9}, {Class: transport.Collective, Group: 10}}
	payload := pattern(make([]byte, s.large/4), 1)
	var sends []<-chan error
	for _, tag := range stuck {
		sends = append(sends, start(func() error { return ts[0].Send(ctx, 1, tag, payload) }))
	}
	others := []transport.Tag{tagOf(transport.PointToPoint, 2), tagOf(transport.Control, 3), {Class: transport.Collective, Group: 11}}
	for range 10 {
		for _, tag := range others {
			sent := start(func() error { return ts[0].Send(ctx, 1, tag, []byte("passes")) })
			got := make([]byte, 6)
			if err := errors.Join(ts[1].Recv(ctx, 0, tag, got), <-sent); err != nil || string(got) != "passes" {
				t.Fatalf("%+v: %q, %v", tag, got, err)
			}
		}
	}
	for i, tag := range stuck {
		got := make([]byte, len(payload))
		if err := errors.Join(ts[1].Recv(ctx, 0, tag, got), <-sends[i], firstDifference(got, payload)); err != nil {
			t.Fatalf("%+v: %v", tag, err)
		}
	}
}

// Frames that many goroutines send under one tag do not mix.
func (s *suite) concurrentSenders(t *testing.T) {
	ctx, ts := s.world(t, 2)
	const senders, each, size = 8, 20, 3000
	tag := tagOf(transport.Control, 1)
	var sends []<-chan error
	for i := range senders {
		sends = append(sends, start(func() error {
			for range each {
				if err := ts[0].Send(ctx, 1, tag, pattern(make([]byte, size), i)); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	var mu sync.Mutex
	count := map[byte]int{}
	var recvs []<-chan error
	for range 4 {
		recvs = append(recvs, start(func() error {
			for range senders * each / 4 {
				got := make([]byte, size)
				if err := ts[1].Recv(ctx, 0, tag, got); err != nil {
					return err
				}
				who := got[0] / 31
				if err := firstDifference(got, pattern(make([]byte, size), int(who))); err != nil {
					return err
				}
				mu.Lock()
				count[who]++
				mu.Unlock()
			}
			return nil
		}))
	}
	for _, c := range append(sends, recvs...) {
		if err := <-c; err != nil {
			t.Fatal(err)
		}
	}
	for who, n := range count {
		if n != each {
			t.Errorf("%d frames of sender %d, expected %d", n, who, each)
		}
	}
}
