package tcp

import (
	"context"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/internal/link"
)

var _ transport.Exchanger = (*Transport)(nil)

// Exchange implements [transport.Exchanger] for tags of class Collective and group 0. The connections of sub-groups that
// are only named in tags know Send and Recv.
func (t *Transport) Exchange(ctx context.Context, tag transport.Tag, steps []transport.Step) error {
	return t.table.Exchange(ctx, tag, steps)
}

const (
	// spinTime is how long a rank with nothing to do polls its sockets before it sleeps. Waking a sleeping thread takes about
	// 20 µs, more than all the rest of a small collective; 50 to 500 µs measured alike.
	spinTime = 100 * time.Microsecond
	// The other goroutines of this process get their chance after minRound polls, and while that does not run any, after
	// twice as many each time: runtime.Gosched wakes a thread to look for work, on the core that the peer may need.
	minRound = 8
	maxRound = 256
	// somebodyRan is how long a Gosched takes at least that let others run.
	somebodyRan = 2 * time.Microsecond
)

// A waiter is how the engine waits for the sockets of one group's collectives.
type waiter struct {
	sleeper *sleeper
	fds     []int         // by peer
	spin    time.Duration // spinTime, but for tests
	since   time.Time     // when the present spell began
	round   int           // polls from one Gosched to the next
	polls   int           // since the last

	mu    sync.Mutex
	woken bool            // for good
	done  <-chan struct{} // of the context whose end will wake the sleeper
	turn  int             // counts the contexts, so that one given up does nothing
	stop  func() bool
}

var _ link.Waiter = (*waiter)(nil)

// newWaiter watches connections, by peer; nil where there is none.
func newWaiter(conns []link.Conn) (*waiter, error) {
	s, err := newSleeper()
	if err != nil {
		return nil, err
	}
	fds := make([]int, len(conns))
	for i, c := range conns {
		if c == nil {
			continue
		}
		fds[i] = fdOf(c)
		if err := s.add(fds[i]); err != nil {
			s.close()
			return nil, err
		}
	}
	return &waiter{sleeper: s, fds: fds, spin: spinTime, round: minRound}, nil
}

// install lets the engine of a table wait this way.
func (w *waiter) install(t *link.Table) { t.Ready(w) }

// Spin yields to the other processes each time, and to the other goroutines now and then: either could keep those waiting
// that we wait for.
func (w *waiter) Spin(idle int) bool {
	if idle == 0 {
		w.since = time.Now()
	}
	unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	if w.polls++; w.polls >= w.round {
		w.gosched()
	}
	return idle%minRound != minRound-1 || time.Since(w.since) < w.spin
}

func (w *waiter) gosched() {
	before := time.Now()
	runtime.Gosched()
	if time.Since(before) > somebodyRan {
		w.round = minRound
	} else {
		w.round = min(2*w.round, maxRound)
	}
	w.polls = 0
}

func (w *waiter) Arm(peer int, read, write bool) {
	var events uint32
	if read {
		events |= unix.EPOLLIN
	}
	if write {
		events |= unix.EPOLLOUT
	}
	w.sleeper.arm(w.fds[peer], events)
}

func (w *waiter) Wait(ctx context.Context) {
	w.watch(ctx)
	w.sleeper.wait() // an error means that it was woken; the engine looks why
}

// watch makes the end of ctx wake the sleeper. Registering with a context allocates, so it stays registered while the same
// one comes again; contexts are told apart by their channels, which can always be compared.
func (w *waiter) watch(ctx context.Context) {
	done := ctx.Done()
	w.mu.Lock()
	defer w.mu.Unlock()
	if done == w.done || w.woken {
		return
	}
	w.unwatch()
	w.sleeper.file.SetReadDeadline(time.Time{})
	w.done = done
	if done == nil {
		return
	}
	turn := w.turn
	w.stop = context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.turn == turn {
			w.sleeper.file.SetReadDeadline(time.Unix(1, 0))
		}
	})
}

func (w *waiter) unwatch() {
	w.turn++
	if w.stop != nil {
		w.stop()
		w.stop = nil
	}
}

func (w *waiter) Wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.woken = true
	w.unwatch()
	w.sleeper.file.SetReadDeadline(time.Unix(1, 0))
}

// close is called when the engine is idle for good.
func (w *waiter) close() { w.sleeper.close() }
