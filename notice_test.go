package goccl

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNoticeRoundTrip(t *testing.T) {
	for _, n := range []notice{
		{kind: noticeGoodbye, value: 1 << 60},
		{kind: noticeProbe, report: callReport{seq: 1<<64 - 1, running: true, call: 3, count: 1 << 63, digest: 9}, value: 4},
		{kind: noticeFailure, cause: causeMismatch, rank: 6, a: "want ✓", b: "got"},
		{kind: noticeFailure, cause: causeStall, rank: 1, missing: []int{0, 3, 6}, b: "too late"},
	} {
		got, err := decodeNotice(n.encode(), 7)
		if err != nil {
			t.Fatalf("%+v: %v", n, err)
		}
		if d := cmp.Diff(n, got, cmp.AllowUnexported(notice{}, callReport{})); d != "" {
			t.Errorf("round trip (-want +got):\n%s", d)
		}
	}
}

func TestNoticeTruncates(t *testing.T) {
	long := notice{kind: noticeFailure, cause: causePeer, a: strings.Repeat("ä", 600), b: strings.Repeat("ü", 600), missing: make([]int, 400)}
	got, err := decodeNotice(long.encode(), 2)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(long.a, got.a) || !strings.HasPrefix(long.b, got.b) || got.a == "" || got.b == "" || len(got.missing) != noticeMaxMissing {
		t.Errorf("got %q, %q, %d missing", got.a, got.b, len(got.missing))
	}
	if strings.ToValidUTF8(got.a+got.b, "?") != got.a+got.b {
		t.Error("a character was split")
	}
}

func TestNoticeRefusesNonsense(t *testing.T) {
	good := notice{kind: noticeFailure, cause: causePeer, rank: 1, b: "x"}
	for what, spoil := range map[string]func(p []byte) []byte{
		"short":         func(p []byte) []byte { return p[:100] },
		"kind 0":        func(p []byte) []byte { p[0] = 0; return p },
		"unknown kind":  func(p []byte) []byte { p[0] = byte(noticeKinds); return p },
		"unknown cause": func(p []byte) []byte { p[1] = byte(causeKinds); return p },
		"no cause":      func(p []byte) []byte { p[1] = 0; return p },
		"rank too high": func(p []byte) []byte { p[4] = 2; return p },
		"negative rank": func(p []byte) []byte { p[7] = 0x80; return p },
		"text too long": func(p []byte) []byte { p[53] = 0xff; return p },
		"missing rank":  func(p []byte) []byte { p[48] = 1; p[noticeFixed] = 9; return p },
	} {
		if n, err := decodeNotice(spoil(good.encode()), 2); err == nil {
			t.Errorf("%s: decoded to %+v", what, n)
		}
	}
}

func FuzzDecodeNotice(f *testing.F) {
	f.Add((&notice{kind: noticeProbe}).encode(), 1)
	f.Add((&notice{kind: noticeFailure, cause: causeStall, missing: []int{1, 2}, a: "a", b: "b"}).encode(), 5)
	f.Fuzz(func(t *testing.T, p []byte, size int) {
		n, err := decodeNotice(p, size)
		if err != nil {
			return
		}
		again, err := decodeNotice(n.encode(), size)
		if err != nil {
			t.Fatalf("%+v does not survive: %v", n, err)
		}
		if len(n.a)+len(n.b)+2*len(n.missing) <= noticeMaxText/2 && !bytes.Equal(n.encode(), again.encode()) {
			t.Fatalf("%+v became %+v", n, again)
		}
	})
}
