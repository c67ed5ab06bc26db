package link

import (
	"encoding/binary"
	"hash/crc32"
)

// An outbound is the sending direction of a flow.
type outbound struct {
	queue   []int // indexes of the steps, in list order
	at      int   // the one under way
	begun   bool  // its header is encoded
	head    [HeaderSize]byte
	tail    [trailerSize]byte
	sent    int // bytes of its frame that have left: header, payload, trailer
	sum     uint32
	blocked bool // in the last pass
	taken   bool // the stream's turn
}

func (o *outbound) reset() {
	o.queue, o.at, o.begun, o.sent = o.queue[:0], 0, false, 0
}

// push sends one piece of the flow's current frame, if any of it may leave. Without soft the limits that only serve speed
// do not hold.
func (e *Engine) push(f *flow, soft bool) (result, error) {
	o, s := &f.out, f.stream
	if o.at == len(o.queue) {
		return done, nil
	}
	st := &e.steps[o.queue[o.at]]
	if !o.begun {
		Header{Tag: e.tag, Length: uint64(len(st.Out)), Checksum: s.checksum}.Encode(&o.head)
		o.begun, o.sent, o.sum = true, 0, 0
	}
	off := max(0, o.sent-HeaderSize)
	head := o.head[min(o.sent, HeaderSize):]
	if off >= len(st.Out) && s.checksum && len(head) == 0 {
		return e.pushTrailer(o, s, off-len(st.Out))
	}
	free := len(st.Out) - off
	if st.After > 0 {
		free = min(free, int(min(e.steps[st.After-1].In.Final(), int64(len(st.Out))))-off)
	}
	if soft {
		free = e.limit(s, free, len(st.Out)-off)
	}
	if free <= 0 && len(st.Out) > 0 {
		return held, nil
	}
	body := st.Out[off : off+min(free, maxPiece)]
	n, err := s.raw.TryWrite(head, body)
	if err != nil {
		return moved, s.fault(&s.out, err)
	}
	if n == 0 {
		return blocked, nil
	}
	o.sent += n
	payload := max(0, n-len(head))
	if s.peer.Local {
		e.ahead += payload
	}
	if s.checksum {
		o.sum = crc32.Update(o.sum, castagnoli, body[:payload])
		if o.sent == HeaderSize+len(st.Out) {
			binary.LittleEndian.PutUint32(o.tail[:], o.sum)
		}
	} else if o.sent == HeaderSize+len(st.Out) {
		o.next()
	}
	return moved, nil
}

// limit says how many of the free bytes are worth sending now, when left bytes of the frame are still to go.
func (e *Engine) limit(s *Stream, free, left int) int {
	if s.peer.Local && e.toCome > 0 {
		free = min(free, e.maxAhead-e.ahead)
	}
	if free < minPiece && free < left {
		return 0
	}
	return free
}

func (e *Engine) pushTrailer(o *outbound, s *Stream, off int) (result, error) {
	n, err := s.raw.TryWrite(o.tail[off:], nil)
	if err != nil {
		return moved, s.fault(&s.out, err)
	}
	if n == 0 {
		return blocked, nil
	}
	o.sent += n
	if off+n == trailerSize {
		o.next()
	}
	return moved, nil
}

func (o *outbound) next() {
	o.at++
	o.begun = false
}
