package goccl

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAgreedMessageOverTheWire(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{1, 2, 7, 8, 9, 3071, 3072, 3073, 6144, 6145, 8192} {
		set := func() []int {
			ranks := []int{size - 1}
			for range rng.IntN(20) {
				ranks = append(ranks, rng.IntN(size))
			}
			slices.Sort(ranks)
			return slices.Compact(ranks)
		}
		b := ballot{7, size - 1}
		messages := []agreedMessage{
			{kind: agreedVote, instance: 3, ballot: b, rank: size - 1},
			{kind: agreedPrepare, ballot: b},
			{kind: agreedPromise, ballot: b, tried: 1 << 60, offers: true},
			{kind: agreedPromise, ballot: b, accepted: ballot{6, 0}, value: proposal{epoch: 9, ranks: set()}},
			{kind: agreedAccept, ballot: b, value: proposal{commit: true, epoch: 9, ranks: set()}},
			{kind: agreedAccepted, ballot: b},
			{kind: agreedDecided, instance: 1<<32 - 1, value: proposal{epoch: 1<<64 - 1, ranks: set()}},
			{kind: agreedOpened},
			{kind: agreedFailed, rank: -1},
			{kind: agreedFailed, rank: size - 1, severed: true},
			{kind: agreedLeft},
		}
		var d agreedReader
		for _, m := range messages {
			var got *agreedMessage
			for i, n := range m.encode(size) {
				if got != nil {
					t.Fatalf("size %d, kind %d: complete before notice %d", size, m.kind, i)
				}
				n, err := decodeNotice(n.encode(), size)
				if err != nil || n.kind != noticeAgreement {
					t.Fatalf("size %d, kind %d: %v %v", size, m.kind, n.kind, err)
				}
				if got, err = d.decode(n.b, size); err != nil {
					t.Fatalf("size %d, kind %d, notice %d: %v", size, m.kind, i, err)
				}
			}
			if got == nil || !cmp.Equal(*got, m, cmp.AllowUnexported(agreedMessage{}, ballot{}, proposal{})) {
				t.Errorf("size %d: got %+v, want %+v", size, got, m)
			}
		}
	}
}

// TestAgreedMessageLies sends messages that name ranks which there are not, or lack what they need.
func TestAgreedMessageLies(t *testing.T) {
	const size = 5
	good := agreedMessage{kind: agreedAccept, ballot: ballot{1, 0}, value: proposal{epoch: 1, ranks: []int{0, 4}}}
	text := good.encode(size)[0].b
	patched := func(at int, b byte) string {
		p := []byte(text)
		p[at] = b
		return string(p)
	}
	for name, bad := range map[string]string{
		"empty":             "",
		"short":             text[:agreedFixed-1],
		"no kind":           patched(0, 0),
		"kind too large":    patched(0, byte(agreedKinds)),
		"unknown flag":      patched(1, agreedFlags),
		"more of nothing":   patched(1, agreedFlagMore),
		"later piece":       patched(2, 1),
		"ballot's rank":     patched(12, size),
		"accepted's rank":   patched(20, size),
		"rank in bitmap":    patched(agreedFixed, 1<<size),
		"empty set":         patched(agreedFixed, 0),
		"no set":            text[:agreedFixed],
		"bitmap too long":   text + "\x00",
		"set with a vote":   patched(0, byte(agreedVote)),
		"set with no value": patched(0, byte(agreedPromise)),
	} {
		var d agreedReader
		if m, err := d.decode(bad, size); err == nil {
			t.Errorf("%s: taken as %+v", name, m)
		}
	}
	for name, m := range map[string]agreedMessage{
		"vote":              {kind: agreedVote, rank: size},
		"nobody's vote":     {kind: agreedVote, rank: -1},
		"failed":            {kind: agreedFailed, rank: -2},
		"severed nobody":    {kind: agreedFailed, rank: -1, severed: true},
		"promise, no value": {kind: agreedPromise, accepted: ballot{1, 1}},
	} {
		var d agreedReader
		if m, err := d.decode(m.encode(size)[0].b, size); err == nil {
			t.Errorf("%s: taken as %+v", name, m)
		}
	}
}

func FuzzAgreedMessage(f *testing.F) {
	for _, m := range []agreedMessage{
		{kind: agreedVote, rank: 3}, {kind: agreedDecided, value: proposal{epoch: 1, ranks: []int{0, 1, 3000}}},
	} {
		for _, n := range m.encode(4000) {
			f.Add([]byte(n.b), []byte(n.b))
		}
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		for _, size := range []int{1, 9, 4000} {
			var d agreedReader
			a := newAgreement(0, size, 0, false)
			a.enter(func(int) bool { return false })
			for _, text := range [][]byte{first, second} {
				m, err := d.decode(string(text), size)
				if len(d.bitmap) > (size+7)/8+agreedPiece {
					t.Fatalf("holds %d bytes for %d ranks", len(d.bitmap), size)
				}
				if err == nil && m != nil && size > 1 {
					a.receive(1, m)
				}
			}
		}
	})
}
