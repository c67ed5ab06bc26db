package tcp

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// record frames content as TLS does.
func record(kind byte, content []byte) []byte {
	b := []byte{kind, 3, 3}
	b = binary.BigEndian.AppendUint16(b, uint16(len(content)))
	return append(b, content...)
}

// cut feeds in to records, at most step bytes at a time, and takes what is whole after each.
func cut(in []byte, step int) (out []byte, b *records) {
	b = &records{}
	p := make([]byte, 100)
	for len(in) > 0 {
		room := b.space()
		n := copy(room[:min(len(room), step)], in)
		in = in[n:]
		b.came(n)
		for k := b.take(p); k > 0; k = b.take(p) {
			out = append(out, p[:k]...)
		}
	}
	return out, b
}

func TestRecords(t *testing.T) {
	small, large := record(23, make([]byte, 20)), record(22, make([]byte, maxRecord))
	whole := append(append(bytes.Clone(small), large...), record(21, make([]byte, 19))...)
	for _, step := range []int{1, 5, 777, 1 << 20} {
		out, b := cut(append(bytes.Clone(whole), small[:24]...), step)
		if !bytes.Equal(out, whole) || b.foreign {
			t.Errorf("in steps of %d: %d bytes are whole, want %d", step, len(out), len(whole))
		}
		if want := 3 + maxRecord - recordOverhead + 2; b.content != want {
			t.Errorf("at most %d bytes of content, want %d", b.content, want)
		}
		b.given(5)
		if b.given(0); b.content != 0 {
			t.Error("there is content although none was given")
		}
	}
	for _, foreign := range []string{"GET / HTTP/1.1\r\n", magic + "\x01", "\x16\x03\x01\xff\xff", "\x80\x2e\x01\x03\x01"} {
		if out, b := cut([]byte(foreign), 3); string(out) != foreign || b.content == 0 {
			t.Errorf("%q: gave out %q", foreign, out)
		}
	}
}

// TestEmptyRecords: they must be taken like others, or a peer that sends nothing else would fill the memory.
func TestEmptyRecords(t *testing.T) {
	b := &records{}
	b.came(copy(b.space(), record(23, make([]byte, recordOverhead))))
	if b.content == 0 || b.whole != recordHeader+recordOverhead {
		t.Errorf("content %d, whole up to %d", b.content, b.whole)
	}
}

// FuzzRecords: nothing is lost or held back for good, whatever comes in whatever pieces, and the memory is bounded.
func FuzzRecords(f *testing.F) {
	f.Add(record(22, make([]byte, 100)), uint16(7))
	f.Add(append(record(23, make([]byte, 17)), 23, 3), uint16(1))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), uint16(4))
	f.Add([]byte(magic+"\x01\x00\x01\x00"), uint16(8))
	f.Add(record(23, make([]byte, maxRecord)), uint16(1000))
	f.Add([]byte("\x17\x03\x03\xff\xff"), uint16(5))
	f.Fuzz(func(t *testing.T, in []byte, piece uint16) {
		step := int(piece) + 1
		out, b := cut(in, step)
		if !bytes.Equal(out, in[:len(out)]) {
			t.Fatalf("%x became %x", in, out)
		}
		if rest := len(in) - len(out); rest > recordHeader+maxRecord || b.foreign && rest > 0 || rest != b.w-b.whole {
			t.Fatalf("%d bytes of %d are held back", rest, len(in))
		}
		if len(b.buf) > maxAhead || b.content < 0 || b.content > len(in) {
			t.Fatalf("%d bytes of memory, %d of content", len(b.buf), b.content)
		}
		if again, _ := cut(in, step+13); !bytes.Equal(again, out) {
			t.Fatal("the pieces matter")
		}
	})
}
