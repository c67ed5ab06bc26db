package tcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	waitingInterval = time.Second           // between two reports of who is missing
	waitingDelay    = 20 * time.Millisecond // gathers ranks that come together into one report
	failureGrace    = time.Second           // a failed start waits so long for ranks that are on their way, so that they hear of it too
	verdictPatience = time.Second           // for a rank to take its verdict
)

// A coordinator runs one start: it is the handler of registrations and one loop that owns the roster.
type coordinator struct {
	addr     string
	runID    string
	believes bool       // what a hello says although nothing proves it
	isRank   bool       // rank 0
	zone     netip.Addr // of the address it listens on
	roster   *roster
	events   chan event
	done     chan struct{}  // closed once the verdict is on its way
	wg       sync.WaitGroup // one per registered connection

	// Owned by run.
	conns   map[*caller]bool
	failure *outcome
}

// An event is what a registered connection brought.
type event struct {
	from    *caller  // nil: it was refused before it could register
	came    bool     // it has registered
	result  *outcome // it has reported
	failure *outcome // somebody else's fault, a version that differs
	hint    *hint    // or what may explain later why a rank is missing
	// none of them: it was lost
}

// A caller is a registered connection: its reader is the connection's goroutine, its writer another.
type caller struct {
	conn   net.Conn
	member *member
	out    chan []byte // closed after the verdict
}

func newCoordinator(size int, runID, addr, sizeFrom string) *coordinator {
	return &coordinator{
		addr: addr, runID: runID, roster: newRoster(size, sizeFrom),
		events: make(chan event), done: make(chan struct{}), conns: make(map[*caller]bool),
	}
}

func (c *coordinator) check(ctx context.Context, h *hello, conn net.Conn) *rejection {
	if h.runID != c.runID {
		return c.turnDown(h, conn, refuse("run id differs: %s belongs to %q, the coordinator to %q", h.caller(), h.runID, c.runID))
	}
	select {
	case <-c.done:
		return refuse("%s", c.over(h))
	default:
	}
	if c.isRank && h.from == 0 {
		return c.turnDown(nil, conn, &rejection{rejectTaken, "two processes say they are rank 0: the caller and the coordinator"})
	}
	return nil
}

// turnDown keeps, for when a rank is missing in the end, that and why a caller is refused. It may be that rank; nil: some rank.
func (c *coordinator) turnDown(as *hello, conn net.Conn, r *rejection) *rejection {
	c.tell(event{hint: newHint(as, r, peerName(conn))})
	return r
}

// over tells a rank that comes after the verdict why it is not wanted. The roster does not change any more.
func (c *coordinator) over(h *hello) string {
	switch {
	case c.failure != nil:
		return "the start of this run has failed: " + c.failure.text
	case int64(h.from) < int64(c.roster.size):
		return fmt.Sprintf("this run has begun already: rank %d is at %s", h.from, c.roster.members[h.from].addr) + c.hint()
	}
	return fmt.Sprintf("this run has begun already, with %d ranks", c.roster.size) + c.hint()
}

func (c *coordinator) hint() string {
	if c.runID == "" {
		return setRunID
	}
	return ""
}

// begun tells whether all ranks are connected. The roster does not change any more then.
func (c *coordinator) begun() bool {
	select {
	case <-c.done:
		return c.failure == nil
	default:
		return false
	}
}

// refused makes a start of this run fail at once when one of its ranks speaks another version. What a stranger could say as
// well is only kept, for when a rank is missing in the end.
func (c *coordinator) refused(h *hello, why error, from string) {
	if h != nil && h.runID != c.runID {
		return
	}
	if skew := (*versionError)(nil); h != nil && errors.As(why, &skew) && c.believes {
		c.tell(event{failure: failed([]int{int(h.from)}, "versions differ: rank %d (%s) speaks start-up protocol %d, the coordinator %d",
			h.from, from, skew.theirs, version)})
		return
	}
	c.tell(event{hint: newHint(h, why, from)})
}

// tell hands run an event; it returns false when the verdict has been sent already.
func (c *coordinator) tell(e event) bool {
	select {
	case c.events <- e:
		return true
	case <-c.done:
		return false
	}
}

// take implements handler.
func (c *coordinator) take(conn net.Conn, h *hello, settled func()) error {
	defer conn.Close()
	reg, err := readRegistration(conn)
	if err != nil {
		return err
	}
	settled()
	if !c.enlist(conn, h, reg) {
		sendOff(conn, kindVerdict, failed(nil, "%s", c.over(h)).payload())
	}
	return nil
}

func readRegistration(conn net.Conn) (*registration, error) {
	p, err := expect(conn, kindRegister)
	if err != nil {
		return nil, err
	}
	return decodeRegistration(p)
}

// sendOff says a last word to a caller and waits, to a bound, until it has hung up.
func sendOff(conn net.Conn, k kind, payload []byte) {
	conn.SetDeadline(time.Now().Add(verdictPatience))
	conn.Write(message(k, payload))
	hangUp(conn, verdictPatience)
}

// enlist reads a registered connection to its end; false: it comes after the verdict.
func (c *coordinator) enlist(conn net.Conn, h *hello, reg *registration) bool {
	from := &caller{
		conn:   conn,
		member: &member{rank: int(h.from), size: int(h.size), addr: cmp.Or(reg.info.tcp, peerName(conn)), reg: *reg},
		out:    make(chan []byte, 8),
	}
	if !c.tell(event{from: from, came: true}) {
		return false
	}
	for {
		var o *outcome
		p, err := expect(conn, kindResult)
		if err == nil {
			o, err = decodeOutcome(p)
		}
		if err != nil {
			break
		}
		c.tell(event{from: from, result: o})
	}
	c.tell(event{from: from})
	return true
}

// run collects the ranks and their results and sends the verdict, which it returns.
func (c *coordinator) run(ctx context.Context) *outcome {
	began := time.Now()
	tick := time.NewTicker(waitingInterval)
	defer tick.Stop()
	var soon, grace <-chan time.Time
	for {
		select {
		case e := <-c.events:
			if o := c.handle(e); o != nil {
				return c.finish(o)
			}
			if e.came && soon == nil {
				soon = time.After(waitingDelay)
			}
			if c.failure != nil && grace == nil {
				grace = time.After(failureGrace)
			}
		case <-soon:
			soon = nil
			c.report()
		case <-tick.C:
			c.report()
		case <-grace:
			return c.finish(c.failure)
		case <-ctx.Done():
			return c.finish(c.ended(ctx, time.Since(began)))
		}
	}
}

// ended is the failure when the coordinator's own time is over.
func (c *coordinator) ended(ctx context.Context, took time.Duration) *outcome {
	switch cause := context.Cause(ctx); {
	case c.failure != nil:
		return c.failure
	case errors.Is(cause, context.DeadlineExceeded):
		return c.roster.timedOut("at " + c.self() + " " + after(took))
	default:
		return failed(nil, "the coordinator gave up: %v", cause)
	}
}

// self is the coordinator in the words in which it would be told of by others.
func (c *coordinator) self() string {
	if m := c.roster.members[0]; c.isRank && m != nil {
		return m.String()
	}
	return c.roster.sizeFrom
}

// handle moves the roster on; it returns the verdict when nothing is left to wait for.
func (c *coordinator) handle(e event) *outcome {
	var failure, verdict *outcome
	switch {
	case e.failure != nil:
		failure = e.failure
	case e.hint != nil:
		c.roster.remember(e.hint)
	case e.came:
		c.conns[e.from] = true
		c.wg.Go(e.from.write)
		failure = c.roster.admit(e.from.member)
		if failure == nil && c.failure == nil && c.roster.full() {
			failure = c.sendTable()
		}
	case e.result != nil:
		if verdict = c.roster.report(e.from.member, e.result); verdict != nil && verdict.code != outcomeFine {
			failure = verdict
		}
	default:
		if c.conns[e.from] {
			failure = c.roster.lost(e.from.member)
		}
	}
	if c.failure == nil {
		c.failure = failure
	}
	switch {
	case c.failure == nil:
		return verdict
	case c.roster.full() || c.failure.code != outcomeFailed:
		return c.failure // nobody to wait for: all are here, or it was time that ran out
	}
	return nil
}

func (c *coordinator) sendTable() *outcome {
	var world [16]byte
	rand.Read(world[:])
	t, o := c.roster.table(world)
	if o != nil {
		return o
	}
	p := t.payload()
	if len(p) > maxPayload[kindTable] {
		return failed(nil, "the table of %d ranks takes %d bytes, more than %d", c.roster.size, len(p), maxPayload[kindTable])
	}
	c.broadcast(message(kindTable, p))
	return nil
}

// report tells everybody who is missing, as long as somebody is.
func (c *coordinator) report() {
	if !c.roster.full() && c.failure == nil {
		c.broadcast(message(kindWaiting, waitingPayload(c.roster.missing())))
	}
}

// broadcast never waits: a rank that does not take even a few messages hears the verdict or nothing.
func (c *coordinator) broadcast(m []byte) {
	for to := range c.conns {
		select {
		case to.out <- m:
		default:
		}
	}
}

// finish hands everybody the verdict and waits, to a bound, until they have it.
func (c *coordinator) finish(o *outcome) *outcome {
	if o.code != outcomeFine {
		c.failure = o
	}
	close(c.done)
	m := message(kindVerdict, o.payload())
	for to := range c.conns {
		to.conn.SetDeadline(time.Now().Add(verdictPatience))
		select {
		case to.out <- m:
		default:
		}
		close(to.out)
	}
	c.wg.Wait()
	return o
}

// write sends what the coordinator has for this rank, then waits for the rank to hang up.
func (f *caller) write() {
	var err error
	for m := range f.out {
		if err == nil {
			_, err = f.conn.Write(m)
		}
	}
	if w, ok := f.conn.(interface{ CloseWrite() error }); ok {
		w.CloseWrite() // the reader goes on until the rank closes or the deadline of finish passes
	} else {
		f.conn.Close()
	}
}
