package goccl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/dtype"
	"github.com/goccl/goccl/ring"
	"github.com/goccl/goccl/transport"
)

const (
	flushBound   = time.Second            // how long Close waits for calls that have been submitted
	tellBound    = 100 * time.Millisecond // how long a failing call waits for its news to be on the way
	goodbyeBound = 250 * time.Millisecond // how long Close waits for the others to answer its goodbye
)

// A ProcessGroup is a fixed set of ranks that run collectives together. Its methods are safe for concurrent use; the package
// comment says in which order collectives run and what a failure does.
type ProcessGroup struct {
	t      transport.Transport
	rank   int
	size   int
	cfg    Config
	id     uint64 // hash that names a sub-group, or a next epoch over the same plain transport; else 0
	parent *ProcessGroup
	ranks  []int  // of this group in its parent, or in the group that it follows
	inside []int  // of this group in its parent, also if it follows another; nil: no parent
	epoch  uint64 // see Epoch
	tried  uint64 // highest number of a next epoch that has been tried; guarded by mu

	base      *plainBase // nil: t can regroup, or belongs to this group alone
	keepsBase bool       // it is one of those that keep base open

	order order          // whose turn it is
	exec  *ring.Executor // used by the call whose turn it is
	cur   ring.Call      // its call; here so that it need not be allocated
	seq   uint64         // its sequence number; guarded by mu

	life      context.Context // ends with the first cause; what every collective's exchange runs under
	breakLife context.CancelCauseFunc

	mu       sync.Mutex
	health   *health
	inflight inflight // guarded by mu
	recorder recorder // guarded by mu
	closed   bool     // guarded by mu: Close has begun
	told     bool     // guarded by mu: the caller has been told the first cause
	torn     bool     // guarded by mu: the transport was closed by somebody else
	shrink   shrink

	children children
	control  control
	watch    watch
	p2p      *p2p
	dumps    dumps

	closing  atomic.Bool
	closedc  chan struct{} // closed when Close is done
	closeErr error         // valid then
}

// inflight is the collective that is running, for the watcher.
type inflight struct {
	ctx      context.Context // the caller's; nil: none is running
	deadline time.Time       // by Config.Timeout; zero: none
}

// New makes a group of a transport, which it owns and closes. All ranks of the transport make theirs; Config{} works.
func New(t transport.Transport, cfg Config) (*ProcessGroup, error) {
	if t == nil {
		return nil, argument("transport is nil")
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	g := newGroup(t, cfg, cfg.heartbeat())
	if r, ok := t.(transport.Regrouper); ok {
		g.epoch, g.tried = r.Epoch(), r.Epoch()
	} else {
		g.share(&plainBase{Transport: t})
	}
	g.start()
	return g, nil
}

// newGroup makes a group with heartbeats at an interval, 0: none. The caller says where it comes from and then starts it.
func newGroup(t transport.Transport, cfg Config, heartbeat time.Duration) *ProcessGroup {
	g := &ProcessGroup{t: t, rank: t.Rank(), size: t.Size(), cfg: cfg, closedc: make(chan struct{})}
	g.life, g.breakLife = context.WithCancelCause(context.Background())
	g.exec = ring.NewExecutor(t, 0, ring.Options{Algorithm: cfg.Algorithm})
	g.health = newHealth(g.rank, g.size, func(r int) string {
		if a, ok := t.(transport.Addresser); ok {
			return a.Addr(r)
		}
		return ""
	})
	g.health.life = newLiveness(g.rank, g.size, heartbeat)
	g.health.warnAfter = cfg.stallWarning()
	g.recorder.born = time.Now()
	g.dumps.init()
	g.shrink.news = make(chan struct{}, 1)
	g.p2p = newP2P(g)
	g.control.init(g.size)
	g.watch.init()
	return g
}

// start starts the group's goroutines. Everything is in place before the first can look at it.
func (g *ProcessGroup) start() {
	go g.watch.loop(g)
	g.control.start(g)
	g.p2p.start()
}

// Rank returns this process's number in the group, from 0.
func (g *ProcessGroup) Rank() int { return g.rank }

// Size returns the number of ranks.
func (g *ProcessGroup) Size() int { return g.size }

// IsLeader reports whether this is the lowest rank: the one to print, sample or save.
func (g *ProcessGroup) IsLeader() bool { return g.rank == 0 }

// Transport returns what New was given, or what Join made. It belongs to the group.
func (g *ProcessGroup) Transport() transport.Transport { return g.t }

// ParentRanks maps each rank of a group made by Split or Subgroup to its rank in the parent, and each rank of one made by
// Shrink or Admit to its rank in the group before, -1 for a newcomer; nil for other groups, also where a newcomer got it.
func (g *ProcessGroup) ParentRanks() []int { return slices.Clone(g.ranks) }

// Err returns the first cause that broke the group, nil while it works.
func (g *ProcessGroup) Err() error {
	err := g.firstCause()
	if err != nil {
		g.awaitReport(reportBound)
	}
	return err
}

func (g *ProcessGroup) firstCause() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tell()
}

// tell returns the first cause, nil while there is none, and notes that the caller knows. The caller holds g.mu.
func (g *ProcessGroup) tell() error {
	g.told = g.told || g.health.cause != nil
	return g.health.cause
}

// Plan says which algorithm a collective of that many elements would take, and why. op is the operation's name as in
// errors, such as "all-reduce", and may be followed by a reduction other than the sum: "all-reduce mean". count is that of
// the larger buffer: of all parts together for a reduce-scatter, all-gather, gather or scatter.
func (g *ProcessGroup) Plan(op string, t dtype.Type, count int) string {
	return plan(op, t, count, g.size, g.cfg.Algorithm)
}

// run carries out one collective in its turn.
func (g *ProcessGroup) run(ctx context.Context, c ring.Call) error {
	_, err := g.runNumbered(ctx, c)
	return err
}

// runNumbered is run that also returns the call's sequence number.
func (g *ProcessGroup) runNumbered(ctx context.Context, c ring.Call) (uint64, error) {
	if err := c.Check(g.rank, g.size); err != nil {
		return 0, err
	}
	g.order.enter(ctx, func() { g.endedInLine(ctx, c.Op) })
	defer g.order.leave()
	return g.runInTurn(ctx, c)
}

func (g *ProcessGroup) runInTurn(ctx context.Context, c ring.Call) (uint64, error) {
	g.cur = c
	tag, err := g.begin(ctx)
	if err == nil {
		err = g.end(g.exec.Run(g.life, tag.Match, &g.cur))
	}
	g.cur = ring.Call{} // keep no caller's buffer alive
	if err != nil {
		g.control.handOver(tellBound)
		g.awaitReport(reportBound)
	}
	return tag.Match, err
}

// begin opens the call in g.cur.
func (g *ProcessGroup) begin(ctx context.Context) (transport.Tag, error) {
	now := time.Now()
	g.mu.Lock()
	defer g.settle()
	if err := g.usable(); err != nil {
		return transport.Tag{}, err
	}
	g.seq++
	tag := g.exec.Tag(&g.cur, g.seq)
	g.recorder.begin(now, &tag, max(g.cur.Dst.Nbytes(), g.cur.Src.Nbytes()))
	g.health.begin(now, tag)
	if ctx.Err() != nil { // the peers have begun: they must be told
		g.health.cancelled(g.health.runningCall(), context.Cause(ctx))
	}
	if g.health.cause != nil {
		g.recorder.end(now, g.health.cause)
		return transport.Tag{}, g.tell()
	}
	g.inflight = inflight{ctx: ctx}
	if d := g.cfg.timeout(); d > 0 {
		g.inflight.deadline = now.Add(d)
	}
	g.watch.callBegins(now, &g.inflight)
	return tag, nil
}

// usable returns what a call on a group that is closed or broken returns, nil while the group works. The caller holds g.mu.
func (g *ProcessGroup) usable() error {
	switch {
	case g.closed:
		return g.over()
	case g.health.cause != nil:
		return broken(g.tell())
	}
	return nil
}

// over is the error of calls on a group that is closed or that another one follows. The caller holds g.mu.
func (g *ProcessGroup) over() error {
	if next := g.dumps.heir; next != nil {
		return fmt.Errorf("goccl: the group of epoch %d goes on in place of this one: %w", next.epoch, net.ErrClosed)
	}
	return net.ErrClosed
}

// end closes the running call and finds the first cause when it failed.
func (g *ProcessGroup) end(err error) error {
	now := time.Now()
	g.mu.Lock()
	g.inflight = inflight{}
	g.watch.callEnds(g.seq)
	g.recorder.end(now, err)
	if err == nil {
		g.health.end(now)
		g.mu.Unlock()
		return nil
	}
	if g.health.cause == nil && g.closed {
		g.mu.Unlock()
		return net.ErrClosed
	}
	g.health.failed(now, err)
	g.settle()
	g.watch.kick()
	<-g.life.Done() // the verdict may need to hear from another rank first; the watcher bounds it
	if err := g.firstCause(); err != nil {
		return err
	}
	return context.Cause(g.life)
}

// settle unlocks g.mu after an event was given to health, and carries out what follows from it.
func (g *ProcessGroup) settle() {
	cause := g.health.cause
	g.followShrink()
	g.control.post(g, g.health.flush()) // under mu, so that notices leave in the order of their events
	if cause != nil {
		g.reportFailure()
	}
	g.mu.Unlock()
	if cause != nil {
		g.breakLife(cause)
	}
}

// Abort makes pending and later calls on every rank fail, point-to-point included. This rank's fail with cause, the others'
// with an *AbortError. It needs no answer from anybody and returns once the news is on its way and the trace written
// (Config.TraceDir), after 600 ms at the latest.
func (g *ProcessGroup) Abort(cause error) {
	if cause == nil {
		cause = errors.New("no cause given")
	}
	err := &localAbort{AbortError{g.rank, cause.Error()}, cause}
	g.mu.Lock()
	g.health.abort(err)
	g.settle()
	g.abortHere(err)
	g.control.handOver(tellBound)
	g.awaitReport(reportBound)
}

// endedInLine takes the end of a context while its call waits for its turn. The call has its place in the order already, and
// the peers count on it, so this breaks the group: a deadline as a stall of the call ahead, which is what it waited for.
func (g *ProcessGroup) endedInLine(ctx context.Context, op ring.Op) {
	g.mu.Lock()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && g.health.mine.running {
		g.health.overdue(time.Now(), context.Cause(ctx))
	} else {
		g.health.cancelled(fmt.Sprintf("%v waiting behind %s", op, g.health.runningCall()), context.Cause(ctx))
	}
	g.settle()
	g.watch.kick()
}

// abortHere ends what an abort ends beside the collectives: point-to-point and the children.
func (g *ProcessGroup) abortHere(err error) {
	g.p2p.stop(err)
	for _, c := range g.children.endAll(err) {
		c.wakeShrink()
		go c.Abort(err) // each waits until its own news are on the way
	}
}

// Close leaves the group in order: it waits a moment for submitted calls, says goodbye, ends the children, joins its
// goroutines and closes the transport. It is idempotent and returns in bounded time, dead peers or not. It returns a
// *MismatchError if it learns only now that the ranks did not make the same calls.
func (g *ProcessGroup) Close() error {
	if g.closing.CompareAndSwap(false, true) {
		g.closeErr = g.close()
		close(g.closedc)
	}
	<-g.closedc
	return g.closeErr
}

func (g *ProcessGroup) close() error {
	g.order.drain(g.life, flushBound)
	g.endCalls()
	childErr := closeAll(g.children.endAll(net.ErrClosed))
	g.p2p.flush(flushBound)
	g.sayGoodbye(goodbyeBound)

	g.mu.Lock()
	var mismatch *MismatchError
	unknown := !g.told && errors.As(g.health.cause, &mismatch)
	g.mu.Unlock()
	err := g.shut()
	if unknown {
		return errors.Join(mismatch, childErr)
	}
	return errors.Join(err, childErr)
}

// endCalls refuses calls from now on, and waits for a Shrink that is running, which it ends.
func (g *ProcessGroup) endCalls() {
	g.mu.Lock()
	g.closed = true
	shrunk := g.shrink.done
	g.mu.Unlock()
	if shrunk != nil {
		g.wakeShrink()
		<-shrunk
	}
}

// shut ends everything, with no regard to the others but that they get what they have been told.
func (g *ProcessGroup) shut() error {
	g.withdrawOffer()
	g.mu.Lock()
	over := g.over()
	g.health.closing = true
	g.settle()
	g.control.handOver(flushBound)
	g.breakLife(over)
	g.p2p.stop(over)
	err := g.closeTransport()
	g.watch.stop()
	g.control.wait()
	g.p2p.wait()
	g.order.drain(context.Background(), flushBound)
	g.awaitReport(flushBound)
	g.dumps.stop(flushBound)
	if g.parent != nil {
		g.parent.children.end(g.id)
	}
	return err
}

func closeAll(groups []*ProcessGroup) error {
	errs := make([]error, len(groups))
	var wg sync.WaitGroup
	for i, g := range groups {
		wg.Go(func() { errs[i] = g.Close() })
	}
	wg.Wait()
	return errors.Join(errs...)
}
