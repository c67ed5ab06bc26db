package goccl

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/goccl/goccl/dtype"
)

func u8(tag uint32, n int) envelope { return envelope{tag: tag, typ: dtype.U8, nbytes: int64(n)} }

// put is the reader's work for one message.
func put(t *testing.T, b *mailbox, from int, h envelope, payload []byte, piece int) {
	t.Helper()
	m, err := b.admit(t.Context(), from, h, func(bool) {})
	if err != nil {
		t.Fatal(err)
	}
	var scratch []byte
	for len(payload) > 0 {
		p, own := b.window(m, &scratch, min(piece, len(payload)))
		copy(p, payload)
		b.advance(m, p, own)
		payload = payload[len(p):]
	}
	b.finish(from, m)
}

func take(ctx context.Context, b *mailbox, from int, tag uint32) ([]byte, error) {
	r := receive{tag: tag, typ: dtype.U8}
	if err := b.receive(ctx, from, &r); err != nil {
		return nil, err
	}
	return r.m.data, nil
}

func TestMailboxMatchesByTagInOrder(t *testing.T) {
	b := newMailbox(2, 1<<20)
	for i, tag := range []uint32{1, 2, 1, 3} {
		put(t, b, 1, u8(tag, 1), []byte{byte(i)}, 1)
	}
	for _, c := range []struct {
		tag  uint32
		want byte
	}{{3, 3}, {1, 0}, {2, 1}, {1, 2}} {
		if got, err := take(t.Context(), b, 1, c.tag); err != nil || got[0] != c.want {
			t.Errorf("tag %d: got %v, %v, want %d", c.tag, got, err, c.want)
		}
	}
	if b.used != 0 || b.boxes[1].used != 0 {
		t.Errorf("%d bytes still accounted for", b.used)
	}
}

func TestMailboxKeepsWhatDoesNotFit(t *testing.T) {
	b := newMailbox(2, 8+messageCost)
	put(t, b, 0, u8(5, 4), []byte("abcd"), 4)
	var mismatch *MismatchError
	if err := b.receive(t.Context(), 0, &receive{tag: 5, typ: dtype.F32}); !errors.As(err, &mismatch) {
		t.Errorf("other type: %v, want MismatchError", err)
	}
	short := receive{tag: 5, typ: dtype.U8, fixed: true, into: make([]byte, 3)}
	if err := b.receive(t.Context(), 0, &short); !errors.Is(err, ErrArgument) {
		t.Errorf("short buffer: %v, want ErrArgument", err)
	}
	if got, err := take(t.Context(), b, 0, 5); err != nil || string(got) != "abcd" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestMailboxHoldsSendersBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMailbox(3, 2*(5+messageCost)) // one message of 5 bytes for each sender
		put(t, b, 1, u8(1, 5), []byte("first"), 5)
		var told []bool
		done := make(chan error, 1)
		go func() {
			m, err := b.admit(t.Context(), 1, u8(1, 1), func(full bool) { told = append(told, full) })
			if err == nil {
				b.finish(1, m)
			}
			done <- err
		}()
		synctest.Wait()
		if len(told) != 1 || !told[0] {
			t.Fatalf("sender over its share was told %v", told)
		}
		put(t, b, 2, u8(1, 5), []byte("other"), 5) // the other has room
		if _, err := take(t.Context(), b, 1, 1); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil || len(told) != 2 || told[1] {
			t.Errorf("after room was made: %v, told %v", err, told)
		}
	})
}

func TestMailboxPostedReceivePassesTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMailbox(2, 4)
		payload := bytes.Repeat([]byte("x"), 100)
		into := make([]byte, 100)
		done := make(chan error, 1)
		go func() {
			done <- b.receive(t.Context(), 1, &receive{tag: 1, typ: dtype.U8, fixed: true, into: into})
		}()
		synctest.Wait()
		put(t, b, 1, u8(1, 100), payload, 7)
		if err := <-done; err != nil || !bytes.Equal(into, payload) {
			t.Errorf("got %q, %v", into, err)
		}
		if b.used != 0 {
			t.Errorf("%d bytes accounted for", b.used)
		}
		// One that is larger than the whole mailbox and of unknown length is refused before anything is allocated.
		ctx, cancel := context.WithCancel(t.Context())
		go b.admit(ctx, 1, envelope{tag: 2, typ: dtype.U8, nbytes: 1 << 40}, func(bool) {})
		synctest.Wait()
		_, err := take(t.Context(), b, 1, 2)
		cancel()
		if err == nil {
			t.Error("a message of 1 TiB was taken")
		}
		synctest.Wait()
	})
}

// A receive that gives up in the middle of a message leaves the caller's buffer alone from then on and loses nothing.
func TestMailboxCancelledReceiveLosesNothing(t *testing.T) {
	for _, fixed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := newMailbox(2, 1<<20)
			ctx, cancel := context.WithCancel(t.Context())
			into := make([]byte, 6)
			done := make(chan error, 1)
			go func() { done <- b.receive(ctx, 1, &receive{tag: 1, typ: dtype.U8, fixed: fixed, into: into}) }()
			synctest.Wait()
			m, err := b.admit(t.Context(), 1, u8(1, 6), func(bool) {})
			if err != nil {
				t.Fatal(err)
			}
			var scratch []byte
			p, own := b.window(m, &scratch, 3)
			copy(p, "abc")
			b.advance(m, p, own)
			p, own = b.window(m, &scratch, 3)
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Fatalf("cancelled receive: %v", err)
			}
			clear(into)
			copy(p, "def")
			b.advance(m, p, own)
			b.finish(1, m)
			if fixed && !bytes.Equal(into, make([]byte, 6)) {
				t.Errorf("the buffer of a cancelled receive was written: %q", into)
			}
			if got, err := take(t.Context(), b, 1, 1); err != nil || string(got) != "abcdef" {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

func TestMailboxEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMailbox(2, 1<<20)
		put(t, b, 1, u8(1, 1), []byte("x"), 1)
		if _, err := b.admit(t.Context(), 1, u8(1, 2), func(bool) {}); err != nil { // never arrives whole
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { _, err := take(t.Context(), b, 1, 9); done <- err }()
		synctest.Wait()
		gone := errors.New("gone")
		b.end(1, gone)
		if err := <-done; err != gone {
			t.Errorf("waiting receive: %v", err)
		}
		if got, err := take(t.Context(), b, 1, 1); err != nil || string(got) != "x" {
			t.Errorf("what had arrived: %q, %v", got, err)
		}
		if _, err := take(t.Context(), b, 1, 1); err != gone {
			t.Errorf("what had not: %v", err)
		}
	})
}

// The reader of a message may be anywhere when Abort or Close ends the box: it must neither write to a buffer that has been
// given back nor finish what is over.
func TestMailboxEndsUnderAReader(t *testing.T) {
	for _, fixed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := newMailbox(2, 1<<20)
			into := make([]byte, 3)
			done := make(chan error, 1)
			go func() {
				done <- b.receive(t.Context(), 1, &receive{tag: 1, typ: dtype.U8, fixed: fixed, into: into})
			}()
			synctest.Wait()
			m, err := b.admit(t.Context(), 1, u8(1, 3), func(bool) {})
			if err != nil {
				t.Fatal(err)
			}
			unclaimed, err := b.admit(t.Context(), 0, u8(1, 3), func(bool) {})
			if err != nil {
				t.Fatal(err)
			}
			over := errors.New("over")
			b.end(0, over)
			b.end(1, over)
			if err := <-done; err != over {
				t.Fatalf("got %v", err)
			}
			var scratch []byte
			for from, m := range []*message{unclaimed, m} {
				p, own := b.window(m, &scratch, 3)
				copy(p, "abc")
				b.advance(m, p, own)
				b.finish(from, m)
			}
			if !bytes.Equal(into, make([]byte, 3)) || b.used != 0 {
				t.Errorf("afterwards the buffer holds %q, the mailbox %d bytes", into, b.used)
			}
		})
	}
}

// Memory follows what has arrived, not what was announced.
func TestMailboxGrows(t *testing.T) {
	b := newMailbox(2, 1<<62)
	m, err := b.admit(t.Context(), 1, envelope{tag: 1, typ: dtype.U8, nbytes: 1 << 50}, func(bool) {})
	if err != nil {
		t.Fatal(err)
	}
	var scratch []byte
	for range 3 {
		p, own := b.window(m, &scratch, 10<<20)
		p[0] = 7
		b.advance(m, p, own)
	}
	if len(m.data) > 4*growFrom || m.data[0] != 7 || m.data[10<<20] != 7 || m.data[20<<20] != 7 {
		t.Errorf("%d bytes for 30 MiB", len(m.data))
	}
}

// A reader that comes after the end, with an envelope in its hand, adds nothing that a receive could wait for.
func TestMailboxAdmitsNothingAfterTheEnd(t *testing.T) {
	b := newMailbox(2, 1<<20)
	over := errors.New("over")
	b.end(1, over)
	if m, err := b.admit(t.Context(), 1, u8(1, 3), func(bool) {}); err != over {
		t.Errorf("admitted %+v, %v", m, err)
	}
	if _, err := take(t.Context(), b, 1, 1); err != over {
		t.Errorf("receive: %v", err)
	}
}

func TestMailboxCountsEmptyMessages(t *testing.T) {
	b := newMailbox(2, 10*messageCost)
	for range 10 {
		put(t, b, 1, u8(1, 0), nil, 1)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.admit(ctx, 1, u8(1, 0), func(bool) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("one more: %v", err)
	}
}
