package launch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

const (
	flushAfter = 300 * time.Millisecond // how long an unfinished line is held back in the hope of its end
	maxLine    = 16 << 20               // longer lines are shown in pieces
)

// An output carries what the ranks write to the launcher's own streams.
type output struct {
	cfg            *Config
	stdout, stderr *lines
	readers        sync.WaitGroup
	ends           []*os.File // our ends of the pipes
	pending        []pipe     // of the rank that is being started
}

type pipe struct {
	read, write *os.File
	to          *lines
	rank        int
}

func newOutput(cfg *Config) *output {
	o := &output{cfg: cfg, stdout: &lines{w: cfg.Stdout, prefix: cfg.Prefix}}
	o.stderr = o.stdout
	if cfg.Stderr != cfg.Stdout {
		o.stderr = &lines{w: cfg.Stderr, prefix: cfg.Prefix}
	}
	return o
}

// say shows a line of the launcher's own.
func (o *output) say(line string) { o.stderr.say(line) }

// attach prepares the streams of a rank about to start. Without prefixes a rank writes to our files directly, and so
// sees a terminal if there is one.
func (o *output) attach(cmd *exec.Cmd, rank int) error {
	var err error
	if cmd.Stdout, err = o.stream(o.cfg.Stdout, o.stdout, rank); err != nil {
		return err
	}
	cmd.Stderr, err = o.stream(o.cfg.Stderr, o.stderr, rank)
	if err != nil {
		o.started(false)
	}
	return err
}

func (o *output) stream(w io.Writer, to *lines, rank int) (io.Writer, error) {
	if w == nil {
		return nil, nil
	}
	if f, ok := w.(*os.File); ok && !o.cfg.Prefix {
		return f, nil
	}
	r, w2, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	o.pending = append(o.pending, pipe{r, w2, to, rank})
	return w2, nil
}

// started closes the rank's ends of its pipes and, if it runs, begins to read ours.
func (o *output) started(ok bool) {
	for _, p := range o.pending {
		p.write.Close()
		if !ok {
			p.read.Close()
			continue
		}
		o.ends = append(o.ends, p.read)
		o.readers.Go(func() {
			p.to.copy(p.rank, p.read)
			p.read.Close()
		})
	}
	o.pending = nil
}

// drain waits until all that ended ranks wrote has been shown.
func (o *output) drain(limit time.Duration) {
	done := make(chan struct{})
	go func() { o.readers.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(limit):
	}
	for _, f := range o.ends {
		f.Close()
	}
	<-done
}

// lines merges the output of several ranks so that a line is never mixed with another rank's.
type lines struct {
	mu     sync.Mutex
	w      io.Writer
	prefix bool
	open   bool // the last thing written was the beginning of a line
	writer int  // of which rank
}

// copy shows what one rank writes until the end of its pipe.
func (l *lines) copy(rank int, r *os.File) {
	var held []byte // the beginning of a line
	buf := make([]byte, 64<<10)
	for {
		if len(held) > 0 {
			// Not every system has deadlines on pipes; there an unfinished line shows at its end.
			_ = r.SetReadDeadline(time.Now().Add(flushAfter))
		}
		n, err := r.Read(buf)
		held = append(held, buf[:n]...)
		if i := bytes.LastIndexByte(held, '\n') + 1; i > 0 {
			l.write(rank, held[:i])
			held = append(held[:0], held[i:]...)
		}
		quiet := errors.Is(err, os.ErrDeadlineExceeded)
		if len(held) > maxLine || len(held) > 0 && err != nil {
			l.write(rank, held)
			held = held[:0]
		}
		if quiet {
			_ = r.SetReadDeadline(time.Time{})
		} else if err != nil {
			l.finish(rank)
			return
		}
	}
}

// write shows text of one rank, each line behind the rank's mark. The last line may be unfinished.
func (l *lines) write(rank int, text []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out bytes.Buffer
	if l.open && l.writer != rank {
		out.WriteByte('\n')
		l.open = false
	}
	for line := range bytes.Lines(text) {
		if l.prefix && !l.open {
			fmt.Fprintf(&out, "[%d] ", rank)
		}
		out.Write(line)
		l.open = line[len(line)-1] != '\n'
	}
	l.writer = rank
	_, _ = l.w.Write(out.Bytes()) // nobody to tell: the ranks go on without a reader
}

// finish ends the last line of a rank that ended without doing so.
func (l *lines) finish(rank int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open && l.writer == rank && l.prefix {
		_, _ = l.w.Write([]byte("\n"))
		l.open = false
	}
}

func (l *lines) say(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open {
		line = "\n" + line
		l.open = false
	}
	_, _ = io.WriteString(l.w, line)
}
