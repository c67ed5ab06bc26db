package link

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goccl/goccl/transport"
)

var (
	errCause = errors.New("the test's own cause")
	tag      = transport.Tag{Class: transport.PointToPoint, Match: 3}
)

// frame is what a peer would send.
func frame(tag transport.Tag, p []byte, checksum bool) []byte {
	var b [HeaderSize]byte
	Header{Tag: tag, Length: uint64(len(p)), Checksum: checksum}.Encode(&b)
	return append(b[:], p...)
}

// pipe returns a stream with rank 7 and the peer's end of its connection.
func pipe(t *testing.T) (*Stream, net.Conn, chan struct{}) {
	here, there := net.Pipe()
	closed := make(chan struct{})
	t.Cleanup(func() { here.Close(); there.Close() })
	return newStream(here, Endpoint{Rank: 7, Addr: "there:1"}, tag.Class, false, closed), there, closed
}

func TestRecvCancelled(t *testing.T) {
	payload := bytes.Repeat([]byte("payload "), 5000)
	for name, c := range map[string]struct {
		come int // bytes of the frame that arrive before the end of the context
		lost bool
	}{
		"before":            {0, false},
		"within the header": {30, false},
		"within the bytes":  {20_000, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, peer, _ := pipe(t)
				bytes := frame(tag, payload, false)
				go peer.Write(bytes[:c.come])
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errCause)
				defer cancel()
				got := make([]byte, len(payload))
				if err := s.Recv(ctx, tag, got); !errors.Is(err, errCause) {
					t.Fatalf("cancelled Recv: %v", err)
				}
				go peer.Write(bytes[c.come:])
				err := s.Recv(t.Context(), tag, got)
				if c.lost {
					if !errors.Is(err, errCause) || !strings.Contains(err.Error(), "rank 7 was cut off") {
						t.Fatalf("Recv on a cut stream: %v", err)
					}
				} else if err != nil || string(got) != string(payload) {
					t.Fatalf("Recv of the frame: %v", err)
				}
			})
		})
	}
}

// A Send that is cancelled in the middle returns at once; its frame is completed from a copy, before the next one.
func TestSendCancelledMidway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, peer, _ := pipe(t)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errCause)
		defer cancel()
		payload := []byte("the payload of a frame that was begun")
		go io.ReadFull(peer, make([]byte, 10)) // so it is begun
		p := bytes.Clone(payload)
		if err := s.Send(ctx, tag, p); err != nil {
			t.Fatalf("Send of a frame that was begun: %v", err)
		}
		clear(p)
		next := make(chan error)
		go func() { next <- s.Send(t.Context(), tag, []byte("next")) }()
		synctest.Wait()
		want := append(frame(tag, payload, false)[10:], frame(tag, []byte("next"), false)...)
		got := make([]byte, len(want))
		if _, err := io.ReadFull(peer, got); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("what followed: %v\n%q, expected\n%q", err, got, want)
		}
		if err := <-next; err != nil {
			t.Error(err)
		}
	})
}

func TestSendCancelledBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, peer, _ := pipe(t)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errCause)
		defer cancel()
		if err := s.Send(ctx, tag, []byte("lost")); !errors.Is(err, errCause) {
			t.Fatalf("Send: %v", err)
		}
		go s.Send(t.Context(), tag, []byte("sent"))
		got := make([]byte, HeaderSize+4)
		if _, err := io.ReadFull(peer, got); err != nil || string(got[HeaderSize:]) != "sent" {
			t.Fatalf("%q, %v", got, err)
		}
	})
}

// Closing gives a frame that is being completed a bounded time.
func TestCloseWhileCompleting(t *testing.T) {
	for _, reads := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s, peer, _ := pipe(t)
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errCause)
			defer cancel()
			go io.ReadFull(peer, make([]byte, HeaderSize+1))
			if err := s.Send(ctx, tag, []byte("payload")); err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			s.interrupt()
			got := make(chan []byte, 1)
			if reads {
				go func() {
					b := make([]byte, 6)
					io.ReadFull(peer, b)
					got <- b
				}()
			}
			s.join()
			if d := time.Since(begun); d > flushBound {
				t.Errorf("closing took %v", d)
			}
			if reads && string(<-got) != "ayload" {
				t.Error("the frame was not completed")
			}
			if err := s.Send(t.Context(), tag, nil); !errors.Is(err, net.ErrClosed) {
				t.Errorf("Send after closing: %v", err)
			}
		})
	}
}

func TestStreamFaults(t *testing.T) {
	whole := frame(tag, []byte("payload"), false)
	sealed := append(frame(tag, []byte("payload"), true), 1, 2, 3, 4)
	for name, c := range map[string]struct {
		come  []byte
		is    error
		words string
	}{
		"end":                {nil, io.EOF, "rank 7 (there:1): EOF"},
		"end in header":      {whole[:10], io.ErrUnexpectedEOF, "rank 7"},
		"end in payload":     {whole[:HeaderSize+2], io.ErrUnexpectedEOF, "rank 7"},
		"end before payload": {whole[:HeaderSize], io.ErrUnexpectedEOF, "rank 7"},
		"garbage":            {bytes.Repeat([]byte{'x'}, 100), nil, "protocol error: frame begins with"},
		"payload checksum":   {sealed, nil, "protocol error: payload has checksum"},
	} {
		t.Run(name, func(t *testing.T) {
			s, peer, _ := pipe(t)
			go func() { peer.Write(c.come); peer.Close() }()
			for range 2 {
				err := s.Recv(t.Context(), tag, make([]byte, 7))
				var fault *transport.PeerError
				if !errors.As(err, &fault) || fault.Rank != 7 || !strings.Contains(err.Error(), c.words) || c.is != nil && !errors.Is(err, c.is) {
					t.Errorf("Recv: %v", err)
				}
			}
		})
	}
}

// countedReads counts how often it is read from.
type countedReads struct {
	net.Conn
	from  *bytes.Reader
	reads int
}

func (c *countedReads) Read(p []byte) (int, error) { c.reads++; return c.from.Read(p) }

// Small frames that have arrived together cost one read together.
func TestReadAhead(t *testing.T) {
	here, _ := net.Pipe()
	c := &countedReads{Conn: here, from: bytes.NewReader(bytes.Repeat(frame(tag, make([]byte, 1000), false), 10))}
	s := newStream(c, Endpoint{}, tag.Class, false, nil)
	for range 10 {
		if err := s.Recv(t.Context(), tag, make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	if c.reads != 1 {
		t.Errorf("%d reads", c.reads)
	}
}

// A watcher for hang-ups takes no frame from a receiver, lets it go first, and sees the end.
func TestHangup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, peer, _ := pipe(t)
		left := make(chan error, 1)
		go func() { left <- s.hangup(t.Context()) }()
		synctest.Wait()
		for i := range 5 {
			if i%2 == 0 { // the frame is there before the receiver
				go peer.Write(frame(tag, []byte("frame"), false))
				synctest.Wait()
			}
			got := make(chan error)
			p := make([]byte, 5)
			go func() { got <- s.Recv(t.Context(), tag, p) }()
			synctest.Wait()
			if i%2 == 1 {
				go peer.Write(frame(tag, []byte("frame"), false))
			}
			if err := <-got; err != nil || string(p) != "frame" {
				t.Fatalf("frame %d: %q, %v", i, p, err)
			}
		}
		select {
		case err := <-left:
			t.Fatalf("saw a hang-up: %v", err)
		default:
		}
		peer.Close()
		if err := <-left; !errors.Is(err, io.EOF) {
			t.Errorf("hang-up: %v", err)
		}
		if err := s.Recv(t.Context(), tag, nil); !errors.Is(err, io.EOF) {
			t.Errorf("Recv after it: %v", err)
		}
	})
}

func TestHangupEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, peer, _ := pipe(t)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errCause)
		defer cancel()
		if err := s.hangup(ctx); !errors.Is(err, errCause) {
			t.Errorf("ended context: %v", err)
		}
		// More than the read-ahead holds, and nobody receives: the watch goes on without looking.
		go peer.Write(make([]byte, 2*readAheadSize))
		ctx, cancel = context.WithTimeoutCause(t.Context(), time.Second, errCause)
		defer cancel()
		if err := s.hangup(ctx); !errors.Is(err, errCause) {
			t.Errorf("ended context, read-ahead full: %v", err)
		}
	})
}

// Whoever is in line for a turn leaves it when the context or the table ends, and others come in their order.
func TestTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn, closed := newTurn(), make(chan struct{})
		if err := turn.take(t.Context(), closed); err != nil {
			t.Fatal(err)
		}
		var order []int
		for i := range 3 {
			go func() {
				if err := turn.take(t.Context(), closed); err != nil {
					t.Error(err)
				}
				order = append(order, i)
				turn.release()
			}()
			synctest.Wait()
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errCause)
		defer cancel()
		if err := turn.take(ctx, closed); !errors.Is(err, errCause) {
			t.Errorf("ended context: %v", err)
		}
		turn.release()
		synctest.Wait()
		if !slices.Equal(order, []int{0, 1, 2}) {
			t.Errorf("turns were taken in the order %v", order)
		}
		turn.take(t.Context(), closed)
		end := make(chan error)
		go func() { end <- turn.take(t.Context(), closed) }()
		synctest.Wait()
		close(closed)
		if err := <-end; !errors.Is(err, net.ErrClosed) {
			t.Errorf("closed table: %v", err)
		}
	})
}
