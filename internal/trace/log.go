package trace

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Logged is a dump as the value of a log record: JSON where the log is JSON, words where it is text, in which an escaped
// object of three thousand bytes would be lost on the reader.
type Logged struct{ *Dump }

// MarshalJSON is the whole dump.
func (l Logged) MarshalJSON() ([]byte, error) { return json.Marshal(l.Dump) }

// MarshalText is the calls, oldest first, equal ones that follow each other as one: "#1 broadcast f64 x 2 from root 0, 24 µs;
// #2–#6 all-reduce f32 x 2 mean, 8 µs to 1.6 ms; #7 all-reduce f32 x 2 mean, in it for 12.0 s".
func (l Logged) MarshalText() ([]byte, error) {
	var parts []string
	for calls := l.Calls; len(calls) > 0; {
		n := 1
		for n < len(calls) && alike(&calls[0], &calls[n]) {
			n++
		}
		parts = append(parts, inWords(calls[:n]))
		calls = calls[n:]
	}
	if len(parts) == 0 {
		return []byte("no call yet"), nil
	}
	return []byte(strings.Join(parts, "; ")), nil
}

func alike(a, b *Call) bool {
	return a.What.String() == b.What.String() && !a.Running && !b.Running && a.Error == b.Error
}

// inWords describes calls that are alike.
func inWords(calls []Call) string {
	first, last := &calls[0], &calls[len(calls)-1]
	var b strings.Builder
	fmt.Fprintf(&b, "#%d", first.Seq)
	if len(calls) > 1 {
		fmt.Fprintf(&b, "–#%d", last.Seq)
	}
	fmt.Fprintf(&b, " %s, ", first.What)
	if first.Running {
		b.WriteString("in it for ")
	}
	took := durations{micros(first), micros(first)}
	for i := range calls {
		took.least, took.most = min(took.least, micros(&calls[i])), max(took.most, micros(&calls[i]))
	}
	b.WriteString(took.String())
	if first.Error != "" {
		b.WriteString(", failed") // of what, the record says next to it
	}
	return b.String()
}

func micros(c *Call) time.Duration { return time.Duration(c.Micros) * time.Microsecond }
