package tcp

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
)

const (
	maxAddr    = 320 // host name, zone and port
	maxOptions = 1024
	maxOption  = 4 << 10 // bytes of a key, or of a value
)

// A peerInfo is what the table says about one rank.
type peerInfo struct {
	tcp    string // host:port; for a shared listener only for messages
	unix   string // name of its Unix-domain socket, "" when it has none
	host   [hostIDSize]byte
	shared bool // it listens where its ranks reached the coordinator
}

func (p *peerInfo) append(b []byte) []byte {
	var flags byte
	if p.shared {
		flags = 1
	}
	b = append(b, flags)
	b = append(b, p.host[:]...)
	b = appendText(b, p.tcp, maxAddr)
	return appendText(b, p.unix, maxAddr)
}

func (d *decoder) peerInfo() (p peerInfo) {
	flags := d.u8()
	if flags > 1 {
		d.bad = true
	}
	p.shared = flags == 1
	copy(p.host[:], d.bytes(hostIDSize))
	p.tcp, p.unix = d.text(maxAddr), d.text(maxAddr)
	return p
}

// A registration is what a rank tells the coordinator beyond its hello.
type registration struct {
	info    peerInfo
	problem string   // why this rank cannot take part; it comes so that the others need not wait for it
	options []option // sorted by key
	alone   bool     // nobody is there any more where this rank was sent by an earlier REDIRECT
}

type option struct{ key, value string }

func sortedOptions(m map[string]string) []option {
	var list []option
	for _, k := range slices.Sorted(maps.Keys(m)) {
		list = append(list, option{k, m[k]})
	}
	return list
}

func (r *registration) payload() []byte {
	b := appendText(r.info.append(nil), r.problem, maxText)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(r.options)))
	for _, o := range r.options {
		b = appendRaw(appendRaw(b, o.key), o.value)
	}
	if r.alone {
		return append(b, 1)
	}
	return append(b, 0)
}

func decodeRegistration(p []byte) (*registration, error) {
	d := &decoder{p: p}
	r := &registration{info: d.peerInfo(), problem: d.text(maxText)}
	n := int(d.u16())
	if n > maxOptions {
		d.bad = true
	}
	for range n {
		if d.bad {
			break
		}
		o := option{d.raw(maxOption), d.raw(maxOption)}
		if k := len(r.options); k > 0 && cmp.Compare(r.options[k-1].key, o.key) >= 0 {
			d.bad = true // one order, no key twice: comparing lists is then comparing options
		}
		r.options = append(r.options, o)
	}
	alone := d.u8()
	if alone > 1 {
		d.bad = true
	}
	r.alone = alone == 1
	return r, d.end("register")
}

// A waiting message tells registered ranks who is missing.
func waitingPayload(missing []int) []byte { return appendRanks(nil, missing) }

func decodeWaiting(p []byte) ([]int, error) {
	d := &decoder{p: p}
	missing := d.ranks()
	return missing, d.end("waiting")
}

// A table says where every rank listens.
type table struct {
	world [16]byte // drawn for this start
	peers []peerInfo
}

func (t *table) payload() []byte {
	b := append([]byte(nil), t.world[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(t.peers)))
	for i := range t.peers {
		b = t.peers[i].append(b)
	}
	return b
}

func decodeTable(p []byte, size int) (*table, error) {
	d := &decoder{p: p}
	t := d.table()
	if err := d.end("table"); err != nil {
		return nil, err
	}
	if len(t.peers) != size {
		return nil, fmt.Errorf("the table has %d ranks, not %d", len(t.peers), size)
	}
	return &t, nil
}

func (d *decoder) table() (t table) {
	copy(t.world[:], d.bytes(len(t.world)))
	n := d.u32()
	if n > MaxSize {
		d.bad = true
	}
	for range n {
		if d.bad {
			break
		}
		t.peers = append(t.peers, d.peerInfo())
	}
	return t
}

// An outcome is how a start went: for one rank in a result, for all in a verdict.
type outcome struct {
	code  outcomeCode
	ranks []int  // missing ranks for outcomeMissing, else ranks at fault
	text  string // "" for outcomeFine; for outcomeLate without ranks in a result, after what time
}

type outcomeCode uint8

const (
	outcomeFine outcomeCode = iota
	outcomeFailed
	outcomeLate    // a deadline passed; without ranks in a result: while waiting for others
	outcomeMissing // a deadline passed while ranks were missing; in verdicts only
)

func (o *outcome) payload() []byte {
	return appendText(appendRanks([]byte{byte(o.code)}, o.ranks), o.text, maxText)
}

func decodeOutcome(p []byte) (*outcome, error) {
	d := &decoder{p: p}
	o := &outcome{code: outcomeCode(d.u8())}
	if o.code > outcomeMissing {
		d.bad = true
	}
	o.ranks, o.text = d.ranks(), d.text(maxText)
	return o, d.end("outcome")
}

func failed(ranks []int, format string, args ...any) *outcome {
	return &outcome{code: outcomeFailed, ranks: ranks, text: fmt.Sprintf(format, args...)}
}
