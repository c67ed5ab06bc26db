package trace

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
)

// A log of text has the calls in words, equal ones as one; a log of JSON has the dump.
func TestLogged(t *testing.T) {
	sum := What{Op: "all-reduce", Type: "f32", Count: 2, Reduce: "sum", Algorithm: "ring"}
	root := 0
	d := &Dump{Format: Format, Version: Version, Calls: []Call{
		{Seq: 1, What: What{Op: "broadcast", Type: "f64", Count: 2, Root: &root}, Micros: 24},
		{Seq: 2, What: sum, Micros: 1564},
		{Seq: 3, What: sum, Micros: 16},
		{Seq: 4, What: sum, Micros: 338},
		{Seq: 5, What: sum, Micros: 12002441, Running: true},
	}}
	for _, c := range []struct {
		what  string
		calls []Call
		want  string
	}{
		{"running", d.Calls, "#1 broadcast f64 x 2 from root 0, 24 µs; #2–#4 all-reduce f32 x 2 sum, ring, 16 µs to 1.6 ms; " +
			"#5 all-reduce f32 x 2 sum, ring, in it for 12.0 s"},
		{"failed", []Call{{Seq: 7, What: sum}, {Seq: 8, What: sum, Error: "rank 1: EOF"}},
			"#7 all-reduce f32 x 2 sum, ring, 0 µs; #8 all-reduce f32 x 2 sum, ring, 0 µs, failed"},
		{"none", nil, "no call yet"},
	} {
		var b bytes.Buffer
		slog.New(slog.NewTextHandler(&b, nil)).Info("m", "trace", Logged{&Dump{Calls: c.calls}})
		if !strings.HasSuffix(b.String(), " trace=\""+c.want+"\"\n") {
			t.Errorf("%s: got %s, want at its end %s", c.what, b.String(), c.want)
		}
	}
	var b bytes.Buffer
	slog.New(slog.NewJSONHandler(&b, nil)).Info("m", "trace", Logged{d})
	var record struct{ Trace Dump }
	if err := json.Unmarshal(b.Bytes(), &record); err != nil || record.Trace.Format != Format || len(record.Trace.Calls) != len(d.Calls) {
		t.Errorf("%v: %+v in %s", err, record.Trace, b.String())
	}
}
