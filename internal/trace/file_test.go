package trace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"
)

// sample has every field set.
func sample() *Dump {
	root := 1
	d := rank(0, 2).call(barrier, ms).waiting(What{Op: "reduce", Type: "f32", Count: 8, Counts: "00ff", Reduce: "sum", Algorithm: "ring", Root: &root}, 7*ms).
		cause("stall", 0, "goccl: reduce #2 stalled, missing: rank 1")
	d.Epoch, d.Group, d.Parents, d.PID, d.Waiting, d.Cause.Missing = 3, "00ff", []int{2, 5}, 42, 1, []int{1}
	d.Calls[0].Error, d.Calls[1].Bytes = "EOF", 32
	d.Peers = []Peer{{Rank: 1, Addr: "b:1", State: StateLost, Last: &Report{Seq: 1, Running: true, What: barrier}}}
	return d.Dump
}

func TestWriteAndReadFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "by us")
	want := sample()
	for range 2 { // the second replaces the first
		path, err := want.WriteFile(dir)
		if err != nil {
			t.Fatal(err)
		}
		if path != filepath.Join(dir, "goccl-r1-rank0-epoch3-00ff.json") {
			t.Errorf("path %s", path)
		}
		got, err := ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v\nwant %+v", got, want)
		}
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("%d files in the directory", len(files))
	}
}

func TestWriteFileFails(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if path, err := sample().WriteFile(file); err == nil {
		t.Errorf("wrote %s into a file", path)
	}
	if err := os.Mkdir(filepath.Join(dir, "goccl-r1-rank0-epoch3-00ff.json"), 0o755); err != nil {
		t.Fatal(err)
	}
	if path, err := sample().WriteFile(dir); err == nil {
		t.Errorf("wrote over the directory %s", path)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".goccl-*")); left != nil {
		t.Errorf("left %q", left)
	}
}

func TestFileName(t *testing.T) {
	for _, c := range []struct {
		run, group string
		want       string
	}{
		{"", "", "goccl-rank1-epoch2.json"},
		{"job-7.a_B", "", "goccl-job-7.a_B-rank1-epoch2.json"},
		{"../x", "0f", "goccl-.._x~5c237dda-rank1-epoch2-0f.json"},
		{".._x", "", "goccl-.._x-rank1-epoch2.json"},
		{"\x00é", "", "goccl-__~03866147-rank1-epoch2.json"},
		{strings.Repeat("x", 128), "", "goccl-" + strings.Repeat("x", 64) + "~2f5e97c5-rank1-epoch2.json"},
	} {
		if got := FileName(c.run, 2, c.group, 1); got != c.want {
			t.Errorf("FileName(%q) = %q, want %q", c.run, got, c.want)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	var b bytes.Buffer
	sample().Write(&b)
	good := strings.TrimSpace(b.String())
	with := func(old, new string) string {
		if strings.Count(good, old) != 1 {
			t.Fatalf("%q is not in the sample once", old)
		}
		return strings.Replace(good, old, new, 1)
	}
	for name, c := range map[string]struct {
		text  string
		is    error
		words string
	}{
		"empty":            {"", ErrFormat, "unexpected end"},
		"text":             {"goroutine 1 [running]:", ErrFormat, "invalid character"},
		"other JSON":       {`{"format":"pprof"}`, ErrFormat, ""},
		"array":            {`[]`, ErrFormat, ""},
		"two dumps":        {good + good, ErrFormat, "after top-level value"},
		"cut":              {good[:200], io.ErrUnexpectedEOF, "after 200 bytes"},
		"version":          {with(`"version":1`, `"version":9`), ErrVersion, "9, this program reads 1"},
		"size zero":        {with(`"size":2`, `"size":0`), ErrFormat, "size 0"},
		"size huge":        {with(`"size":2`, `"size":1000000000`), ErrFormat, "size 1000000000"},
		"rank":             {with(`"rank":0,"size"`, `"rank":2,"size"`), ErrFormat, "rank 2 of 2"},
		"negative rank":    {with(`"rank":0,"size"`, `"rank":-1,"size"`), ErrFormat, "rank -1 of 2"},
		"parents":          {with(`[2,5]`, `[2,5,6]`), ErrFormat, "3 parent ranks"},
		"time":             {with(`"pid":42,"time":"2026`, `"pid":42,"time":"0001`), ErrFormat, "time 0001"},
		"too few made":     {with(`"made":2`, `"made":1`), ErrFormat, "2 calls recorded of 1"},
		"too many made":    {with(`"made":2`, `"made":18446744073709551615`), ErrFormat, "recorded of 18446744073709551615"},
		"gap":              {with(`"calls":[{"seq":1`, `"calls":[{"seq":7`), ErrFormat, "#7 out of order"},
		"negative µs":      {with(`"micros":7000`, `"micros":-1`), ErrFormat, "took -1"},
		"endless µs":       {with(`"micros":7000`, `"micros":9223372036854775807`), ErrFormat, "took 9223372036854775807"},
		"running before":   {with(`"micros":1000`, `"micros":1000,"running":true`), ErrFormat, "later ones began"},
		"peer out of size": {with(`"peers":[{"rank":1`, `"peers":[{"rank":2`), ErrFormat, "peer of rank 2"},
		"too large":        {strings.Repeat(" ", maxFileBytes+1), ErrTooLarge, "8 MiB"},
	} {
		d, err := Read(strings.NewReader(c.text), "f.json")
		var file *FileError
		if d != nil || !errors.As(err, &file) || file.Name != "f.json" || !errors.Is(err, c.is) ||
			!strings.HasPrefix(err.Error(), "f.json: ") || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReadFileRefuses(t *testing.T) {
	dir := t.TempDir()
	none := filepath.Join(dir, "none")
	for name, is := range map[string]error{none: fs.ErrNotExist, dir: nil} {
		_, err := ReadFile(name)
		var file *FileError
		if !errors.As(err, &file) || is != nil && !errors.Is(err, is) || strings.Count(err.Error(), name) != 1 {
			t.Errorf("%v", err)
		}
	}
}

// Nothing that a file holds makes the reader or the comparison fail.
func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	sample().Write(&b)
	f.Add(b.Bytes())
	f.Add(fmt.Appendf(nil, `{"format":"goccl-trace","version":1,"rank":3,"size":40,"made":%d,"time":"2199-12-31T00:00:00Z"}`, uint64(maxMade)))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := Read(bytes.NewReader(b), "f")
		if err != nil {
			return
		}
		other := *d
		other.Calls, other.Made, other.Rank = nil, d.Made/2, d.Size-1
		other.Time = noon.Add(-time.Hour)
		for _, set := range [][]*Dump{{d}, {d, d}, {d, &other}, {sample(), d}} {
			said := Merge(set)
			if said == "" {
				t.Fatal("said nothing")
			}
			for _, r := range said {
				if r != '\n' && !unicode.IsPrint(r) {
					t.Fatalf("said %q", said)
				}
			}
		}
	})
}
