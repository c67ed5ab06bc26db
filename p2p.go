package goccl

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/dtype"
	"github.com/goccl/goccl/transport"
)

// TagReservedBase is the first tag that user messages may not have.
const TagReservedBase uint32 = 0xFFF0_0000

const (
	envelopeBytes = 16
	pieceBytes    = 1 << 20                // payload travels in frames of at most this, so that a cancelled receive need not wait for all of it
	lostGrace     = 500 * time.Millisecond // what a dead rank had sent may still be read for this long
	departGrace   = 500 * time.Millisecond // how long a call whose stream has ended waits for the group to know that the peer is gone
)

// Frames of a message: its envelope, then its payload in pieces. Both have a constant tag, since the receiver cannot know
// what comes.
var (
	envelopeTag = transport.Tag{Class: transport.PointToPoint}
	pieceTag    = transport.Tag{Class: transport.PointToPoint, Match: 1}
)

type envelope struct {
	tag    uint32
	typ    dtype.Type
	nbytes int64
}

func (h envelope) String() string {
	return fmt.Sprintf("send %v x %d tag %d", h.typ, h.nbytes/int64(h.typ.Size()), h.tag)
}

func (h envelope) encode(p []byte) {
	binary.LittleEndian.PutUint32(p, h.tag)
	binary.LittleEndian.PutUint32(p[4:], uint32(h.typ))
	binary.LittleEndian.PutUint64(p[8:], uint64(h.nbytes))
}

var errBadEnvelope = errors.New("malformed point-to-point envelope")

func decodeEnvelope(p []byte) (envelope, error) {
	typ, nbytes := binary.LittleEndian.Uint32(p[4:]), binary.LittleEndian.Uint64(p[8:])
	h := envelope{tag: binary.LittleEndian.Uint32(p), typ: dtype.Type(typ), nbytes: int64(nbytes)}
	if typ > 0xff || h.typ.Size() == 0 || nbytes > math.MaxInt/2 || nbytes%uint64(h.typ.Size()) != 0 {
		return envelope{}, errBadEnvelope
	}
	return h, nil
}

// p2p is the point-to-point side of a group. It outlives the collectives: a dead peer ends only its own messages.
type p2p struct {
	g       *ProcessGroup
	box     *mailbox
	peers   []p2pPeer       // by rank
	ctx     context.Context // ends everything, with the reason
	cancel  context.CancelCauseFunc
	readers sync.WaitGroup
}

type p2pPeer struct {
	turn    chan struct{} // one slot: whose turn it is to send
	sending context.Context
	gone    context.CancelCauseFunc // ends sending
	reading context.Context
	deaf    context.CancelCauseFunc // ends reading
	sent    atomic.Uint64
	full    atomic.Bool // its mailbox is full of, or for, us

	mu       sync.Mutex
	arrived  uint64 // messages read
	announce uint64 // messages it said it had sent; valid once farewell is set
	farewell bool
}

func newP2P(g *ProcessGroup) *p2p {
	p := &p2p{g: g, box: newMailbox(g.size, g.cfg.mailboxBytes()), peers: make([]p2pPeer, g.size)}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	for r := range p.peers {
		peer := &p.peers[r]
		peer.turn = make(chan struct{}, 1)
		peer.sending, peer.gone = context.WithCancelCause(p.ctx)
		peer.reading, peer.deaf = context.WithCancelCause(p.ctx)
	}
	return p
}

func (p *p2p) start() {
	for r := range p.peers {
		if r != p.g.rank {
			p.readers.Go(func() { p.read(r) })
		}
	}
}

// read takes in what one rank sends until nothing more can come.
func (p *p2p) read(from int) {
	peer := &p.peers[from]
	err := p.readAll(peer.reading, from)
	if cause := context.Cause(peer.reading); cause != nil {
		err = cause
	}
	p.box.end(from, p.blame(from, "recv", err))
}

func (p *p2p) readAll(ctx context.Context, from int) error {
	var head [envelopeBytes]byte
	var scratch []byte
	for {
		if err := p.g.t.Recv(ctx, from, envelopeTag, head[:]); err != nil {
			return err
		}
		h, err := decodeEnvelope(head[:])
		if err != nil {
			return err
		}
		m, err := p.box.admit(ctx, from, h, func(full bool) { p.tellFull(from, full) })
		if err != nil {
			return err
		}
		for left := h.nbytes; left > 0; {
			n := int(min(left, pieceBytes))
			piece, own := p.box.window(m, &scratch, n)
			if err := p.g.t.Recv(ctx, from, pieceTag, piece); err != nil {
				return err
			}
			p.box.advance(m, piece, own)
			left -= int64(n)
		}
		p.box.finish(from, m)
		p.peers[from].count(1)
	}
}

// count adds arrived messages and ends the reading once all that a leaving rank announced are here.
func (peer *p2pPeer) count(n uint64) {
	peer.mu.Lock()
	defer peer.mu.Unlock()
	peer.arrived += n
	if peer.farewell && peer.arrived >= peer.announce {
		peer.deaf(errLeft)
	}
}

// left takes a rank's goodbye: messages it has announced may still come, none can be sent to it.
func (p *p2p) left(rank int, announced uint64) {
	peer := &p.peers[rank]
	peer.mu.Lock()
	peer.farewell, peer.announce = true, announced
	peer.mu.Unlock()
	peer.gone(errLeft)
	peer.count(0)
}

// lost takes the end of a rank's control stream.
func (p *p2p) lost(rank int, err error) {
	peer := &p.peers[rank]
	peer.mu.Lock()
	left := peer.farewell
	peer.mu.Unlock()
	if left {
		return
	}
	peer.gone(err)
	time.AfterFunc(lostGrace, func() { peer.deaf(err) })
}

func (p *p2p) tellFull(from int, full bool) {
	kind := noticeMailboxOpen
	if full {
		kind = noticeMailboxFull
	}
	p.g.control.post(p.g, []outgoing{{from, notice{kind: kind}}})
}

func (p *p2p) held(rank int, full bool) { p.peers[rank].full.Store(full) }

func (p *p2p) sentTo(rank int) uint64 { return p.peers[rank].sent.Load() }

// stop ends every pending and later Send and Recv.
func (p *p2p) stop(err error) {
	p.cancel(err)
	for r := range p.peers {
		p.box.end(r, err)
	}
}

// flush waits until nobody is sending, sends included whose callers have given up, or the bound has passed.
func (p *p2p) flush(bound time.Duration) {
	timer := time.NewTimer(bound)
	defer timer.Stop()
	for r := range p.peers {
		select {
		case p.peers[r].turn <- struct{}{}:
			<-p.peers[r].turn
		case <-timer.C:
			return
		}
	}
}

// wait waits for the goroutines. stop must have been called and the transport closed.
func (p *p2p) wait() {
	p.readers.Wait()
	for r := range p.peers {
		p.peers[r].turn <- struct{}{} // for good: nobody sends any more
	}
}

// blame makes an error the culprit's, unless it is about the whole group.
func (p *p2p) blame(rank int, op string, err error) error {
	switch {
	case p.ctx.Err() != nil:
		return context.Cause(p.ctx)
	case errors.Is(err, net.ErrClosed): // our own transport
		return net.ErrClosed
	case errors.Is(err, ErrBroken): // the rank is in Shrink
		return err
	}
	if peer, ok := err.(*PeerError); ok {
		e := *peer
		e.Op = op
		return &e
	}
	return &PeerError{Rank: rank, Addr: p.g.health.peers[rank].addr, Op: op, Err: err}
}

func (p *p2p) send(ctx context.Context, to int, tag uint32, b dtype.Buffer) error {
	if err := p.check("to", to, tag, b); err != nil {
		return err
	}
	if p.ctx.Err() != nil {
		return context.Cause(p.ctx)
	}
	ctx, cancel := p.g.within(ctx)
	defer cancel()
	defer p.warnLater("send to", to, tag)()
	h := envelope{tag: tag, typ: b.Type(), nbytes: int64(b.Nbytes())}
	if to == p.g.rank {
		return p.explain(p.sendSelf(ctx, h, b.HostBytes()), ctx, "send", to)
	}
	peer := &p.peers[to]
	if err := peer.sending.Err(); err != nil { // AfterFunc may take a moment, in which a socket takes what nobody will read
		return p.explain(err, ctx, "send", to)
	}
	stop := context.AfterFunc(peer.sending, cancel)
	defer stop()
	select {
	case peer.turn <- struct{}{}:
	case <-ctx.Done():
		return p.explain(ctx.Err(), ctx, "send", to)
	}
	return p.explain(p.sendInTurn(ctx, peer, to, h, b.HostBytes()), ctx, "send", to)
}

// sendInTurn sends a message and gives the turn back. A message whose envelope has left is always completed, from a copy if
// the caller gives up, so that the stream stays whole.
func (p *p2p) sendInTurn(ctx context.Context, peer *p2pPeer, to int, h envelope, payload []byte) error {
	release := func() { <-peer.turn }
	var head [envelopeBytes]byte
	h.encode(head[:])
	if err := p.g.t.Send(ctx, to, envelopeTag, head[:]); err != nil {
		release()
		return err
	}
	peer.sent.Add(1)
	rest, err := p.sendPieces(ctx, to, payload)
	if err == nil || ctx.Err() == nil || peer.sending.Err() != nil {
		release()
		return err
	}
	rest = slices.Clone(rest)
	go func() { // keeps the turn; Close waits for it
		defer release()
		p.sendPieces(peer.sending, to, rest)
	}()
	return err
}

// sendPieces returns what is left when it fails.
func (p *p2p) sendPieces(ctx context.Context, to int, payload []byte) (rest []byte, err error) {
	for len(payload) > 0 {
		n := min(len(payload), pieceBytes)
		if err := p.g.t.Send(ctx, to, pieceTag, payload[:n]); err != nil {
			return payload, err
		}
		payload = payload[n:]
	}
	return nil, nil
}

func (p *p2p) sendSelf(ctx context.Context, h envelope, payload []byte) error {
	m, err := p.box.admit(ctx, p.g.rank, h, func(bool) {})
	if err != nil {
		return err
	}
	p.box.advance(m, payload, false)
	p.box.finish(p.g.rank, m)
	return context.Cause(p.ctx) // the mailbox may have ended in between
}

// receive runs one receive; its message is r.m, and for RecvInto in the caller's buffer.
func (p *p2p) receive(ctx context.Context, from int, r *receive) error {
	if err := p.check("from", from, r.tag, dtype.Buffer{}); err != nil {
		return err
	}
	ctx, cancel := p.g.within(ctx)
	defer cancel()
	defer p.warnLater("recv from", from, r.tag)()
	err := p.box.receive(ctx, from, r)
	if err != nil {
		return p.explain(err, ctx, "recv", from)
	}
	if r.fixed && !r.m.direct {
		copy(r.into, r.m.data)
	}
	return nil
}

func (p *p2p) check(name string, rank int, tag uint32, b dtype.Buffer) error {
	switch {
	case rank < 0 || rank >= p.g.size:
		return argument("%s %d is not a rank of a group of %d", name, rank, p.g.size)
	case tag >= TagReservedBase:
		return argument("tag %#x is reserved, user tags are below %#x", tag, TagReservedBase)
	case b.OnDevice():
		return unsupported("device memory")
	}
	return nil
}

// explain says which rank a call waited for when its context ended, and why the peer is gone when that ended it.
func (p *p2p) explain(err error, ctx context.Context, op string, rank int) error {
	if err == nil || errors.Is(err, ErrArgument) {
		return err
	}
	p.g.awaitReport(reportBound) // if the group broke, for a program that exits now
	switch {
	case p.ctx.Err() != nil:
		return context.Cause(p.ctx)
	case p.peers[rank].sending.Err() != nil && op == "send":
		return p.blame(rank, op, context.Cause(p.peers[rank].sending))
	case ctx.Err() == nil && op == "send":
		p.awaitDeparture(ctx, rank, err)
		return p.blame(rank, op, err)
	case ctx.Err() == nil:
		p.awaitDeparture(ctx, rank, err)
		return err // from the mailbox, which has blamed it
	case op == "send" && p.peers[rank].full.Load():
		return fmt.Errorf("goccl: send to rank %d: mailbox full at rank %d: %w", rank, rank, context.Cause(ctx))
	}
	return fmt.Errorf("goccl: %s rank %d: %w", map[string]string{"send": "send to", "recv": "recv from"}[op], rank, context.Cause(ctx))
}

// awaitDeparture waits, if err is the end of a peer's stream, until the group knows that the peer is gone: whoever is told of
// one may call Shrink next. Where that stream alone has ended, the bound passes.
func (p *p2p) awaitDeparture(ctx context.Context, rank int, err error) {
	if !errors.As(err, new(*PeerError)) || !streamEnded(err) {
		return
	}
	timer := time.NewTimer(departGrace)
	defer timer.Stop()
	select {
	case <-p.peers[rank].sending.Done():
	case <-ctx.Done():
	case <-timer.C:
	}
}
