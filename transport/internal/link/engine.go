package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/goccl/goccl/transport"
)

// These bound how much moves at once. Measured on loopback: pieces of 512 KiB make the fewest system calls that still
// alternate directions; forwarded pieces under 64 KiB cost more calls than their early start gains; and what a rank sends
// ahead of what it receives on one host only falls out of the cache.
const (
	maxPiece = 512 << 10
	minPiece = 64 << 10
	maxAhead = 1 << 20
)

// checkEvery is after how many passes a busy engine looks whether it should stop.
const checkEvery = 64

// A Waiter is how an engine waits when a pass over its streams has moved nothing.
type Waiter interface {
	// Spin lets others run for a moment and reports whether to try again. idle counts the fruitless passes since
	// something last moved, from 0.
	Spin(idle int) bool
	// Arm says that the next Wait is about this peer's stream, among others, in the directions that would have blocked.
	Arm(peer int, read, write bool)
	// Wait sleeps until a direction it was armed for may be ready, ctx ends, or Wake is called. It may return early.
	Wait(ctx context.Context)
	// Wake ends the Wait under way and all later ones.
	Wake()
}

// An Engine runs lists of steps over the streams of one group in the caller's goroutine. One list at a time: callers take
// turns.
type Engine struct {
	turn    turn
	closed  <-chan struct{}
	closing atomic.Bool
	waiter  Waiter

	// What follows belongs to whoever has the turn.
	flows    []flow  // by peer; the peers' streams are fixed
	active   []*flow // the peers of this run, in the order in which its steps name them
	steps    []transport.Step
	tag      transport.Tag
	maxAhead int // so that tests reach the limit with few bytes
	ahead    int // bytes sent minus bytes received, this host only
	toCome   int // receive steps still unfinished, this host only
}

func newEngine(streams []*Stream, waiter Waiter, closed <-chan struct{}) *Engine {
	e := &Engine{turn: newTurn(), closed: closed, waiter: waiter, flows: make([]flow, len(streams)), maxAhead: maxAhead}
	for i, s := range streams {
		e.flows[i].peer, e.flows[i].stream = i, s
	}
	return e
}

// Exchange runs steps to completion; see [transport.Exchanger]. A context that has ended before the call harms nothing.
// Any error after that leaves every stream that the steps name unusable, because frames may be cut anywhere.
func (e *Engine) Exchange(ctx context.Context, tag transport.Tag, steps []transport.Step) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := e.turn.take(ctx, e.closed); err != nil {
		return err
	}
	defer e.turn.release()
	if e.closing.Load() {
		return net.ErrClosed
	}
	if err := e.validate(steps); err != nil {
		return err
	}
	e.begin(tag, steps)
	defer e.end()
	if err := e.takeStreams(ctx); err != nil {
		return err
	}
	if err := e.run(ctx); err != nil {
		for _, f := range e.active {
			f.fail(err)
		}
		return err
	}
	return nil
}

// validate refuses a list that cannot be run, before any byte of it is sent.
func (e *Engine) validate(steps []transport.Step) error {
	for i := range steps {
		st := &steps[i]
		switch {
		case st.Peer < 0 || st.Peer >= len(e.flows) || e.flows[st.Peer].stream == nil:
			return fmt.Errorf("exchange: step %d names peer %d, which is not another rank of %d", i, st.Peer, len(e.flows))
		case st.In != nil && (st.Out != nil || st.After != 0):
			return fmt.Errorf("exchange: step %d both sends and receives", i)
		case st.InLen < 0 || st.In == nil && st.InLen != 0:
			return fmt.Errorf("exchange: step %d receives %d bytes", i, st.InLen)
		case st.After < 0 || st.After > len(steps) || st.After > 0 && steps[st.After-1].In == nil:
			return fmt.Errorf("exchange: step %d waits for step %d, which receives nothing", i, st.After-1)
		}
	}
	return nil
}

func (e *Engine) begin(tag transport.Tag, steps []transport.Step) {
	e.tag, e.steps = tag, steps
	for i := range steps {
		f := &e.flows[steps[i].Peer]
		if !f.listed {
			f.listed = true
			e.active = append(e.active, f)
		}
		if steps[i].In == nil {
			f.out.queue = append(f.out.queue, i)
			continue
		}
		f.in.queue = append(f.in.queue, i)
		if f.stream.peer.Local {
			e.toCome++
		}
	}
}

// end gives the turns back and forgets the run; the queues keep their memory for the next.
func (e *Engine) end() {
	for _, f := range e.active {
		f.release()
		f.listed = false
		f.out.reset()
		f.in.reset()
	}
	e.active, e.steps = e.active[:0], nil
	e.ahead, e.toCome = 0, 0
}

// takeStreams takes the turns of all directions in use, so that a run and a plain Send or Recv never mix frames.
func (e *Engine) takeStreams(ctx context.Context) error {
	for _, f := range e.active {
		if err := f.take(ctx); err != nil {
			return err
		}
	}
	return nil
}

// run drives the steps: pass after pass over all flows while something moves, then a spell of spinning, then once without
// the soft limits, which keeps them from ever blocking a schedule, and then sleep.
func (e *Engine) run(ctx context.Context) error {
	for passes, idle := 0, 0; ; passes++ {
		if passes%checkEvery == checkEvery-1 {
			if err := e.stopped(ctx); err != nil {
				return err
			}
		}
		switch r, err := e.pass(true); {
		case err != nil || r == done:
			return err
		case r == moved:
			idle = 0
			continue
		}
		if e.waiter.Spin(idle) {
			idle++
			continue
		}
		idle = 0
		switch r, err := e.pass(false); {
		case err != nil || r == done:
			return err
		case r == moved:
			continue
		case r == held:
			return errors.New("BUG: exchange: every step waits for another step or for its sink")
		}
		if err := e.stopped(ctx); err != nil {
			return err
		}
		for _, f := range e.active {
			if f.in.blocked || f.out.blocked {
				e.waiter.Arm(f.peer, f.in.blocked, f.out.blocked)
			}
		}
		e.waiter.Wait(ctx)
		if err := e.stopped(ctx); err != nil {
			return err
		}
	}
}

func (e *Engine) stopped(ctx context.Context) error {
	if e.closing.Load() {
		return net.ErrClosed
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// A result is what came of trying one direction, or all. The larger one prevails when they are put together.
type result uint8

const (
	done    result = iota // nothing left to do
	held                  // a gate, a sink or a soft limit says not now
	blocked               // the connection would block
	moved
)

// pass tries every direction of every flow once.
func (e *Engine) pass(soft bool) (result, error) {
	total := done
	for _, f := range e.active {
		r, err := e.push(f, soft)
		if err != nil {
			return r, err
		}
		f.out.blocked = r == blocked
		total = max(total, r)
		if r, err = e.pull(f); err != nil {
			return r, err
		}
		f.in.blocked = r == blocked
		total = max(total, r)
	}
	return total, nil
}

// interrupt ends the run under way and all later ones; join waits until the engine is idle.
func (e *Engine) interrupt() {
	e.closing.Store(true)
	e.waiter.Wake()
}

func (e *Engine) join() {
	e.turn <- struct{}{}
	e.turn.release()
}
