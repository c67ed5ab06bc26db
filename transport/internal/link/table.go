package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/goccl/goccl/transport"
)

// A Direction of a stream that serves one direction only.
type Direction uint8

const (
	Outgoing Direction = iota
	Incoming
)

// A Config describes one rank's side of a group.
type Config struct {
	Rank, Size int
	Peers      []Endpoint // by rank
	Checksum   bool       // send payload checksums

	// Open makes the connection of a stream that is not there from the start: one per direction, opened by whoever first
	// needs it. It may block until the peer opens its end, or ctx ends.
	Open func(ctx context.Context, peer int, class transport.Class, group uint64, dir Direction) (Conn, error)
	// Release closes the connections, in a way that delivers what was sent.
	Release func([]Conn)
}

// A Table holds one rank's streams by peer, class and group. It implements the five methods of [transport.Transport] and,
// with an engine, Exchange.
type Table struct {
	cfg    Config
	closed chan struct{}
	life   context.Context // ends, with net.ErrClosed, when closed is closed
	end    context.CancelCauseFunc
	once   sync.Once
	base   [transport.Control + 1][]*Stream // group 0, both directions: by class and peer; fixed by Ready
	engine *Engine

	mu      sync.Mutex
	slots   map[slotKey]*slot
	opened  []*Stream
	opening sync.WaitGroup // added to under mu while not closed
}

type slotKey struct {
	peer  int
	class transport.Class
	group uint64
	dir   Direction
}

// A slot is the place of a stream that is opened at first use.
type slot struct {
	turn   turn
	stream *Stream // guarded by turn
}

func NewTable(cfg Config) *Table {
	t := &Table{cfg: cfg, closed: make(chan struct{}), slots: make(map[slotKey]*slot)}
	t.life, t.end = context.WithCancelCause(context.Background())
	for c := range t.base {
		t.base[c] = make([]*Stream, cfg.Size)
	}
	return t
}

// Add puts a connection that serves both directions of (peer, class, group 0) into the table.
func (t *Table) Add(peer int, class transport.Class, conn Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := newStream(conn, t.cfg.Peers[peer], class, t.cfg.Checksum, t.closed)
	t.base[class][peer] = s
	t.opened = append(t.opened, s)
}

// Ready ends the time of Add. From here on the table is used, and its engine waits by w; nil: there is no engine.
func (t *Table) Ready(w Waiter) {
	if w != nil {
		t.engine = newEngine(t.base[transport.Collective], w, t.closed)
	}
}

func (t *Table) Rank() int { return t.cfg.Rank }
func (t *Table) Size() int { return t.cfg.Size }

func (t *Table) Send(ctx context.Context, to int, tag transport.Tag, p []byte) error {
	s, err := t.stream(ctx, to, tag, Outgoing)
	if err != nil {
		return err
	}
	return s.Send(ctx, tag, p)
}

func (t *Table) Recv(ctx context.Context, from int, tag transport.Tag, p []byte) error {
	s, err := t.stream(ctx, from, tag, Incoming)
	if err != nil {
		return err
	}
	return s.Recv(ctx, tag, p)
}

// Exchange runs over the collective streams of group 0; sub-groups have tables of their own.
func (t *Table) Exchange(ctx context.Context, tag transport.Tag, steps []transport.Step) error {
	if tag.Class != transport.Collective || tag.Group != 0 {
		return fmt.Errorf("exchange: class %v of group %d: %w", tag.Class, tag.Group, errors.ErrUnsupported)
	}
	return t.engine.Exchange(ctx, tag, steps)
}

// Hangup blocks until the peer's control stream has ended or failed and returns that error, or the cause of ctx.
func (t *Table) Hangup(ctx context.Context, peer int) error {
	return t.base[transport.Control][peer].hangup(ctx)
}

func (t *Table) stream(ctx context.Context, peer int, tag transport.Tag, dir Direction) (*Stream, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if peer < 0 || peer >= t.cfg.Size || peer == t.cfg.Rank {
		return nil, fmt.Errorf("transport: rank %d has no peer %d in a world of %d", t.cfg.Rank, peer, t.cfg.Size)
	}
	if tag.Class < transport.Collective || tag.Class > transport.Control {
		return nil, fmt.Errorf("transport: tag of %v %d", tag.Class, tag.Class)
	}
	if tag.Group == 0 {
		if s := t.base[tag.Class][peer]; s != nil {
			return s, nil
		}
	}
	return t.open(ctx, slotKey{peer, tag.Class, tag.Group, dir})
}

// open returns the stream of a slot and opens it if it is the first to ask. The opening goes on when ctx ends, and holds the
// turn: the peer may count the connection as open already, and would refuse another.
func (t *Table) open(ctx context.Context, key slotKey) (*Stream, error) {
	t.mu.Lock()
	sl := t.slots[key]
	if sl == nil {
		sl = &slot{turn: newTurn()}
		t.slots[key] = sl
	}
	t.mu.Unlock()
	if err := sl.turn.take(ctx, t.closed); err != nil {
		return nil, err
	}
	if s := sl.stream; s != nil {
		sl.turn.release()
		return s, nil
	}
	type result struct {
		s   *Stream
		err error
	}
	opened := make(chan result, 1)
	if !t.startOpening(func() {
		defer sl.turn.release()
		s, err := t.openNow(key)
		sl.stream = s
		opened <- result{s, err}
	}) {
		sl.turn.release()
		return nil, net.ErrClosed
	}
	select {
	case r := <-opened:
		return r.s, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// startOpening runs f in a goroutine that Close waits for, unless the table is closed.
func (t *Table) startOpening(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isClosed() {
		return false
	}
	t.opening.Go(f)
	return true
}

func (t *Table) isClosed() bool {
	select {
	case <-t.closed:
		return true
	default:
		return false
	}
}

func (t *Table) openNow(key slotKey) (*Stream, error) {
	conn, err := t.cfg.Open(t.life, key.peer, key.class, key.group, key.dir)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isClosed() {
		conn.Close()
		return nil, net.ErrClosed
	}
	s := newStream(conn, t.cfg.Peers[key.peer], key.class, t.cfg.Checksum, t.closed)
	t.opened = append(t.opened, s)
	return s, nil
}

// Close ends everything that runs on the table, then releases its connections. Later and concurrent calls wait for the
// first.
func (t *Table) Close() error {
	t.once.Do(func() {
		t.mu.Lock()
		close(t.closed)
		t.end(net.ErrClosed)
		streams := t.opened
		t.mu.Unlock()
		t.opening.Wait()
		for _, s := range streams {
			s.interrupt()
		}
		if t.engine != nil {
			t.engine.interrupt()
			t.engine.join()
		}
		conns := make([]Conn, len(streams))
		for i, s := range streams {
			s.join()
			conns[i] = s.conn
		}
		t.cfg.Release(conns)
	})
	return nil
}
