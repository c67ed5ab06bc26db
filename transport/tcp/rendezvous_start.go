package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// verdictGrace is how long a rank whose own time is over still waits for the coordinator's words.
const verdictGrace = 300 * time.Millisecond

// A start is one rank on its way into the mesh.
type start struct {
	*plan
	host        *host
	mesh        *mesh         // once the table is there
	coordinator *coordinator  // on rank 0, unless a coordinator is apart
	verdict     chan struct{} // closed when our own coordinator has handed out its verdict; nil without one
	reg         registration
	conn        net.Conn // to the coordinator, or to a rank of a run that has begun
	role        role     // of who is at the other end
	inbox       chan letter
	missing     []int // as last heard
	began       time.Time

	// Of a run that has begun, see admission.go.
	note       *lobbyNote // as last heard; nil: never
	at         string     // where it was heard
	redirected []string   // where to look for a rank to wait at
	pause      backoff    // between attempts to find one
}

// join meets the other ranks, calls open once the table of addresses is known, then tells the coordinator how that went and
// returns when every rank's verdict is in: nil on all ranks, or an error on all ranks.
//
// When the run has begun already it waits until a Regroup admits this process; open may be called several times then, and
// leaves the mesh's undo behind each time.
func join(ctx context.Context, cfg Config, open func(ctx context.Context, m *mesh) error) (*mesh, error) {
	p, err := cfg.check()
	if err != nil {
		if cfg.Listener != nil {
			cfg.Listener.Close()
		}
		return nil, err
	}
	if p.Size > 1 {
		warnOfSecret(p.Logger, p.Secret)
	}
	ctx, cancel := withTimeout(ctx, cfg.Timeout)
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	s := &start{plan: p, host: newHost(p), began: time.Now()}
	if err := s.run(ctx, fail, open); err != nil {
		s.host.close()
		return nil, err
	}
	s.host.hold(false)
	return s.mesh, nil
}

func (s *start) run(ctx context.Context, fail func(error), open func(ctx context.Context, m *mesh) error) error {
	if s.Size == 1 {
		if s.Listener != nil {
			s.Listener.Close()
		}
		if err := s.begin(&table{peers: make([]peerInfo, 1)}, 0, 0); err != nil {
			return err
		}
		return open(ctx, s.mesh)
	}
	defer s.leave()
	ln, err := s.attach(ctx, fail)
	if err != nil {
		return err
	}
	info, listenErr := s.listenForLinks(ctx, ln)
	s.reg = registration{info: info, options: sortedOptions(s.Options)}
	if listenErr != nil {
		s.reg.problem = listenErr.Error()
	}
	for {
		if err := s.enroll(); err != nil {
			return err
		}
		if listenErr != nil {
			return s.resign(listenErr)
		}
		done, err := s.proceed(ctx, open)
		if done || err != nil {
			return err
		}
		s.leave()
		if s.redirected == nil {
			s.pause.sleep(ctx) // if it ends, so does the next attempt
		}
		if _, err = s.attach(ctx, fail); err != nil {
			return err
		}
	}
}

// attach gives this rank its connection to whoever starts or runs the run: ln is the listener when that is this rank itself.
func (s *start) attach(ctx context.Context, fail func(error)) (ln net.Listener, err error) {
	ln, s.conn, err = s.meet(ctx)
	if err != nil {
		return nil, err
	}
	s.coordinate(ctx, ln)
	s.host.serve(s.coordinator, ln, fail)
	s.inbox = make(chan letter, 1)
	go s.read(s.conn, s.inbox, s.role == roleRunning)
	return ln, nil
}

// enroll tells the other end who this rank is.
func (s *start) enroll() error {
	_, err := s.conn.Write(message(kindRegister, s.reg.payload()))
	if err != nil && s.role != roleRunning { // where the run has begun, reading meets the end too and knows what to do
		return s.gone(err)
	}
	return nil
}

// proceed waits for what the other end has to say, up to the end of the start. Not done: this rank has to meet the others anew.
func (s *start) proceed(ctx context.Context, open func(ctx context.Context, m *mesh) error) (done bool, err error) {
	for {
		l, err := s.await(ctx)
		switch {
		case err != nil:
			return false, err
		case l.table != nil:
			if err := s.begin(l.table, s.Rank, 0); err != nil {
				return false, s.resign(err)
			}
			if err := s.connect(ctx, open); err != nil {
				return false, err
			}
			s.host.begin(s.reg.options, s.reg.info, s.Logger)
			return true, nil
		case l.admit == nil:
			return false, nil
		}
		fate, err := s.enter(ctx, l.admit, open)
		switch {
		case err != nil || fate == admitted:
			return err == nil, err
		case fate == astray:
			return false, nil
		}
	}
}

// begin enters the world of the table.
func (s *start) begin(t *table, rank int, epoch uint64) error {
	var nearby netip.AddrPort
	var zone netip.Addr
	if s.conn != nil {
		nearby, zone = addrPort(s.conn.RemoteAddr()), addrPort(s.conn.LocalAddr()).Addr()
	}
	if s.coordinator != nil {
		zone = s.coordinator.zone
	}
	s.mesh = newMesh(s.host, rank, epoch, t, nearby, zone)
	return s.host.enter(s.mesh)
}

// coordinate makes this rank the coordinator when it has a listener for that. Its own registration goes through a pipe, so
// that it needs no way from the host to itself.
func (s *start) coordinate(ctx context.Context, ln net.Listener) {
	if ln == nil {
		return
	}
	s.Coordinator, s.role = ln.Addr().String(), roleRank
	c := newCoordinator(s.Size, s.RunID, s.Coordinator, fmt.Sprintf("rank 0 (%s)", s.Coordinator))
	c.believes, c.isRank = s.cred.believes(), true
	c.zone = addrPort(ln.Addr()).Addr()
	s.coordinator, s.verdict = c, make(chan struct{})
	near, far := net.Pipe()
	s.conn = near
	c.wg.Go(func() { c.take(far, &hello{from: 0, size: uint32(s.Size)}, func() {}) })
	// The coordinator outlives a cancelled context by as long as it takes to tell the others: rank 0's result says why.
	deadline, cancel := withDeadlineOf(ctx)
	go func() {
		defer close(s.verdict)
		defer cancel()
		c.run(deadline)
	}()
}

func withDeadlineOf(ctx context.Context) (context.Context, context.CancelFunc) {
	free := context.WithoutCancel(ctx)
	if at, ok := ctx.Deadline(); ok {
		return context.WithDeadline(free, at)
	}
	return context.WithCancel(free)
}

// connect runs open, reports how it went, and returns the verdict.
func (s *start) connect(ctx context.Context, open func(ctx context.Context, m *mesh) error) error {
	octx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	opened := make(chan error, 1)
	go func() { opened <- open(octx, s.mesh) }()
	var own error
	select {
	case own = <-opened:
	case l := <-s.inbox: // nothing but bad news comes before our result
		err := s.verdictOf(l, nil)
		if errors.Is(err, context.DeadlineExceeded) {
			stop(context.DeadlineExceeded)
			return s.verdictOf(l, <-opened) // which of the connections was missing here
		}
		stop(err)
		<-opened
		return err
	}
	if peerHungUp(own) {
		select {
		case l := <-s.inbox: // why it did
			return s.verdictOf(l, own)
		case <-time.After(hearsayGrace):
		case <-ctx.Done():
		}
	}
	if own != nil {
		return s.resign(own)
	}
	if _, err := s.conn.Write(message(kindResult, (&outcome{}).payload())); err != nil {
		return s.gone(err)
	}
	select {
	case l := <-s.inbox:
		return s.verdictOf(l, nil)
	case <-ctx.Done():
		return s.giveUp(ctx)
	}
}

// hearsayGrace is how long a rank whose peer hung up on it waits for the peer's own word, which says more, before it reports.
const hearsayGrace = 200 * time.Millisecond

// peerHungUp reports whether err is but the end of a connection.
func peerHungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// verdictOf reads a letter that must be the verdict; nil means that every rank is connected, which cannot be said before this
// one has reported so.
func (s *start) verdictOf(l letter, own error) error {
	switch {
	case l.verdict == nil:
		return s.gone(l.err)
	case l.verdict.code == outcomeFine:
		return nil
	}
	return joinError(s.Coordinator, l.verdict, own)
}

// giveUp is resign for a rank whose context has ended while it waited for others.
func (s *start) giveUp(ctx context.Context) error {
	own := context.Cause(ctx)
	if !errors.Is(own, context.DeadlineExceeded) {
		return s.resign(fmt.Errorf("gave up: %w", own))
	}
	waited := after(time.Since(s.began))
	mine := &outcome{code: outcomeLate, text: waited}
	if v := s.exchange(mine); v != nil {
		return s.verdictOf(letter{verdict: v}, own)
	}
	// Nobody answers: what was last heard must do.
	if len(s.missing) > 0 {
		mine = &outcome{code: outcomeMissing, ranks: s.missing, text: "deadline passed " + waited + ": " + missingText(s.missing)}
	} else {
		mine.text = "deadline passed " + waited + ": the coordinator does not answer"
	}
	return joinError(s.Coordinator, mine, own)
}

// resign tells the coordinator that this rank cannot go on, and returns what the coordinator makes of it: the same words that
// the other ranks hear.
func (s *start) resign(own error) error {
	mine := failed([]int{s.Rank}, "%v", explain(own))
	if errors.Is(own, context.DeadlineExceeded) {
		mine.code = outcomeLate
	}
	if v := s.exchange(mine); v != nil {
		return s.verdictOf(letter{verdict: v}, own)
	}
	mine.text = fmt.Sprintf("rank %d: %s", s.Rank, mine.text)
	return joinError(s.Coordinator, mine, own)
}

// exchange sends a result and waits a little for the verdict; nil when none comes.
func (s *start) exchange(mine *outcome) *outcome {
	s.conn.SetDeadline(time.Now().Add(verdictGrace))
	// If this fails the coordinator has perhaps made up its mind and gone: its verdict has come then.
	s.conn.Write(message(kindResult, mine.payload()))
	for l := range s.inbox {
		if l.verdict != nil {
			return l.verdict
		}
		if l.missing != nil {
			s.missing = l.missing
		}
	}
	return nil
}

// gone is the end of the connection to the coordinator before its verdict.
func (s *start) gone(err error) error {
	e := &JoinError{Coordinator: s.Coordinator, Err: err}
	who := "the coordinator"
	if s.role != roleApart {
		who, e.Ranks = "rank 0, the coordinator,", []int{0}
	}
	e.Reason = fmt.Sprintf("%s was lost before all were connected: %v", who, err)
	return e
}

// leave ends the connection to the coordinator, and our own coordinator once it has told everybody.
func (s *start) leave() {
	if s.conn != nil {
		s.conn.Close()
		for range s.inbox {
		}
	}
	if s.verdict != nil {
		<-s.verdict
	}
}
