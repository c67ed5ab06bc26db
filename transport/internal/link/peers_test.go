package link

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"net"
	"slices"
	"testing"

	"github.com/goccl/goccl/transport"
)

// A receiver takes the frames of a byte stream, one call for each.
type receiver struct {
	name string
	make func(come []byte) (recv func(tag transport.Tag, p []byte) error)
}

// receivers are the two ways in which frames are received: a stream of its own, and the engine.
var receivers = []receiver{
	{"stream", func(come []byte) func(transport.Tag, []byte) error {
		here, _ := net.Pipe()
		s := newStream(&countedReads{Conn: here, from: bytes.NewReader(come)}, Endpoint{Rank: 1}, transport.Collective, false, nil)
		return func(tag transport.Tag, p []byte) error { return s.Recv(context.Background(), tag, p) }
	}},
	{"engine", func(come []byte) func(transport.Tag, []byte) error {
		e := newTestEngine(&stepWaiter{}, false, &scripted{come: [][]byte{come}, end: io.EOF, room: -1})
		return func(tag transport.Tag, p []byte) error {
			return e.Exchange(context.Background(), tag, []transport.Step{{Peer: 1, In: &sink{b: p}, InLen: int64(len(p))}})
		}
	}},
}

// Scenario 80: stray traffic crashes the monitor (nccl#1996). Frames that are truncated anywhere, repeated or out of order are
// errors at the frame where it shows, and what came before it is whole. The fuzz targets go further.
func TestPeers80_FramesOutOfPlace(t *testing.T) {
	var tags []transport.Tag
	var frames, payloads [][]byte
	for i := range 3 {
		tags = append(tags, transport.Tag{Class: transport.Collective, Match: uint64(i + 1)})
		payloads = append(payloads, bytes.Repeat([]byte{byte('a' + i)}, 10*i+1))
		frames = append(frames, frame(tags[i], payloads[i], i == 1))
	}
	frames[1] = binary.LittleEndian.AppendUint32(frames[1], crc32.Checksum(payloads[1], castagnoli))
	whole := slices.Concat(frames...)
	type attempt struct {
		come []byte
		good int // frames that are there
		tags bool
	}
	tries := map[string]attempt{
		"repeated":   {slices.Concat(frames[0], frames[0], frames[1], frames[2]), 1, true},
		"reordered":  {slices.Concat(frames[0], frames[2], frames[1]), 1, true},
		"left out":   {slices.Concat(frames[0], frames[2]), 1, true},
		"last first": {slices.Concat(frames[2], frames[0], frames[1]), 0, true},
	}
	for i := range whole {
		good := 0
		for end := 0; good < 3 && end+len(frames[good]) <= i; good++ {
			end += len(frames[good])
		}
		tries[fmt.Sprintf("cut at byte %d", i)] = attempt{whole[:i], good, false}
	}
	for _, r := range receivers {
		for name, a := range tries {
			recv := r.make(a.come)
			for i, tag := range tags {
				got := make([]byte, len(payloads[i]))
				err := recv(tag, got)
				switch {
				case i < a.good && (err != nil || !bytes.Equal(got, payloads[i])):
					t.Errorf("%s, %s: frame %d: %q, %v", r.name, name, i, got, err)
				case i == a.good && a.tags && !errors.As(err, new(*transport.TagError)):
					t.Errorf("%s, %s: frame %d: %v, want a TagError", r.name, name, i, err)
				case i == a.good && !a.tags && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
					t.Errorf("%s, %s: frame %d: %v, want the end", r.name, name, i, err)
				case i > a.good && err == nil:
					t.Errorf("%s, %s: frame %d came after a fault", r.name, name, i)
				}
			}
		}
	}
}

// Scenario 81, in a frame's header: a length that is not the expected one is refused, whatever it is.
func TestPeers81_LengthsOfFrames(t *testing.T) {
	tag := transport.Tag{Class: transport.Collective, Match: 1}
	for _, r := range receivers {
		for _, length := range []uint64{0, 9, 11, 1 << 40, 1 << 62, 1 << 63, math.MaxUint64} {
			var head [HeaderSize]byte
			Header{Tag: tag, Length: length}.Encode(&head)
			recv := r.make(append(head[:], make([]byte, 100)...))
			got := bytes.Repeat([]byte{7}, 10)
			var e *transport.TagError
			if err := recv(tag, got); !errors.As(err, &e) || e.Rank != 1 || e.WantBytes != 10 || e.GotBytes != length {
				t.Errorf("%s: length %d: %v", r.name, length, err)
			}
			if !bytes.Equal(got, bytes.Repeat([]byte{7}, 10)) {
				t.Errorf("%s: length %d: bytes of it were taken", r.name, length)
			}
		}
	}
}
