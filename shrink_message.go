package goccl

import (
	"encoding/binary"
	"errors"
)

// A ballot is one attempt of a rank to get a proposal decided. The zero ballot is none.
type ballot struct {
	round uint32 // from 1
	rank  int
}

func (b ballot) less(o ballot) bool {
	return b.round < o.round || b.round == o.round && b.rank < o.rank
}

// A proposal is what one instance decides.
type proposal struct {
	commit bool   // the group of these ranks and this epoch has been opened and stands
	epoch  uint64 // number of the group
	ranks  []int  // its ranks, ascending; nil: no proposal
}

// An agreedMessage is one message of the agreement. A zero field is unused by its kind unless said otherwise.
type agreedMessage struct {
	kind     agreedKind
	instance uint32
	ballot   ballot
	accepted ballot   // promise: of the value accepted so far; zero: none
	value    proposal // accept, decided; promise: what has been accepted
	rank     int      // vote: for whom; failed: who is at fault, -1: unknown
	severed  bool     // failed: the sender has lost that rank; left: it may not come back
	tried    uint64   // promise: highest epoch number that the sender has heard of
	offers   bool     // promise: the sender has an offer
}

type agreedKind uint8

const (
	agreedVote     agreedKind = 1 + iota // the sender takes part and holds rank for the lowest living; ballot: highest it has promised
	agreedPrepare                        // promise to accept nothing below ballot
	agreedPromise                        // answers prepare
	agreedAccept                         // accept value in ballot
	agreedAccepted                       // answers accept
	agreedDecided                        // value is decided; sent on by everyone who learns of it
	agreedOpened                         // the sender has opened the group decided in the instance before
	agreedFailed                         // it could not, or has lost a rank of it since
	agreedLeft                           // the sender takes no further part, until it votes again, or holds the receiver for gone
	agreedKinds
)

// A message of the agreement travels as the text of one or more notices: a fixed part and a piece of its set of ranks, as
// a bitmap.
const (
	agreedFixed = 44
	agreedPiece = 384 // bytes of the bitmap in one notice
)

const (
	agreedFlagCommit = 1 << iota
	agreedFlagSevered
	agreedFlagOffers
	agreedFlagMore // the next notice carries the next piece
	agreedFlags
)

// encode returns the notices of a message, in order.
func (m *agreedMessage) encode(size int) []notice {
	head := make([]byte, agreedFixed)
	head[0] = byte(m.kind)
	if m.value.commit {
		head[1] |= agreedFlagCommit
	}
	if m.severed {
		head[1] |= agreedFlagSevered
	}
	if m.offers {
		head[1] |= agreedFlagOffers
	}
	le := binary.LittleEndian
	le.PutUint32(head[4:], m.instance)
	le.PutUint32(head[8:], m.ballot.round)
	le.PutUint32(head[12:], uint32(m.ballot.rank))
	le.PutUint32(head[16:], m.accepted.round)
	le.PutUint32(head[20:], uint32(m.accepted.rank))
	le.PutUint64(head[24:], m.value.epoch)
	le.PutUint64(head[32:], m.tried)
	le.PutUint32(head[40:], uint32(m.rank))
	if m.value.ranks == nil {
		return []notice{{kind: noticeAgreement, b: string(head)}}
	}
	bitmap := make([]byte, (size+7)/8)
	for _, r := range m.value.ranks {
		bitmap[r/8] |= 1 << (r % 8)
	}
	var notices []notice
	for at := 0; at < len(bitmap); at += agreedPiece {
		end := min(at+agreedPiece, len(bitmap))
		p := append([]byte(nil), head...)
		le.PutUint16(p[2:], uint16(at/agreedPiece))
		if end < len(bitmap) {
			p[1] |= agreedFlagMore
		}
		notices = append(notices, notice{kind: noticeAgreement, b: string(append(p, bitmap[at:end]...))})
	}
	return notices
}

var errBadAgreement = errors.New("malformed message of a shrink")

// An agreedReader puts the messages of one rank together.
type agreedReader struct{ bitmap []byte }

// decode takes the text of the next notice, in which it trusts nothing. It returns nil while the message is not complete.
func (d *agreedReader) decode(text string, size int) (*agreedMessage, error) {
	p := []byte(text)
	if len(p) < agreedFixed {
		return nil, errBadAgreement
	}
	le := binary.LittleEndian
	flags, piece := p[1], int(le.Uint16(p[2:]))
	d.bitmap = append(d.bitmap, p[agreedFixed:]...)
	whole, more := (size+7)/8, flags&agreedFlagMore != 0
	switch {
	case flags >= agreedFlags, len(p) > agreedFixed+agreedPiece, len(d.bitmap) > whole,
		piece*agreedPiece != len(d.bitmap)-(len(p)-agreedFixed):
		d.bitmap = nil
		return nil, errBadAgreement
	case more && len(d.bitmap) < whole:
		return nil, nil
	}
	bitmap := d.bitmap
	d.bitmap = nil
	m := &agreedMessage{
		kind:     agreedKind(p[0]),
		instance: le.Uint32(p[4:]),
		ballot:   ballot{le.Uint32(p[8:]), int(int32(le.Uint32(p[12:])))},
		accepted: ballot{le.Uint32(p[16:]), int(int32(le.Uint32(p[20:])))},
		value:    proposal{commit: flags&agreedFlagCommit != 0, epoch: le.Uint64(p[24:])},
		rank:     int(int32(le.Uint32(p[40:]))),
		severed:  flags&agreedFlagSevered != 0,
		offers:   flags&agreedFlagOffers != 0,
		tried:    le.Uint64(p[32:]),
	}
	var ok bool
	if m.value.ranks, ok = ranksOf(bitmap, size); !ok || more || len(bitmap) != 0 && len(bitmap) != whole || !m.valid(size) {
		return nil, errBadAgreement
	}
	return m, nil
}

// ranksOf lists the ranks of a bitmap, nil if it is empty; false: some are too large.
func ranksOf(bitmap []byte, size int) (ranks []int, ok bool) {
	for r := range 8 * len(bitmap) {
		if bitmap[r/8]&(1<<(r%8)) == 0 {
			continue
		}
		if r >= size {
			return nil, false
		}
		ranks = append(ranks, r)
	}
	return ranks, true
}

// valid reports whether every rank in a message is one and what its kind needs is there.
func (m *agreedMessage) valid(size int) bool {
	isRank := func(r int) bool { return r >= 0 && r < size }
	if !isRank(m.ballot.rank) || !isRank(m.accepted.rank) {
		return false
	}
	set := m.value.ranks != nil
	switch m.kind {
	case agreedVote:
		return isRank(m.rank) && !set
	case agreedFailed:
		return (isRank(m.rank) || m.rank == -1 && !m.severed) && !set
	case agreedPromise:
		return set == (m.accepted != ballot{})
	case agreedAccept, agreedDecided:
		return set
	case agreedPrepare, agreedAccepted, agreedOpened, agreedLeft:
		return !set
	}
	return false
}
