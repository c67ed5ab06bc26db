// Package trace is what the ranks of a group write down about their last calls, as a file, and how the files of several
// ranks are read side by side. It does not know the library that writes them.
package trace

import (
	"fmt"
	"hash/fnv"
	"strings"
	"time"
)

const (
	// Format tells a dump from other JSON.
	Format = "goccl-trace"
	// Version is of the layout of Dump. A field may be added without a new one.
	Version = 1
)

// A Dump is what one rank knows at one moment: its own last calls, and what the other ranks have told it. It is written
// as one JSON object. Times follow the rank's wall clock at the moment of the dump, and the distances between them its
// monotonic clock, so that a clock that was set meanwhile does not tear them apart.
type Dump struct {
	Format  string    `json:"format"`
	Version int       `json:"version"`
	RunID   string    `json:"run_id,omitempty"`
	Epoch   uint64    `json:"epoch"`
	Group   string    `json:"group,omitempty"`        // hexadecimal id of a sub-group, "" for the group of all
	Parents []int     `json:"parent_ranks,omitempty"` // by rank: its rank in the group that this one was made of, if any
	Rank    int       `json:"rank"`
	Size    int       `json:"size"`
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Time    time.Time `json:"time"`            // of the dump
	Made    uint64    `json:"made"`            // calls begun so far; Calls has the last of them
	Waiting int       `json:"waiting"`         // calls that wait for their turn behind the running one
	Cause   *Cause    `json:"cause,omitempty"` // nil while the group works
	Peers   []Peer    `json:"peers"`           // the other ranks, ascending
	Calls   []Call    `json:"calls"`           // oldest first, without gaps, ending with call number Made
}

// A Cause is what broke the group first, as this rank knows it.
type Cause struct {
	Kind    string    `json:"kind"`              // peer, mismatch, stall, abort, closed
	Rank    int       `json:"rank"`              // the culprit; of a stall the rank that told
	Missing []int     `json:"missing,omitempty"` // of a stall: who had not arrived
	Text    string    `json:"text"`
	Time    time.Time `json:"time"` // when this rank learned of it
}

// States of a peer, by how much is left of it.
const (
	StateOK     = "ok"
	StateLeft   = "left"   // it said goodbye
	StateSilent = "silent" // it gives no sign of life
	StateLost   = "lost"   // its control connection ended
)

// A Peer is what is known of another rank.
type Peer struct {
	Rank  int       `json:"rank"`
	Addr  string    `json:"addr,omitempty"`
	State string    `json:"state"`
	Heard time.Time `json:"heard,omitzero"` // when it gave the last sign of life
	Last  *Report   `json:"last,omitempty"` // nil: it has not said where it is
}

// A Report is the newest that another rank has told of itself. It is told rarely while all goes well.
type Report struct {
	Seq     uint64 `json:"seq"` // 0: it has made no call
	Running bool   `json:"running"`
	What
}

// A Call is one collective.
type Call struct {
	Seq uint64 `json:"seq"`
	What
	Bytes   int64     `json:"bytes"` // of the larger of this rank's buffers
	Start   time.Time `json:"start"`
	Micros  int64     `json:"micros"`            // how long it took, or has been running
	Running bool      `json:"running,omitempty"` // at the time of the dump
	Error   string    `json:"error,omitempty"`
}

// What says which call it is: all that ranks must agree on. Fields without meaning for the operation are empty.
type What struct {
	Op        string `json:"op,omitempty"`
	Type      string `json:"type,omitempty"`
	Count     uint64 `json:"count"`            // elements of the whole operation; gather and scatter: of one rank
	Counts    string `json:"counts,omitempty"` // digest of the counts of a V form
	Reduce    string `json:"reduce,omitempty"`
	Algorithm string `json:"algorithm,omitempty"`
	Root      *int   `json:"root,omitempty"`
}

// String puts the call into the words of the library's errors: "all-reduce f32 x 1024 sum, ring".
func (w What) String() string {
	var b strings.Builder
	b.WriteString(plain(w.Op))
	if w.Type != "" {
		fmt.Fprintf(&b, " %s x %d", plain(w.Type), w.Count)
	}
	if w.Counts != "" {
		fmt.Fprintf(&b, " (counts %s)", plain(w.Counts))
	}
	if w.Reduce != "" {
		b.WriteString(" " + plain(w.Reduce))
	}
	if w.Root != nil {
		word := "to"
		if w.Op == "broadcast" || w.Op == "scatter" {
			word = "from"
		}
		fmt.Fprintf(&b, " %s root %d", word, *w.Root)
	}
	if w.Algorithm != "" {
		b.WriteString(", " + plain(w.Algorithm))
	}
	return b.String()
}

// FileName returns the name of the file for a rank's dump, the same for each dump of that rank, epoch and group. A run id
// with characters that do not belong into a file name is bent to fit, and still told apart from others.
func FileName(runID string, epoch uint64, group string, rank int) string {
	name := "goccl-"
	if runID != "" {
		name += fileWord(runID) + "-"
	}
	name += fmt.Sprintf("rank%d-epoch%d", rank, epoch)
	if group != "" {
		name += "-" + fileWord(group)
	}
	return name + ".json"
}

const maxFileWord = 64

func fileWord(s string) string {
	word := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '.', r == '_', r == '-':
			return r
		}
		return '_'
	}, s)
	word = word[:min(len(word), maxFileWord)]
	if word != s {
		h := fnv.New32a()
		h.Write([]byte(s))
		word += fmt.Sprintf("~%08x", h.Sum32())
	}
	return word
}
