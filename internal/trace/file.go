package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"time"
)

const (
	maxFileBytes = 8 << 20 // of a dump; one of 256 calls has about 70 KiB
	maxSize      = 1 << 16 // ranks, as on the wire
	maxMade      = 1 << 62 // calls, so that numbers next to it do not overflow
)

// Why a file is not a dump. Read wraps them in a *FileError.
var (
	ErrFormat   = errors.New("not a goccl trace")
	ErrVersion  = errors.New("trace of another version")
	ErrTooLarge = fmt.Errorf("larger than %d MiB", maxFileBytes>>20)
)

// A FileError says which file could not be read as a dump.
type FileError struct {
	Name string
	Err  error
}

func (e *FileError) Error() string { return fmt.Sprintf("%s: %v", e.Name, e.Err) }
func (e *FileError) Unwrap() error { return e.Err }

// Write writes the dump as one line of JSON.
func (d *Dump) Write(w io.Writer) error {
	b, err := json.Marshal(d)
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// WriteFile writes the dump to its file in dir, which it makes if need be, and returns the path. A reader sees the old file
// or the whole new one.
func (d *Dump) WriteFile(dir string) (path string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(dir, ".goccl-*.tmp")
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	if err = errors.Join(d.Write(f), f.Chmod(0o644), f.Close()); err != nil {
		return "", err
	}
	path = filepath.Join(dir, FileName(d.RunID, d.Epoch, d.Group, d.Rank))
	return path, os.Rename(f.Name(), path)
}

// ReadFile reads a dump from a file. Its errors are *FileError.
func ReadFile(name string) (*Dump, error) {
	f, err := os.Open(name)
	if err != nil {
		var p *os.PathError
		if errors.As(err, &p) {
			err = p.Err // the name is said already
		}
		return nil, &FileError{name, err}
	}
	defer f.Close()
	return Read(f, name)
}

// Read reads a dump and trusts nothing in it. Its errors are *FileError; name is for them only.
func Read(r io.Reader, name string) (*Dump, error) {
	d, err := read(r)
	if err != nil {
		return nil, &FileError{name, err}
	}
	return d, nil
}

func read(r io.Reader) (*Dump, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxFileBytes+1))
	switch {
	case err != nil:
		var p *os.PathError
		if errors.As(err, &p) {
			err = p.Err
		}
		return nil, err
	case len(b) > maxFileBytes:
		return nil, ErrTooLarge
	}
	var head struct {
		Format  string `json:"format"`
		Version int    `json:"version"`
	}
	b = bytes.TrimSpace(b)
	if err := json.Unmarshal(b, &head); err != nil {
		return nil, badJSON(b, err)
	}
	switch {
	case head.Format != Format:
		return nil, ErrFormat
	case head.Version != Version:
		return nil, fmt.Errorf("%w: %d, this program reads %d", ErrVersion, head.Version, Version)
	}
	var d Dump
	if err := json.Unmarshal(b, &d); err != nil {
		return nil, badJSON(b, err)
	}
	if err := d.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return &d, nil
}

// badJSON says of JSON that breaks off that it does.
func badJSON(b []byte, err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) && syntax.Offset >= int64(len(b)) && bytes.HasPrefix(b, []byte("{")) {
		return fmt.Errorf("%w after %d bytes", io.ErrUnexpectedEOF, len(b))
	}
	return fmt.Errorf("%w: %w", ErrFormat, err)
}

// check finds what would lead a reader astray.
func (d *Dump) check() error {
	switch {
	case d.Size < 1 || d.Size > maxSize:
		return fmt.Errorf("size %d", d.Size)
	case d.Rank < 0 || d.Rank >= d.Size:
		return fmt.Errorf("rank %d of %d", d.Rank, d.Size)
	case len(d.Parents) > d.Size:
		return fmt.Errorf("%d parent ranks for %d ranks", len(d.Parents), d.Size)
	case !sane(d.Time):
		return fmt.Errorf("time %v", d.Time)
	case d.Made > maxMade || uint64(len(d.Calls)) > d.Made:
		return fmt.Errorf("%d calls recorded of %d", len(d.Calls), d.Made)
	}
	for i := range d.Calls {
		c := &d.Calls[i]
		switch {
		case c.Seq != d.Made-uint64(len(d.Calls)-1-i):
			return fmt.Errorf("call #%d out of order", c.Seq)
		case c.Micros < 0 || c.Micros > math.MaxInt64/int64(time.Microsecond):
			return fmt.Errorf("call #%d took %d µs", c.Seq, c.Micros)
		case !sane(c.Start):
			return fmt.Errorf("call #%d began at %v", c.Seq, c.Start)
		case c.Running && i < len(d.Calls)-1:
			return fmt.Errorf("call #%d is running, and later ones began", c.Seq)
		}
	}
	for i, p := range d.Peers {
		if p.Rank < 0 || p.Rank >= d.Size || i > 0 && p.Rank <= d.Peers[i-1].Rank {
			return fmt.Errorf("peer of rank %d", p.Rank)
		}
	}
	return nil
}

// sane bounds a time so that differences do not overflow.
func sane(t time.Time) bool { return t.Year() >= 1970 && t.Year() < 2200 }

// end is when the call ended, or until when it is known to run.
func (c *Call) end() time.Time { return c.Start.Add(c.took()) }

func (c *Call) took() time.Duration { return time.Duration(c.Micros) * time.Microsecond }

// completed reports whether the call ended well.
func (c *Call) completed() bool { return !c.Running && c.Error == "" }
