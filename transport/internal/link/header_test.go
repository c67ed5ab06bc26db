package link

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/goccl/goccl/transport"
)

var sample = Header{
	Tag:      transport.Tag{Class: transport.Control, Group: 0x0102030405060708, Match: 0x1112131415161718, Call: 0x2122232425262728, Count: 0x3132333435363738},
	Length:   0x4142434445464748,
	Checksum: true,
}

const goldenCRC = 0x5f44d35f

// The golden bytes were laid out by hand from transport/SPEC.md; the checksum is Python's crc32c of the 60 bytes before it.
func TestHeaderGolden(t *testing.T) {
	var b [HeaderSize]byte
	sample.Encode(&b)
	const want = "4743434c" + "0100" + "01" + "03" + "01000000" + "00000000" +
		"0807060504030201" + "1817161514131211" + "2827262524232221" + "3837363534333231" + "4847464544434241" + "00000000"
	if got := hex.EncodeToString(b[:60]); got != want {
		t.Errorf("header\n%s, expected\n%s", got, want)
	}
	if got := binary.LittleEndian.Uint32(b[60:]); got != goldenCRC {
		t.Errorf("checksum %#x, expected %#x", got, goldenCRC)
	}
}

func TestHeaderRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		change func(b []byte)
		want   string
	}{
		"magic":    {func(b []byte) { copy(b, "HTTP") }, "begins with 48 54 54 50"},
		"version":  {func(b []byte) { b[4] = 2 }, "version 2, expected 1"},
		"kind":     {func(b []byte) { b[6] = 9; reseal(b) }, "kind 9"},
		"flags":    {func(b []byte) { b[9] = 1; reseal(b) }, "flags 0x101"},
		"reserved": {func(b []byte) { b[13] = 1; reseal(b) }, "reserved bits 0x100"},
		"trailing": {func(b []byte) { b[56] = 1; reseal(b) }, "reserved bits 0x1"},
	} {
		var b [HeaderSize]byte
		sample.Encode(&b)
		c.change(b[:])
		if _, err := DecodeHeader(&b); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "protocol error") {
			t.Errorf("%s: %v, expected %q", name, err, c.want)
		}
	}
	for bit := range 8 * HeaderSize {
		var b [HeaderSize]byte
		sample.Encode(&b)
		b[bit/8] ^= 1 << (bit % 8)
		if h, err := DecodeHeader(&b); err == nil {
			t.Errorf("bit %d flipped: read as %+v", bit, h)
		}
	}
}

func reseal(b []byte) { binary.LittleEndian.PutUint32(b[60:], crc32.Checksum(b[:60], castagnoli)) }

// Whatever decodes encodes to the same bytes; nothing makes the decoder panic.
func FuzzDecodeHeader(f *testing.F) {
	var b [HeaderSize]byte
	sample.Encode(&b)
	f.Add(b[:], false)
	Header{Tag: transport.Tag{Class: transport.Collective}}.Encode(&b)
	f.Add(b[:], false)
	f.Add([]byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\nxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"), false)
	f.Add(bytes.Repeat([]byte{0xff}, HeaderSize), true)
	f.Fuzz(func(t *testing.T, in []byte, seal bool) {
		var b, again [HeaderSize]byte
		copy(b[:], in)
		if seal { // lets the fuzzer get past the checksum
			copy(b[:], magic[:])
			binary.LittleEndian.PutUint16(b[4:], headerVersion)
			reseal(b[:])
		}
		h, err := DecodeHeader(&b)
		if err != nil {
			return
		}
		if h.Encode(&again); again != b {
			t.Errorf("%x decodes to %+v and encodes to %x", b, h, again)
		}
	})
}
