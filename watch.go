package goccl

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	watchTick = 50 * time.Millisecond // how soon a running call comes under watch at the latest
	watchIdle = time.Second           // with no call for this long the watcher sleeps until there is one
)

// watch is the group's one goroutine that lets time pass: it watches the context and deadline of a call that takes long,
// ticks the health machine and sends heartbeats. Short calls never wake it: it looks in every watchTick while calls are being
// made, so that making one costs no timer, no allocation and no wake-up, and no context needs a goroutine of its own.
type watch struct {
	kicks   chan struct{}
	stopped chan struct{} // closed by stop
	done    chan struct{} // closed when the goroutine has ended
	once    sync.Once

	next     time.Time // when it looks in again for the calls' sake; zero: when there is one. Guarded by the group's mu
	watched  uint64    // the call that next is about, 0 if it is about none. Guarded by the group's mu
	lastCall time.Time // when the last call began. Guarded by the group's mu
}

func (w *watch) init() {
	w.kicks, w.stopped, w.done = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
}

func (w *watch) stop() {
	w.once.Do(func() { close(w.stopped) })
	<-w.done
}

// kick makes the watcher look now.
func (w *watch) kick() {
	select {
	case w.kicks <- struct{}{}:
	default:
	}
}

// callBegins wakes the watcher if it would look in too late for this call. The caller holds the group's mu.
func (w *watch) callBegins(now time.Time, c *inflight) {
	w.lastCall = now
	if w.next.IsZero() || c.dueBefore(w.next) {
		w.kick()
	}
}

// callEnds lets the watcher forget a call that took so long that it was watching it. The caller holds the group's mu.
func (w *watch) callEnds(seq uint64) {
	if w.watched == seq {
		w.kick()
	}
}

// dueBefore reports whether a deadline of the call lies before t.
func (c *inflight) dueBefore(t time.Time) bool {
	if !c.deadline.IsZero() && c.deadline.Before(t) {
		return true
	}
	d, ok := c.ctx.Deadline()
	return ok && d.Before(t)
}

func (w *watch) loop(g *ProcessGroup) {
	defer close(w.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		wait, done, found := w.look(g)
		found.carryOut(g)
		timer.Stop()
		if wait > 0 {
			timer.Reset(wait)
		}
		select {
		case <-w.stopped:
			return
		case <-w.kicks:
		case <-timer.C:
		case <-done:
		}
	}
}

// look lets health know the time and whether the running call is past a limit. It returns how long to sleep, 0 until kicked,
// the channel of the running call's context, and what it has found.
func (w *watch) look(g *ProcessGroup) (wait time.Duration, done <-chan struct{}, found findings) {
	now := time.Now()
	g.mu.Lock()
	defer g.settle()
	call := g.inflight
	w.watched = 0
	if call.ctx != nil {
		w.watched = g.seq
		done = call.ctx.Done()
		switch err := call.ctx.Err(); {
		case errors.Is(err, context.DeadlineExceeded):
			g.health.overdue(now, context.Cause(call.ctx))
			done = nil // it stays closed; health's own times count from here
		case err != nil:
			g.health.cancelled(g.health.runningCall(), context.Cause(call.ctx))
			done = nil
		case !call.deadline.IsZero() && !now.Before(call.deadline):
			g.health.overdue(now, &timeoutError{g.cfg.timeout()})
		}
	}
	next := g.health.tick(now)
	if call.ctx != nil && g.health.limit == nil && !call.deadline.IsZero() && (next.IsZero() || call.deadline.Before(next)) {
		next = call.deadline
	}
	if busy := now.Add(watchTick); call.ctx == nil && now.Sub(w.lastCall) < watchIdle && (next.IsZero() || busy.Before(next)) {
		next = busy
	}
	if g.health.cause != nil { // nothing is left to watch
		next, done = time.Time{}, nil
	}
	w.next = next
	silent, beat := g.health.watchOver(now)
	found = findings{silent, g.health.takeWarning()}
	if !beat.IsZero() && (next.IsZero() || beat.Before(next)) {
		next = beat
	}
	if next.IsZero() {
		return 0, done, found
	}
	return max(next.Sub(now), time.Microsecond), done, found
}

// findings are what the watcher has to carry out without the group's lock; nil: nothing.
type findings struct {
	silence *silence
	warning *stallWarning
}

func (f findings) carryOut(g *ProcessGroup) {
	if f.warning != nil {
		g.dumps.writers.Go(func() { f.warning.log(g) }) // a logger that hangs must not keep heartbeats back
	}
	if f.silence != nil {
		g.silenced(f.silence)
	}
}
