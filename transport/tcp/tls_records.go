package tcp

// What a TLS record looks like from outside.
const (
	recordHeader   = 5
	recordOverhead = 1 + 16        // the type and the tag that are sealed with the content
	maxRecord      = 16<<10 + 256  // of what follows the header
	minAhead       = 2 << 10       // enough for the streams that carry next to nothing
	maxAhead       = 4 * maxRecord // read at once by those that carry all
	handshakeType  = 22
	firstType      = handshakeType - 2
	lastType       = handshakeType + 1
)

// Records cuts what has been read from a socket into TLS records. Crypto/tls is given whole ones only: asked to read what is
// not there yet it allocates each time, and a rank that waits asks a million times a second.
type records struct {
	buf     []byte
	r, w    int
	whole   int  // from r to here they are complete
	content int  // at most so many bytes of content are in those that came and have not been given out as content
	foreign bool // not TLS: all is whole, and crypto/tls will say what is wrong
}

// space returns room to read into. It is never empty.
func (b *records) space() []byte {
	if b.r > 0 {
		b.w = copy(b.buf, b.buf[b.r:b.w])
		b.whole -= b.r
		b.r = 0
	}
	size := max(len(b.buf), minAhead)
	if b.w == len(b.buf) && b.buf != nil { // the last read could have brought more, or a record is larger
		size = min(2*size, maxAhead)
	}
	if size > len(b.buf) {
		grown := make([]byte, size)
		copy(grown, b.buf[:b.w])
		b.buf = grown
	}
	return b.buf[b.w:]
}

// came says that n bytes were read into space.
func (b *records) came(n int) {
	b.w += n
	for !b.foreign && b.w-b.whole >= recordHeader {
		h := b.buf[b.whole:]
		size := int(h[3])<<8 | int(h[4])
		if h[0] < firstType || h[0] > lastType || h[1] != 3 || size > maxRecord {
			b.foreign = true
			break
		}
		if b.w-b.whole < recordHeader+size {
			return
		}
		b.whole += recordHeader + size
		b.content += max(1, size-recordOverhead) // an empty one must be taken too
	}
	if b.foreign {
		b.content += b.w - b.whole
		b.whole = b.w
	}
}

// take moves bytes of whole records into p.
func (b *records) take(p []byte) int {
	n := copy(p, b.buf[b.r:b.whole])
	b.r += n
	return n
}

// given says that n bytes of content were given out; none means that there are no more: others pad their records.
func (b *records) given(n int) {
	b.content -= n
	if n == 0 {
		b.content = 0
	}
}
