package faults

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/goccl/goccl"
)

func init() { roles["talk"] = talk }

// talk sends messages round in a circle, without end, and leaves when that fails.
func talk(s *self) {
	ctx := context.Background()
	g := s.join(ctx)
	var err error
	for i := 0; err == nil; i++ {
		if err = circle(ctx, g, i); err == nil {
			s.stepped(i == 0, func(*report) {})
		}
	}
	s.say("failed", func(r *report) { r.Failure = describe(err) })
	s.done(g.Close(), "")
}

// circle sends a message to the next rank and receives one from the rank before.
func circle(ctx context.Context, g *goccl.ProcessGroup, i int) error {
	n := g.Size()
	length := 1 + i*977%50_000
	var sent error
	var wg sync.WaitGroup
	wg.Go(func() { sent = goccl.Send(ctx, g, (g.Rank()+1)%n, 7, slices.Repeat([]int32{int32(i)}, length)) })
	got, err := goccl.Recv[int32](ctx, g, (g.Rank()+n-1)%n, 7)
	wg.Wait()
	switch {
	case sent != nil:
		return sent
	case err != nil:
		return err
	case len(got) != length || got[0] != int32(i) || got[length-1] != int32(i):
		return fmt.Errorf("message %d is wrong", i)
	}
	return nil
}

// A connection that ends after any number of bytes, in order or with a reset, is nobody's death, but it is told to everybody
// as a failure of one of its ends; in the middle of a start it is made good, or fails the start for all.
func TestCut(t *testing.T) {
	for i := range times(1) {
		for _, where := range []cutting{{"collective", collective, 3, 21}, {"control", control, 3, 10}, {"messages", messages, 2, 21}} {
			for _, reset := range []bool{false, true} {
				c := where.cut(reset)
				t.Run(fmt.Sprintf("%d/%s/%d to %d/reset=%v/after %d", i, where.name, c.way.from, c.way.to, reset, c.after),
					func(t *testing.T) { cutOne(t, where.ranks, c) })
			}
		}
	}
}

// A cutting is a class of connections among so many ranks, and the logarithm of how many bytes may pass before the cut.
type cutting struct {
	name  string
	class byte
	ranks int
	bits  float64
}

func (w *cutting) cut(reset bool) *cut {
	a := rand.IntN(w.ranks)
	c := &cut{way: way{from: a, to: (a + 1) % w.ranks, class: w.class}, reset: reset, done: make(chan struct{})}
	c.way.dialled = w.class == messages || c.way.from > c.way.to
	if w.class != messages && rand.IntN(2) == 0 { // the same connection, the other way
		c.way.from, c.way.to, c.way.dialled = c.way.to, c.way.from, !c.way.dialled
	}
	c.after = int(math.Pow(2, rand.Float64()*w.bits))
	return c
}

func cutOne(t *testing.T, n int, c *cut) {
	p := plan{Role: "survive", Count: 1 << 16, Heartbeat: 500 * time.Millisecond}
	if c.way.class == messages {
		p.Role = "talk"
	}
	w := newWire(t, n, p)
	w.cut = c
	j := start(t, n, w.plan)
	select {
	case <-c.done:
	case <-j.ctx.Done():
		t.Fatal("the connection was never there")
	}
	switch event := j.afterCut(c); {
	case event == "failed" && c.way.class == messages:
		j.expectDone(upTo(n))
	case event == "failed":
		j.goOnSomehow(upTo(n))
	case event == "lasted" && c.way.class != messages: // it was made good
		j.finish(upTo(n))
	}
}

// afterCut returns what has become of the ranks, the same for all of them. If they have failed, then because of one of the
// ends of the connection, the same for all of them, unless only messages were cut.
func (j *job) afterCut(c *cut) (event string) {
	j.t.Helper()
	events, blamed := make([]string, len(j.ranks)), map[int]bool{}
	for _, l := range j.ranks {
		l.tell("last", 1000)
	}
	for i, l := range j.ranks {
		r, _ := l.next()
		if r.Event == "running" {
			r, _ = l.next()
		}
		events[i] = r.Event
		if r.Failure != nil {
			blamed[r.Failure.Rank] = true
		}
		if f := r.Failure; r.Wrong != "" || r.Event == "failed" && (f.Kind != "peer" || f.Rank != c.way.from && f.Rank != c.way.to) {
			j.t.Errorf("rank %d says %s", l.rank, r)
		}
	}
	if len(blamed) > 1 && c.way.class != messages && events[0] == "failed" {
		j.t.Errorf("ranks %v are blamed, want one of them", slices.Sorted(maps.Keys(blamed)))
	}
	if slices.ContainsFunc(events, func(e string) bool { return e != events[0] }) || !slices.Contains([]string{"failed", "lasted", "not joined"}, events[0]) {
		j.t.Errorf("after the cut the ranks are %q", events)
	}
	return events[0]
}

// goOnSomehow waits until ranks of which none is dead have agreed, after a failure, on who goes on: most of them.
func (j *job) goOnSomehow(ranks []int) {
	j.t.Helper()
	var on []int
	for _, r := range ranks {
		switch said, _ := j.ranks[r].next(); said.Event {
		case "shrunk":
			on = append(on, r)
		case "not shrunk":
			if k := said.Failure.Kind; k != "excluded" && k != "no majority" {
				j.t.Errorf("rank %d: Shrink: %s", r, said.Failure.Text)
			}
			j.expectDone([]int{r})
		default:
			j.t.Errorf("rank %d says %s", r, said)
		}
	}
	if 2*len(on) <= len(ranks) {
		j.t.Errorf("of ranks %v only %v go on", ranks, on)
	}
	for _, r := range j.expectAll(on, "running") {
		if !slices.Equal(r.Members, on) {
			j.t.Errorf("rank %d goes on with ranks %v, want %v", r.Rank, r.Members, on)
		}
	}
	j.finish(on)
}
