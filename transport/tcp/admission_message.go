package tcp

import (
	"encoding/binary"
	"errors"
)

// maxRedirect bounds the addresses in a redirect, and those that a coordinator keeps.
const maxRedirect = 1024

// A lobbyNote tells a newcomer that it waits to be admitted, and by whom.
type lobbyNote struct {
	size  int // ranks that run
	epoch uint64
}

func (n *lobbyNote) payload() []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(n.size))
	return binary.LittleEndian.AppendUint64(b, n.epoch)
}

func decodeLobbyNote(p []byte) (*lobbyNote, error) {
	d := &decoder{p: p}
	n := &lobbyNote{size: int(d.u32()), epoch: d.u64()}
	return n, d.end("lobby")
}

// An admission tells a newcomer its place in the next epoch.
type admission struct {
	epoch uint64
	rank  int
	table table // of all, itself included
}

func (a *admission) payload() []byte {
	b := binary.LittleEndian.AppendUint64(nil, a.epoch)
	b = binary.LittleEndian.AppendUint32(b, uint32(a.rank))
	return append(b, a.table.payload()...)
}

func decodeAdmission(p []byte) (*admission, error) {
	d := &decoder{p: p}
	a := &admission{epoch: d.u64(), rank: int(d.u32()), table: d.table()}
	if a.epoch == 0 || a.rank >= len(a.table.peers) {
		d.bad = true
	}
	return a, d.end("admit")
}

// A redirect lists where members of the run listen.
func redirectPayload(to []string) []byte {
	b := binary.LittleEndian.AppendUint16(nil, uint16(len(to)))
	for _, a := range to {
		b = appendText(b, a, maxAddr)
	}
	return b
}

func decodeRedirect(p []byte) ([]string, error) {
	d := &decoder{p: p}
	n := int(d.u16())
	if n > maxRedirect {
		d.bad = true
	}
	var to []string
	for range n {
		if d.bad {
			break
		}
		to = append(to, d.text(maxAddr))
	}
	return to, d.end("redirect")
}

const ticketSize = 16

// A ticket is what Waiting shows of a newcomer and Regroup takes: random bytes of the rank where it waits, which tell one visit
// from another, then how its peers find it.
func newTicket(nonce [ticketSize]byte, info *peerInfo) []byte {
	return info.append(nonce[:])
}

func readTicket(t []byte) (nonce [ticketSize]byte, info peerInfo, err error) {
	d := &decoder{p: t}
	copy(nonce[:], d.bytes(ticketSize))
	info = d.peerInfo()
	if info.shared || d.end("") != nil {
		return nonce, info, errors.New("it comes from no Waiting of this transport")
	}
	return nonce, info, nil
}
