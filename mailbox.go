package goccl

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/goccl/goccl/dtype"
)

// mailbox matches point-to-point messages with receives, by sender and tag, first in first out per tag. It does no I/O: a
// reader for each sender admits a message, fills it in pieces and finishes it.
//
// A message that a receive waits for goes straight to it; others take memory here, up to limit in all and share for one
// sender, and past that the reader waits, which holds the sender back.
type mailbox struct {
	mu      sync.Mutex
	changed *sync.Cond // on mu: room was made, a receive was posted, a box ended
	limit   int64
	share   int64
	used    int64 // bytes of unclaimed messages
	boxes   []box // by sender
}

type box struct {
	messages []*message // unclaimed, in order of arrival; the last may still be arriving
	posted   []*receive // waiting, in order of their calls
	used     int64
	err      error // set: no more messages will come
}

type message struct {
	head    envelope
	direct  bool     // it goes straight into the buffer of the receive that has claimed it
	data    []byte   // otherwise: its own memory, which grows as its bytes arrive
	filled  int      // bytes that have arrived
	done    bool     // all have
	claimed *receive // who gets it
	dropped bool     // nobody will get it: its box has ended
}

// messageCost is what an unclaimed message counts for beside its payload, so that a flood of empty ones is held back too.
const messageCost = 128

func (m *message) cost() int64 { return m.head.nbytes + messageCost }

// growFrom is how many bytes of a message get memory on the sender's word. Beyond, memory follows what has arrived.
const growFrom = 16 << 20

// A receive is one call of Recv or RecvInto.
type receive struct {
	tag   uint32
	typ   dtype.Type // 0: any
	into  []byte     // RecvInto's buffer
	fixed bool       // RecvInto: at most len(into) bytes, and no memory of ours
	ready chan struct{}
	m     *message // what it got, or is getting
	err   error
}

func newMailbox(size int, limit int64) *mailbox {
	b := &mailbox{limit: limit, share: limit, boxes: make([]box, size)}
	if size > 2 { // one flooding sender must leave room for the others
		b.share = limit / 2
	}
	b.changed = sync.NewCond(&b.mu)
	return b
}

// fits reports why a receive cannot take a message, nil if it can.
func (b *mailbox) fits(r *receive, from int, h envelope) error {
	switch {
	case r.typ != 0 && r.typ != h.typ:
		return &MismatchError{Rank: from, Want: fmt.Sprintf("recv %v tag %d", r.typ, r.tag), Got: h.String()}
	case r.fixed && h.nbytes > int64(len(r.into)):
		return argument("recv from rank %d tag %d: dst holds %d bytes, the message has %d", from, r.tag, len(r.into), h.nbytes)
	case !r.fixed && h.nbytes > b.limit:
		return argument("recv from rank %d tag %d: message of %d bytes exceeds MailboxBytes %d; use RecvInto", from, r.tag, h.nbytes, b.limit)
	}
	return nil
}

// receive waits for a message. On an error the message, if there is one, stays for another call.
func (b *mailbox) receive(ctx context.Context, from int, r *receive) error {
	b.mu.Lock()
	x := &b.boxes[from]
	i := slices.IndexFunc(x.messages, func(m *message) bool { return m.head.tag == r.tag })
	switch {
	case i >= 0:
		m := x.messages[i]
		if err := b.fits(r, from, m.head); err != nil {
			b.mu.Unlock()
			return err
		}
		x.messages = slices.Delete(x.messages, i, i+1)
		b.claim(x, m, r)
		if m.done {
			b.mu.Unlock()
			return nil
		}
	case x.err != nil:
		err := x.err
		b.mu.Unlock()
		return err
	}
	r.ready = make(chan struct{})
	x.posted = append(x.posted, r)
	b.changed.Broadcast()
	b.mu.Unlock()
	select {
	case <-r.ready:
		return r.err
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(x.posted, r); i >= 0 {
		x.posted = slices.Delete(x.posted, i, i+1)
		b.release(x, r)
		return context.Cause(ctx)
	}
	return r.err // it was ready after all
}

// claim gives a message that had arrived, or begun to, to a receive.
func (b *mailbox) claim(x *box, m *message, r *receive) {
	m.claimed, r.m = r, m
	x.used -= m.cost()
	b.used -= m.cost()
	b.changed.Broadcast()
}

// release takes a message that is still arriving back from a receive that was cancelled: nothing may be written to the
// caller's buffer from now on, and nothing of the message is lost.
func (b *mailbox) release(x *box, r *receive) {
	m := r.m
	if m == nil {
		return
	}
	if m.direct {
		m.direct = false
		m.data = append(m.data, r.into[:m.filled]...)
	}
	m.claimed = nil
	x.used += m.cost()
	b.used += m.cost()
	x.messages = slices.Insert(x.messages, 0, m) // those of its tag came later
}

// admit finds a place for a message whose envelope has arrived. held is called, without the lock, when it has to wait for
// one, and again when it has got it.
func (b *mailbox) admit(ctx context.Context, from int, h envelope, held func(full bool)) (*message, error) {
	stop := context.AfterFunc(ctx, func() {
		b.mu.Lock() // or the call could fall between a look at ctx and the wait
		defer b.mu.Unlock()
		b.changed.Broadcast()
	})
	defer stop()
	waiting := false
	defer func() {
		if waiting {
			held(false)
		}
	}()
	b.mu.Lock()
	defer b.mu.Unlock()
	x := &b.boxes[from]
	for {
		if x.err != nil {
			return nil, x.err
		}
		m := &message{head: h}
		if r := b.nextPosted(x, from, h); r != nil {
			m.claimed, r.m, m.direct = r, m, r.fixed
			return m, nil
		}
		if b.used+m.cost() <= b.limit && x.used+m.cost() <= b.share {
			x.used += m.cost()
			b.used += m.cost()
			x.messages = append(x.messages, m)
			return m, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if !waiting {
			waiting = true
			b.mu.Unlock()
			held(true)
			b.mu.Lock()
			continue
		}
		b.changed.Wait()
	}
}

// nextPosted returns the first waiting receive that takes the message; those before it that cannot end with an error.
func (b *mailbox) nextPosted(x *box, from int, h envelope) *receive {
	for i := 0; i < len(x.posted); {
		r := x.posted[i]
		if r.tag != h.tag || r.m != nil {
			i++
			continue
		}
		if err := b.fits(r, from, h); err != nil {
			x.posted = slices.Delete(x.posted, i, i+1)
			r.err = err
			close(r.ready)
			continue
		}
		return r
	}
	return nil
}

// window returns memory for the next at most n bytes of a message: its own, or scratch on the way to a caller's buffer,
// which may be written only under the lock because its owner may give up at any time.
func (b *mailbox) window(m *message, scratch *[]byte, n int) (p []byte, own bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !m.direct && !m.dropped {
		m.reserve(n)
		return m.data[m.filled : m.filled+n], true
	}
	if len(*scratch) < n {
		*scratch = make([]byte, n)
	}
	return (*scratch)[:n], false
}

// advance says that p, from window, has been filled.
func (b *mailbox) advance(m *message, p []byte, own bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case m.dropped, own:
	case m.direct:
		copy(m.claimed.into[m.filled:], p)
	default:
		m.reserve(len(p))
		copy(m.data[m.filled:], p)
	}
	m.filled += len(p)
}

// reserve makes room for n more bytes.
func (m *message) reserve(n int) {
	if need := m.filled + n; need > len(m.data) {
		size := min(m.head.nbytes, int64(max(need, 2*len(m.data), growFrom)))
		grown := make([]byte, size)
		copy(grown, m.data[:m.filled])
		m.data = grown
	}
}

// finish says that the whole message has arrived.
func (b *mailbox) finish(from int, m *message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.dropped {
		return
	}
	m.done = true
	if r := m.claimed; r != nil {
		x := &b.boxes[from]
		if i := slices.Index(x.posted, r); i >= 0 {
			x.posted = slices.Delete(x.posted, i, i+1)
		}
		close(r.ready)
	}
}

// end says that no more messages will come from a sender. What has arrived whole can still be received.
func (b *mailbox) end(from int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	x := &b.boxes[from]
	if x.err != nil {
		return
	}
	x.err = err
	for _, m := range x.messages {
		if !m.done {
			m.dropped = true
			x.used -= m.cost()
			b.used -= m.cost()
		}
	}
	x.messages = slices.DeleteFunc(x.messages, func(m *message) bool { return !m.done })
	for _, r := range x.posted {
		if r.m != nil {
			r.m.dropped = true // its reader may still be filling it; the caller's buffer is the caller's again
		}
		r.err = err
		close(r.ready)
	}
	x.posted = nil
	b.changed.Broadcast()
}
