package goccl

import (
	"context"
	"sync"
	"time"
)

// order gives the group's collectives their turns, first come first served. A synchronous call runs in its caller's
// goroutine; a run of asynchronous ones shares a goroutine that ends with it.
type order struct {
	mu    sync.Mutex
	busy  bool     // somebody has the turn
	queue []ticket // who waits for it
	idle  chan struct{}
}

// A ticket is one waiting call: either a channel to close or a job to run.
type ticket struct {
	ready chan struct{}
	job   func()
}

// enter returns when it is the caller's turn. If the context ends before, it calls ended, which makes the calls ahead end
// soon, and goes on waiting: a place in the order cannot be given up.
func (o *order) enter(ctx context.Context, ended func()) {
	o.mu.Lock()
	if !o.busy {
		o.busy = true
		o.mu.Unlock()
		return
	}
	ready := make(chan struct{})
	o.queue = append(o.queue, ticket{ready: ready})
	o.mu.Unlock()
	select {
	case <-ready:
	case <-ctx.Done():
		ended()
		<-ready
	}
}

// submit runs job in its turn.
func (o *order) submit(job func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.busy {
		o.queue = append(o.queue, ticket{job: job})
		return
	}
	o.busy = true
	go o.work(job)
}

func (o *order) work(job func()) {
	for job != nil {
		job()
		job = o.next()
	}
}

// leave passes the turn on.
func (o *order) leave() {
	if job := o.next(); job != nil {
		go o.work(job)
	}
}

// next wakes the next synchronous call, or returns the next job for the caller to run.
func (o *order) next() func() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) == 0 {
		o.busy = false
		if o.idle != nil {
			close(o.idle)
			o.idle = nil
		}
		return nil
	}
	t := o.queue[0]
	o.queue[0] = ticket{}
	o.queue = o.queue[1:]
	if len(o.queue) == 0 {
		o.queue = nil // let go of the array the slice has crept through
	}
	if t.ready != nil {
		close(t.ready)
	}
	return t.job
}

// waiting returns how many calls wait for their turn.
func (o *order) waiting() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.queue)
}

// drain waits until no call is pending, the group's life has ended, or the bound has passed.
func (o *order) drain(life context.Context, bound time.Duration) {
	o.mu.Lock()
	if !o.busy {
		o.mu.Unlock()
		return
	}
	if o.idle == nil {
		o.idle = make(chan struct{})
	}
	idle := o.idle
	o.mu.Unlock()
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case <-idle:
	case <-life.Done():
	case <-timer.C:
	}
}
