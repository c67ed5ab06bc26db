package faults

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goccl/goccl/internal/launch"
)

// jobBound bounds everything that a test does with one job, unless the test says otherwise.
const jobBound = 2 * time.Minute

// A job is a run of ranks under test.
type job struct {
	t      *testing.T
	ranks  []*life // by rank, the newest life of each
	lives  chan *life
	ended  chan error // what launch.Run returned
	output *outputLines
	cancel context.CancelFunc
	ctx    context.Context
}

// A life is one process of a rank.
type life struct {
	job    *job
	rank   int
	pid    int
	number int
	conn   net.Conn
	says   chan report // closed when the process has ended
}

// start launches n ranks and returns once all of them are there.
func start(t *testing.T, n int, p plan, change ...func(*launch.Config)) *job {
	t.Helper()
	return startWithin(t, jobBound, n, p, change...)
}

// startWithin is start for a job with another bound.
func startWithin(t *testing.T, bound time.Duration, n int, p plan, change ...func(*launch.Config)) *job {
	t.Helper()
	dir, err := os.MkdirTemp("", "goccl")
	if err != nil {
		t.Fatal(err)
	}
	p.Control = filepath.Join(dir, "control")
	ln, err := net.Listen("unix", p.Control)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	j := &job{t: t, ranks: make([]*life, n), lives: make(chan *life, 16), ended: make(chan error, 1), output: &outputLines{}, cancel: cancel, ctx: ctx}
	go j.accept(ln)
	cfg := j.config(n, p)
	for _, c := range change {
		c(&cfg)
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		j.ended <- launch.Run(ctx, cfg)
	}()
	t.Cleanup(func() {
		cancel()
		<-stopped
		ln.Close()
		os.RemoveAll(dir)
		if t.Failed() {
			t.Logf("the ranks wrote:\n%s", j.output)
			j.logRest()
		}
	})
	for range n {
		j.nextLife()
	}
	return j
}

// logRest shows what ranks have said that the test did not get to. All processes have ended.
func (j *job) logRest() {
	for _, l := range j.ranks {
		if l == nil {
			continue
		}
		for r := range l.says {
			j.t.Logf("rank %d also said %s", l.rank, r)
		}
	}
}

func (j *job) config(n int, p plan) launch.Config {
	text, err := json.Marshal(p)
	if err != nil {
		j.t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		j.t.Fatal(err)
	}
	return launch.Config{
		Size: n, Program: exe, Env: append(os.Environ(), planEnv+"="+string(text)), KeepGoing: true,
		Stdout: j.output, Stderr: j.output, Prefix: true, Grace: time.Second,
	}
}

func (j *job) accept(ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		go j.serve(conn)
	}
}

// serve hears what one process says until it ends.
func (j *job) serve(conn net.Conn) {
	defer conn.Close()
	d := json.NewDecoder(conn)
	var hello report
	if d.Decode(&hello) != nil || hello.Event != "hello" {
		return
	}
	l := &life{job: j, rank: hello.Rank, pid: hello.Pid, number: hello.Life, conn: conn, says: make(chan report, 1024)}
	defer close(l.says)
	j.lives <- l
	for {
		var r report
		if d.Decode(&r) != nil {
			return
		}
		l.says <- r
	}
}

// nextLife waits for a process that the launcher has started.
func (j *job) nextLife() *life {
	j.t.Helper()
	select {
	case l := <-j.lives:
		j.ranks[l.rank] = l
		return l
	case err := <-j.ended:
		j.t.Fatalf("the job ended: %v", err)
	case <-j.ctx.Done():
		j.t.Fatal("a rank did not start")
	}
	return nil
}

// end waits until all processes have ended and returns the launcher's verdict.
func (j *job) end() error {
	j.t.Helper()
	select {
	case err := <-j.ended:
		return err
	case <-j.ctx.Done():
		j.t.Fatal("the job does not end")
	}
	return nil
}

// next returns what the process says next, or false once it has ended.
func (l *life) next() (report, bool) {
	l.job.t.Helper()
	select {
	case r, ok := <-l.says:
		return r, ok
	case <-l.job.ctx.Done():
		l.job.t.Fatalf("rank %d has nothing to say", l.rank)
	}
	return report{}, false
}

// expect waits for the next thing that the process says, which must be that event.
func (l *life) expect(event string) report {
	l.job.t.Helper()
	r, ok := l.next()
	switch {
	case !ok:
		l.job.t.Fatalf("rank %d ended, want it to say %q", l.rank, event)
	case r.Event != event:
		l.job.t.Fatalf("rank %d says %q (%s), want %q", l.rank, r.Event, r, event)
	case r.Wrong != "":
		l.job.t.Fatalf("rank %d: %s: %s", l.rank, event, r.Wrong)
	}
	return r
}

func (r report) String() string {
	text, _ := json.Marshal(r)
	return string(text)
}

func (l *life) tell(do string, n int) {
	l.job.t.Helper()
	if err := json.NewEncoder(l.conn).Encode(order{do, n}); err != nil {
		l.job.t.Fatalf("rank %d cannot be told %q: %v", l.rank, do, err)
	}
}

// signal returns when it was sent.
func (l *life) signal(s syscall.Signal) (at int64) {
	l.job.t.Helper()
	at = now()
	if err := syscall.Kill(l.pid, s); err != nil {
		l.job.t.Fatalf("rank %d: signal %v: %v", l.rank, s, err)
	}
	return at
}

// expectAll waits for the same event from several ranks.
func (j *job) expectAll(ranks []int, event string) []report {
	j.t.Helper()
	var all []report
	for _, r := range ranks {
		all = append(all, j.ranks[r].expect(event))
	}
	return all
}

// finish ends the work of ranks that are well, and checks that nothing is left of it.
func (j *job) finish(ranks []int) {
	j.t.Helper()
	for _, r := range ranks {
		j.ranks[r].tell("finish", 0)
	}
	j.expectDone(ranks)
}

func (j *job) expectDone(ranks []int) {
	j.t.Helper()
	for _, r := range j.expectAll(ranks, "done") {
		if !r.Now.within(r.Calm) {
			j.t.Errorf("rank %d had %d goroutines and %d descriptors before it joined, %d and %d after it closed",
				r.Rank, r.Calm.Goroutines, r.Calm.Descriptors, r.Now.Goroutines, r.Now.Descriptors)
		}
		if r.Failure != nil {
			j.t.Errorf("rank %d: Close: %s", r.Rank, r.Failure.Text)
		}
	}
}

// upTo lists the ranks of a world but for some.
func upTo(n int, without ...int) []int {
	var ranks []int
next:
	for r := range n {
		for _, w := range without {
			if r == w {
				continue next
			}
		}
		ranks = append(ranks, r)
	}
	return ranks
}

// outputLines is what the ranks write, which is nothing unless something is wrong.
type outputLines struct {
	mu   sync.Mutex
	text []byte
}

func (o *outputLines) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, p...)
	return len(p), nil
}

func (o *outputLines) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.text)
}
