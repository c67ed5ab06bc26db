package link

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/goccl/goccl/transport"
)

const (
	// HeaderSize is the length of every frame's header.
	HeaderSize = 64
	// trailerSize is the length of the checksum behind a payload whose header has flagChecksum.
	trailerSize = 4

	headerVersion = 1
	kindData      = 1
	flagChecksum  = 1 << 0
)

var (
	magic      = [4]byte{'G', 'C', 'C', 'L'}
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// A Header says what a frame is and how many payload bytes follow.
type Header struct {
	Tag      transport.Tag
	Length   uint64 // payload bytes
	Checksum bool   // the payload's CRC-32C follows it
}

// Encode writes h into b as transport/SPEC.md lays it out.
func (h Header) Encode(b *[HeaderSize]byte) {
	var flags uint32
	if h.Checksum {
		flags |= flagChecksum
	}
	copy(b[0:4], magic[:])
	binary.LittleEndian.PutUint16(b[4:], headerVersion)
	b[6] = kindData
	b[7] = byte(h.Tag.Class)
	binary.LittleEndian.PutUint32(b[8:], flags)
	binary.LittleEndian.PutUint32(b[12:], 0)
	binary.LittleEndian.PutUint64(b[16:], h.Tag.Group)
	binary.LittleEndian.PutUint64(b[24:], h.Tag.Match)
	binary.LittleEndian.PutUint64(b[32:], h.Tag.Call)
	binary.LittleEndian.PutUint64(b[40:], h.Tag.Count)
	binary.LittleEndian.PutUint64(b[48:], h.Length)
	binary.LittleEndian.PutUint32(b[56:], 0)
	binary.LittleEndian.PutUint32(b[60:], crc32.Checksum(b[:60], castagnoli))
}

// DecodeHeader reads a header. It refuses everything that Encode does not write, so that a peer which has lost its place
// in the stream, or which speaks a later version, is found out at its first frame.
func DecodeHeader(b *[HeaderSize]byte) (Header, error) {
	if [4]byte(b[0:4]) != magic {
		return Header{}, fmt.Errorf("protocol error: frame begins with % x, not with %q", b[0:4], magic)
	}
	if v := binary.LittleEndian.Uint16(b[4:]); v != headerVersion {
		return Header{}, fmt.Errorf("protocol error: frame of version %d, expected %d", v, headerVersion)
	}
	if got, want := binary.LittleEndian.Uint32(b[60:]), crc32.Checksum(b[:60], castagnoli); got != want {
		return Header{}, fmt.Errorf("protocol error: frame header has checksum %08x, expected %08x", got, want)
	}
	flags := binary.LittleEndian.Uint32(b[8:])
	reserved := binary.LittleEndian.Uint32(b[12:]) | binary.LittleEndian.Uint32(b[56:])
	if b[6] != kindData || flags&^flagChecksum != 0 || reserved != 0 {
		return Header{}, fmt.Errorf("protocol error: frame of kind %d, flags %#x, reserved bits %#x", b[6], flags, reserved)
	}
	return Header{
		Tag: transport.Tag{
			Class: transport.Class(b[7]),
			Group: binary.LittleEndian.Uint64(b[16:]),
			Match: binary.LittleEndian.Uint64(b[24:]),
			Call:  binary.LittleEndian.Uint64(b[32:]),
			Count: binary.LittleEndian.Uint64(b[40:]),
		},
		Length:   binary.LittleEndian.Uint64(b[48:]),
		Checksum: flags&flagChecksum != 0,
	}, nil
}
