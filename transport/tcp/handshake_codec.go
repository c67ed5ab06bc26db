package tcp

import (
	"encoding/binary"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// A decoder walks over a payload; after the first field that does not fit it yields zeros.
type decoder struct {
	p   []byte
	bad bool
}

func (d *decoder) bytes(n int) []byte {
	if d.bad || n > len(d.p) {
		d.bad = true
		return nil
	}
	b := d.p[:n]
	d.p = d.p[n:]
	return b
}

func (d *decoder) u8() uint8 {
	if b := d.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) u16() uint16 {
	if b := d.bytes(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if b := d.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if b := d.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// raw reads a counted string of any bytes.
func (d *decoder) raw(limit int) string {
	n := int(d.u16())
	if n > limit {
		d.bad = true
	}
	return string(d.bytes(n))
}

// text reads a counted string that may be shown to people: a stranger's control characters do not reach a terminal.
func (d *decoder) text(limit int) string {
	s := d.raw(limit)
	if !printable(s) {
		d.bad = true
	}
	return s
}

func (d *decoder) zero() {
	if d.u8() != 0 {
		d.bad = true
	}
}

// ranks reads a counted list of ranks.
func (d *decoder) ranks() []int {
	n := int(d.u16())
	b := d.bytes(4 * n)
	if b == nil || n == 0 {
		return nil
	}
	list := make([]int, n)
	for i := range list {
		list[i] = int(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return list
}

// end returns what decoding found: everything must have been read.
func (d *decoder) end(what string) error {
	if d.bad || len(d.p) != 0 {
		return fmt.Errorf("%s message malformed", what)
	}
	return nil
}

func printable(s string) bool {
	for _, r := range s {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

func appendRaw(b []byte, s string) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(len(s)))
	return append(b, s...)
}

// appendText makes s fit for decoder.text.
func appendText(b []byte, s string, limit int) []byte { return appendRaw(b, clean(s, limit)) }

// clean makes s fit to be shown, in at most limit bytes.
func clean(s string, limit int) string {
	b := make([]byte, 0, len(s))
	for _, r := range s {
		switch {
		case r == utf8.RuneError:
			r = '?'
		case !unicode.IsPrint(r):
			r = ' '
		}
		if len(b)+utf8.RuneLen(r) > limit {
			break
		}
		b = utf8.AppendRune(b, r)
	}
	return string(b)
}

func appendRanks(b []byte, list []int) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(len(list)))
	for _, r := range list {
		b = binary.LittleEndian.AppendUint32(b, uint32(r))
	}
	return b
}
