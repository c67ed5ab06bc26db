package goccl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goccl/goccl/dtype"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/mem"
)

// Every rank sends 64 MiB to every other before anyone receives.
func TestEverybodySendsFirst(t *testing.T) {
	nbytes := 64 << 20
	if testing.Short() {
		nbytes = 8 << 20
	}
	for _, name := range []string{"mem", "tcp"} {
		t.Run(name, func(t *testing.T) {
			runRanks(t, worlds[name], 3, func(ctx context.Context, g *ProcessGroup) error {
				out := bytes.Repeat([]byte{byte(g.Rank() + 1)}, nbytes)
				for to := range g.Size() {
					if err := Send(ctx, g, to, 7, out); err != nil {
						return err
					}
				}
				for from := range g.Size() {
					got, err := Recv[uint8](ctx, g, from, 7)
					if err != nil {
						return err
					}
					if len(got) != nbytes || got[0] != byte(from+1) || got[nbytes-1] != byte(from+1) {
						return fmt.Errorf("%d bytes of %d from rank %d", len(got), got[0], from)
					}
				}
				return nil
			})
		})
	}
}

// Scenario 15: tags are ignored, and the wrong message is matched (pytorch#94819, torchcomms PR#2991).
func TestPeers15_TagsShuffled(t *testing.T) {
	overWorlds(t, func(t *testing.T, w world) {
		runRanks(t, w, 2, func(ctx context.Context, g *ProcessGroup) error {
			peer := 1 - g.Rank()
			random := rand.New(rand.NewPCG(uint64(g.Rank()), 5))
			order := random.Perm(100)
			for _, tag := range order {
				for twice := range 2 {
					if err := Send(ctx, g, peer, uint32(tag), []int32{int32(tag), int32(twice)}); err != nil {
						return err
					}
				}
			}
			for twice := range 2 {
				for _, tag := range random.Perm(100) {
					got, err := Recv[int32](ctx, g, peer, uint32(tag))
					if err != nil || !slices.Equal(got, []int32{int32(tag), int32(twice)}) {
						return fmt.Errorf("tag %d: %v, %v", tag, got, err)
					}
				}
			}
			return nil
		})
	})
}

// Scenario 73: a message to oneself crashes (pytorch#83912, #106164, gloo#344).
func TestPeers73_SendToSelf(t *testing.T) {
	overWorlds(t, func(t *testing.T, w world) {
		runRanks(t, w, 2, func(ctx context.Context, g *ProcessGroup) error {
			me := g.Rank()
			data := []float64{1, 2}
			if err := errors.Join(Send(ctx, g, me, 1, data), Send[float32](ctx, g, me, 2, nil)); err != nil {
				return err
			}
			data[0] = 9 // ours again
			empty, err := Recv[float32](ctx, g, me, 2)
			if err != nil || len(empty) != 0 {
				return fmt.Errorf("empty message: %v, %v", empty, err)
			}
			if got, err := Recv[float64](ctx, g, me, 1); err != nil || !slices.Equal(got, []float64{1, 2}) {
				return fmt.Errorf("got %v, %v", got, err)
			}
			done := make(chan error)
			into := make([]int8, 4)
			go func() { // receive first
				n, err := RecvInto(ctx, g, me, 3, into)
				if n != 2 {
					err = errors.Join(err, fmt.Errorf("%d elements", n))
				}
				done <- err
			}()
			return errors.Join(Send(ctx, g, me, 3, []int8{5, 6}), <-done)
		})
	})
}

func TestRecvChecksTypeAndLength(t *testing.T) {
	overWorlds(t, func(t *testing.T, w world) {
		runRanks(t, w, 2, func(ctx context.Context, g *ProcessGroup) error {
			if g.Rank() == 0 {
				return errors.Join(Send(ctx, g, 1, 1, []dtype.BFloat16{1, 2, 3}), Send(ctx, g, 1, 2, []uint8{4}))
			}
			_, err := Recv[float32](ctx, g, 0, 1)
			var mismatch *MismatchError
			if !errors.As(err, &mismatch) || mismatch.Rank != 0 || !strings.Contains(err.Error(), "bf16") {
				return fmt.Errorf("other type: %v", err)
			}
			if _, err := RecvInto(ctx, g, 0, 1, make([]dtype.BFloat16, 2)); !errors.Is(err, ErrArgument) {
				return fmt.Errorf("too short: %v", err)
			}
			b, err := g.Recv(ctx, 0, 1)
			if err != nil || b.Type() != dtype.BF16 || b.Count() != 3 {
				return fmt.Errorf("untyped: %v of %d, %v", b.Type(), b.Count(), err)
			}
			got, err := Recv[uint8](ctx, g, 0, 2)
			if err != nil || got[0] != 4 {
				return fmt.Errorf("got %v, %v", got, err)
			}
			return nil
		})
	})
}

// A cancelled Send or Recv breaks nothing, whether it is cut off before, inside or after its message.
func TestCancelledMessagesBreakNothing(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w world) {
		gs := groups(t, w, 2, Config{MailboxBytes: 4 << 20})
		random := rand.New(rand.NewPCG(3, 4))
		want := 0
		errs := each(gs, func(g *ProcessGroup) error {
			if g.Rank() == 0 {
				for i := range 30 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%10)*time.Millisecond)
					if i%10 == 9 {
						ctx = t.Context() // some come through, however slow the machine
					}
					err := Send(ctx, g, 1, 1, slices.Repeat([]int32{int32(i)}, 1<<18))
					cancel()
					if err != nil && !errors.Is(err, context.DeadlineExceeded) {
						return err
					}
				}
				return Send(t.Context(), g, 1, 1, []int32{99})
			}
			for last := int32(-1); last != 99; {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+random.IntN(5))*time.Millisecond)
				got, err := Recv[int32](ctx, g, 0, 1)
				cancel()
				switch {
				case errors.Is(err, context.DeadlineExceeded):
					continue
				case err != nil:
					return err
				case got[0] <= last || slices.ContainsFunc(got, func(v int32) bool { return v != got[0] }):
					return fmt.Errorf("after message %d came %d", last, got[0])
				}
				last = got[0]
				want++
			}
			return nil
		})
		for r, err := range errs {
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		}
		if want < 2 {
			t.Errorf("%d messages came", want)
		}
		for r, err := range each(gs, func(g *ProcessGroup) error { return g.Barrier(t.Context()) }) {
			if err != nil {
				t.Errorf("rank %d, afterwards: %v", r, err)
			}
		}
	})
}

// The late message of a cancelled Recv goes to the next one.
func TestLateMessageIsNotLost(t *testing.T) {
	overWorlds(t, func(t *testing.T, w world) {
		gs := groups(t, w, 2, Config{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := Recv[int8](ctx, gs[0], 1, 1); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		if err := Send(t.Context(), gs[1], 0, 1, []int8{7}); err != nil {
			t.Fatal(err)
		}
		if got, err := Recv[int8](t.Context(), gs[0], 1, 1); err != nil || got[0] != 7 {
			t.Errorf("got %v, %v", got, err)
		}
	})
}

func TestMailboxFullIsSaid(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w world) {
		gs := groups(t, w, 2, Config{MailboxBytes: 1 << 10})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var err error
		sent := 0
		for ; err == nil && sent < 100; sent++ {
			err = Send(ctx, gs[0], 1, 1, make([]byte, 1<<20))
		}
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "mailbox full at rank 1") {
			t.Fatalf("got %v after %d messages", err, sent)
		}
		into := make([]byte, 1<<20)
		for range sent - 1 { // those that were taken are all there, however small the mailbox
			if _, err := RecvInto(t.Context(), gs[1], 0, 1, into); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestMessagesOutliveAPeer(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w world) {
		gs := groups(t, w, 3, Config{})
		if err := Send(t.Context(), gs[2], 0, 5, []int32{42}); err != nil {
			t.Fatal(err)
		}
		waiting := make(chan error, 1)
		go func() { _, err := Recv[int32](t.Context(), gs[0], 2, 6); waiting <- err }()
		if got, err := Recv[int32](t.Context(), gs[0], 2, 5); err != nil || got[0] != 42 {
			t.Fatalf("got %v, %v", got, err)
		}
		gs[2].t.Close()
		var e *PeerError
		if err := <-waiting; !errors.As(err, &e) || e.Rank != 2 || e.Op != "recv" {
			t.Errorf("receive from the dead: %v", err)
		}
		verdict(gs[0])
		if err := Send(t.Context(), gs[0], 2, 0, []int32{1}); !errors.As(err, &e) || e.Rank != 2 {
			t.Errorf("send to the dead: %v", err)
		}
		if err := AllReduce(t.Context(), gs[0], []int32{1}, Sum); !errors.Is(err, ErrBroken) {
			t.Errorf("collective: %v", err)
		}
		if err := Send(t.Context(), gs[0], 1, 0, []int32{1}); err != nil {
			t.Errorf("send to the living: %v", err)
		}
		if got, err := Recv[int32](t.Context(), gs[1], 0, 0); err != nil || got[0] != 1 {
			t.Errorf("recv from the living: %v, %v", got, err)
		}
	})
}

// What a rank has sent before it leaves arrives, even if nobody had asked for it yet.
func TestMessagesOutliveAnOrderlyClose(t *testing.T) {
	overWorlds(t, func(t *testing.T, w world) {
		gs := groups(t, w, 2, Config{})
		const count = 4 << 20
		if err := Send(t.Context(), gs[0], 1, 1, make([]float32, count)); err != nil {
			t.Fatal(err)
		}
		if err := gs[0].Close(); err != nil {
			t.Fatal(err)
		}
		if got, err := Recv[float32](t.Context(), gs[1], 0, 1); err != nil || len(got) != count {
			t.Errorf("%d elements, %v", len(got), err)
		}
		var e *PeerError
		if _, err := Recv[float32](t.Context(), gs[1], 0, 1); !errors.As(err, &e) || !errors.Is(err, errLeft) {
			t.Errorf("after the last: %v", err)
		}
	})
}

// Scenario 16: two peers that exchange messages get their own, or wrong ones (pytorch#63486). Both send two and receive two at
// once.
func TestPeers16_MessagesNeverCross(t *testing.T) {
	overWorlds(t, func(t *testing.T, w world) {
		rounds := 2000
		switch {
		case testing.Short():
			rounds = 100
		case strings.HasSuffix(t.Name(), "/mem"):
			rounds = 10_000
		}
		runRanks(t, w, 2, func(ctx context.Context, g *ProcessGroup) error {
			peer := 1 - g.Rank()
			for i := range rounds {
				errs := make(chan error, 4)
				for tag := range uint32(2) {
					go func() { errs <- Send(ctx, g, peer, tag, []int64{int64(i), int64(tag)}) }()
					go func() {
						got, err := Recv[int64](ctx, g, peer, tag)
						if err == nil && !slices.Equal(got, []int64{int64(i), int64(tag)}) {
							err = fmt.Errorf("round %d, tag %d: got %v", i, tag, got)
						}
						errs <- err
					}()
				}
				for range 4 {
					if err := <-errs; err != nil {
						return err
					}
				}
			}
			return nil
		})
	})
}

func TestEnvelopeRefusesNonsense(t *testing.T) {
	for _, h := range []envelope{{typ: 0, nbytes: 1}, {typ: 99, nbytes: 8}, {typ: dtype.F32, nbytes: 6}, {typ: dtype.U8, nbytes: -1}, {typ: dtype.U8, nbytes: 1 << 62}} {
		var p [envelopeBytes]byte
		h.encode(p[:])
		if got, err := decodeEnvelope(p[:]); err == nil {
			t.Errorf("%+v decoded to %+v", h, got)
		}
	}
}

// A peer that announces what it does not send holds nobody up and makes nobody allocate it.
func TestHostileEnvelope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ts := mem.NewWorld(2)
		g, err := New(ts[0], Config{})
		if err != nil {
			t.Fatal(err)
		}
		send := func(h envelope) {
			var p [envelopeBytes]byte
			h.encode(p[:])
			if err := ts[1].Send(t.Context(), 0, envelopeTag, p[:]); err != nil {
				t.Fatal(err)
			}
		}
		send(envelope{tag: 1, typ: dtype.U8, nbytes: 1 << 50})
		if _, err := Recv[uint8](t.Context(), g, 1, 1); !errors.Is(err, ErrArgument) || !strings.Contains(err.Error(), "MailboxBytes") {
			t.Errorf("1 PiB: %v", err)
		}
		ts[1].Close()
		g.Close()
	})
	synctest.Test(t, func(t *testing.T) {
		ts := mem.NewWorld(2)
		g, err := New(ts[0], Config{})
		if err != nil {
			t.Fatal(err)
		}
		if err := ts[1].Send(t.Context(), 0, transport.Tag{Class: transport.Control}, make([]byte, noticeBytes)); err != nil {
			t.Fatal(err)
		}
		var e *PeerError
		if err := verdict(g); !errors.As(err, &e) || e.Rank != 1 || !errors.Is(err, errBadNotice) {
			t.Errorf("nonsense on control: %v", err)
		}
		ts[1].Close()
		g.Close()
	})
}

func FuzzDecodeEnvelope(f *testing.F) {
	f.Add(make([]byte, envelopeBytes))
	f.Fuzz(func(t *testing.T, p []byte) {
		if len(p) != envelopeBytes {
			return
		}
		h, err := decodeEnvelope(p)
		if err == nil && (h.nbytes < 0 || h.nbytes%int64(h.typ.Size()) != 0 || h.String() == "") {
			t.Fatalf("%+v", h)
		}
		again := make([]byte, envelopeBytes)
		if h.encode(again); err == nil && !bytes.Equal(again, p) {
			t.Fatalf("%x became %x", p, again)
		}
	})
}

// Messages are copied bit by bit: no NaN payload, no signed zero is lost.
func TestMessagesAreBitExact(t *testing.T) {
	overWorlds(t, func(t *testing.T, w world) {
		runRanks(t, w, 2, func(ctx context.Context, g *ProcessGroup) error {
			var bits []uint32
			var data []float32
			for i := range uint32(1 << 16) {
				bits = append(bits, i<<16|i, 0x7f800000|i, 0xff800001+i)
			}
			for _, b := range bits {
				data = append(data, math.Float32frombits(b))
			}
			if g.Rank() == 0 {
				return Send(ctx, g, 1, 0, data)
			}
			got, err := Recv[float32](ctx, g, 0, 0)
			for i := range got {
				if math.Float32bits(got[i]) != bits[i] {
					return fmt.Errorf("element %d is %#x, want %#x", i, math.Float32bits(got[i]), bits[i])
				}
			}
			return err
		})
	})
}

// A peer that asks and asks and reads nothing makes no queue grow.
func TestProbesThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ts := mem.NewWorld(2)
		g, err := New(ts[0], Config{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range uint64(5000) {
			n := notice{kind: noticeProbe, value: i + 1}
			if err := ts[1].Send(t.Context(), 0, controlTag, n.encode()); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		box := &g.control.outbox[1]
		box.mu.Lock()
		queued := len(box.queue)
		box.mu.Unlock()
		if queued > 1 {
			t.Errorf("%d answers are queued", queued)
		}
		ts[1].Close()
		g.Close()
	})
}

// deadLine is a transport whose point-to-point stream to a peer breaks before anything else shows that the peer is gone.
type deadLine struct{ transport.Transport }

func (d deadLine) Send(ctx context.Context, to int, tag transport.Tag, p []byte) error {
	if tag.Class == transport.PointToPoint {
		return &PeerError{Rank: to, Addr: "there", Err: syscall.EPIPE}
	}
	return d.Transport.Send(ctx, to, tag, p)
}

func TestSendThatMeetsABrokenStream(t *testing.T) {
	w := func(t *testing.T, n int) []transport.Transport {
		ts := mem.NewWorld(n)
		ts[0] = deadLine{ts[0]}
		return ts
	}
	gs := groups(t, w, 2, Config{})
	var e *PeerError
	err := Send(t.Context(), gs[0], 1, 0, []int8{1})
	if !errors.As(err, &e) || e.Rank != 1 || e.Addr != "there" || e.Op != "send" || !errors.Is(err, syscall.EPIPE) {
		t.Errorf("got %v", err)
	}
}

// lateNews is a transport whose control connections take longer than the others to show that a peer is gone.
type lateNews struct{ transport.Transport }

func (l lateNews) Recv(ctx context.Context, from int, tag transport.Tag, p []byte) error {
	err := l.Transport.Recv(ctx, from, tag, p)
	if err != nil && tag.Class == transport.Control {
		select {
		case <-time.After(departGrace / 2):
		case <-ctx.Done():
		}
	}
	return err
}

// Whoever learns from a message that a rank is gone may call Shrink at once, whichever connection showed it first.
func TestShrinkAfterMessageFailed(t *testing.T) {
	calls := map[string]func(ctx context.Context, g *ProcessGroup) error{
		"Recv": func(ctx context.Context, g *ProcessGroup) error {
			_, err := Recv[int8](ctx, g, 2, 1)
			return err
		},
		"Send": func(ctx context.Context, g *ProcessGroup) (err error) {
			for err == nil {
				err = Send(ctx, g, 2, 1, []int8{1})
			}
			return err
		},
	}
	late := func(t *testing.T, n int) []transport.Transport {
		ts := memWorld(t, n)
		for i := range ts {
			ts[i] = lateNews{ts[i]}
		}
		return ts
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gs := groups(t, late, 3, Config{})
				go kill(gs[2])
				for r, err := range each(gs[:2], func(g *ProcessGroup) error { return call(t.Context(), g) }) {
					if peer := (*PeerError)(nil); !errors.As(err, &peer) || peer.Rank != 2 {
						t.Fatalf("rank %d: %v, want rank 2 blamed", r, err)
					}
				}
				mustShrink(t, gs[:2], 1, []int{0, 1})
			})
		})
	}
}
