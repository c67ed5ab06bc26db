package ring

import (
	"context"
	"sync"

	"github.com/goccl/goccl/transport"
)

// plain runs steps over a transport that has only Send and Recv: a goroutine per peer and direction, so that no rank blocks
// on a peer that is itself sending. A send waits until all of its bytes are final; a frame that does not fit its sink's
// window is received apart first.
type plain struct{ t transport.Transport }

// Exchange is transport.Exchanger's. All goroutines have ended when it returns.
func (p *plain) Exchange(ctx context.Context, tag transport.Tag, steps []transport.Step) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &plainRun{t: p.t, tag: tag, steps: steps, cancel: cancel}
	r.moved.L = &r.mu
	var wg sync.WaitGroup
	for _, lane := range lanes(steps) {
		wg.Go(func() { r.fail(r.runLane(ctx, lane)) })
	}
	wg.Wait()
	return r.err
}

// lanes groups the steps by peer and direction, in list order.
func lanes(steps []transport.Step) [][]int {
	type key struct {
		peer int
		in   bool
	}
	index := make(map[key]int)
	var all [][]int
	for i := range steps {
		k := key{steps[i].Peer, steps[i].In != nil}
		j, ok := index[k]
		if !ok {
			j = len(all)
			index[k] = j
			all = append(all, nil)
		}
		all[j] = append(all[j], i)
	}
	return all
}

type plainRun struct {
	t      transport.Transport
	tag    transport.Tag
	steps  []transport.Step
	cancel context.CancelCauseFunc

	mu    sync.Mutex // also guards all sinks
	moved sync.Cond  // a sink has moved, or err is set
	err   error      // the first; guarded by mu
}

func (r *plainRun) runLane(ctx context.Context, lane []int) error {
	var frame []byte // reused by the lane's receives
	for _, i := range lane {
		s := &r.steps[i]
		if s.In == nil {
			if err := r.send(ctx, s); err != nil {
				return err
			}
			continue
		}
		var err error
		if frame, err = r.recv(ctx, s, frame); err != nil {
			return err
		}
	}
	return nil
}

func (r *plainRun) send(ctx context.Context, s *transport.Step) error {
	if s.After > 0 {
		gate := r.steps[s.After-1].In
		if !r.await(func() bool { return gate.Final() >= int64(len(s.Out)) }) {
			return nil
		}
	}
	return r.t.Send(ctx, s.Peer, r.tag, s.Out)
}

// recv receives into the sink's window if the whole frame fits, else into frame, which it returns, grown if need be.
func (r *plainRun) recv(ctx context.Context, s *transport.Step, frame []byte) ([]byte, error) {
	n := int(s.InLen)
	if n == 0 {
		return frame, r.t.Recv(ctx, s.Peer, r.tag, nil)
	}
	r.mu.Lock()
	w := s.In.Window()
	r.mu.Unlock()
	if len(w) >= n {
		if err := r.t.Recv(ctx, s.Peer, r.tag, w[:n]); err != nil {
			return frame, err
		}
		return frame, r.advance(s.In, n)
	}
	if cap(frame) < n {
		frame = make([]byte, n)
	}
	if err := r.t.Recv(ctx, s.Peer, r.tag, frame[:n]); err != nil {
		return frame, err
	}
	return frame, r.feed(s.In, frame[:n])
}

// feed hands a received frame to its sink, as the sink makes room.
func (r *plainRun) feed(sink transport.Sink, p []byte) error {
	for len(p) > 0 {
		var w []byte
		if !r.await(func() bool { w = sink.Window(); return len(w) > 0 }) {
			return nil
		}
		n := copy(w, p)
		if err := r.advance(sink, n); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

func (r *plainRun) advance(sink transport.Sink, n int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.moved.Broadcast()
	return sink.Advance(n)
}

// await sleeps until ok, which is called with the lock held; false: the run has failed.
func (r *plainRun) await(ok func() bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.err == nil {
		if ok() {
			return true
		}
		r.moved.Wait()
	}
	return false
}

// fail keeps the first error and ends all other lanes.
func (r *plainRun) fail(err error) {
	if err == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
		r.cancel(err)
	}
	r.moved.Broadcast()
}
