package goccl

import (
	"encoding/binary"
	"errors"
	"unicode/utf8"
)

// noticeBytes is the fixed size of every control frame, so that control needs no more than a transport's five methods.
const noticeBytes = 512

const (
	noticeFixed      = 56                        // bytes before the variable part
	noticeMaxMissing = 150                       // ranks named in a stall notice; more are dropped, the receiver has its own view too
	noticeMaxText    = noticeBytes - noticeFixed // both texts and the missing ranks together
)

type noticeKind uint8

const (
	noticeFailure     noticeKind = 1 + iota // the group is broken: cause, culprit, words
	noticeProbe                             // which call are you in? answered by a status with the same value
	noticeStatus                            // which call the sender is in or has last completed
	noticeGoodbye                           // the sender leaves in order; value: point-to-point messages it has sent to the receiver
	noticeFarewell                          // answers a goodbye
	noticeMailboxFull                       // the sender's mailbox has no room for the receiver's next message
	noticeMailboxOpen                       // it has room again
	noticeChildFailed                       // the sender could not open sub-group value
	noticeHeartbeat                         // the sender lives; value: its interval in ns
	noticeAgreement                         // a message of Shrink's agreement, or a piece of one, in b
	noticeKinds
)

// supersedes reports whether a notice makes an earlier one of its kind pointless, so that a peer that asks and does not read
// makes no queue grow.
func (k noticeKind) supersedes() bool {
	switch k {
	case noticeProbe, noticeStatus, noticeFarewell, noticeMailboxFull, noticeMailboxOpen, noticeHeartbeat:
		return true
	}
	return false
}

type causeKind uint8

const (
	causePeer     causeKind = 1 + iota // rank failed, left, cancelled or broke the protocol; value: who found out
	causeMismatch                      // the sender wanted a, rank did b
	causeStall                         // the deadline passed; missing had not arrived
	causeAbort                         // rank called Abort
	causeSilence                       // rank gave no sign of life; value: who found out
	causeKinds
)

// A callReport is what a rank tells of itself: the call it is in or has completed last.
type callReport struct {
	seq     uint64 // 0: none yet
	running bool
	call    uint64 // transport.Tag.Call and Count of that call
	count   uint64
	digest  uint64 // of all calls so far, this one included
}

// A notice is one control frame.
type notice struct {
	kind    noticeKind
	cause   causeKind  // of a failure
	rank    int        // culprit of a failure
	report  callReport // of the sender; for a failure the call that failed
	value   uint64
	missing []int
	a, b    string // mismatch: want, got; stall: calls of the missing by line, limit; otherwise address, text
}

func (n *notice) encode() []byte {
	p := make([]byte, noticeBytes)
	p[0], p[1] = byte(n.kind), byte(n.cause)
	if n.report.running {
		p[2] = 1
	}
	le := binary.LittleEndian
	le.PutUint32(p[4:], uint32(n.rank))
	le.PutUint64(p[8:], n.report.seq)
	le.PutUint64(p[16:], n.report.call)
	le.PutUint64(p[24:], n.report.count)
	le.PutUint64(p[32:], n.report.digest)
	le.PutUint64(p[40:], n.value)
	missing := n.missing[:min(len(n.missing), noticeMaxMissing)]
	room := noticeMaxText - 2*len(missing)
	b := truncate(n.b, max(room/2, room-len(n.a)))
	a := truncate(n.a, room-len(b))
	le.PutUint16(p[48:], uint16(len(missing)))
	le.PutUint16(p[50:], uint16(len(a)))
	le.PutUint16(p[52:], uint16(len(b)))
	at := noticeFixed
	for _, r := range missing {
		le.PutUint16(p[at:], uint16(r))
		at += 2
	}
	at += copy(p[at:], a)
	copy(p[at:], b)
	return p
}

var errBadNotice = errors.New("malformed control frame")

// decodeNotice trusts nothing in p: a rank that sends nonsense is reported, not obeyed.
func decodeNotice(p []byte, size int) (notice, error) {
	if len(p) != noticeBytes {
		return notice{}, errBadNotice
	}
	le := binary.LittleEndian
	n := notice{
		kind:  noticeKind(p[0]),
		cause: causeKind(p[1]),
		rank:  int(int32(le.Uint32(p[4:]))),
		report: callReport{
			seq: le.Uint64(p[8:]), running: p[2] == 1, call: le.Uint64(p[16:]), count: le.Uint64(p[24:]), digest: le.Uint64(p[32:]),
		},
		value: le.Uint64(p[40:]),
	}
	missing, a, b := int(le.Uint16(p[48:])), int(le.Uint16(p[50:])), int(le.Uint16(p[52:]))
	switch {
	case n.kind < 1 || n.kind >= noticeKinds, n.cause >= causeKinds, n.kind == noticeFailure && n.cause < 1:
		return notice{}, errBadNotice
	case n.rank < 0 || n.rank >= size, 2*missing+a+b > noticeBytes-noticeFixed:
		return notice{}, errBadNotice
	}
	rest := p[noticeFixed:]
	for range missing {
		r := int(le.Uint16(rest))
		if r >= size {
			return notice{}, errBadNotice
		}
		n.missing = append(n.missing, r)
		rest = rest[2:]
	}
	n.a, n.b = string(rest[:a]), string(rest[a:a+b])
	return n, nil
}

// truncate cuts s to at most n bytes without splitting a character.
func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
