package goccl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goccl/goccl/dtype"
	"github.com/goccl/goccl/internal/trace"
	"github.com/goccl/goccl/ring"
)

// dumpOf is what WriteTrace writes of a group.
func dumpOf(t *testing.T, g *ProcessGroup) *trace.Dump {
	t.Helper()
	var b bytes.Buffer
	if err := g.WriteTrace(&b); err != nil {
		t.Fatal(err)
	}
	if strings.Count(b.String(), "\n") != 1 {
		t.Errorf("not one line: %q", b.String())
	}
	d, err := trace.Read(&b, "dump")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// dumpsIn reads the files of a directory.
func dumpsIn(t *testing.T, dir string) map[string]*trace.Dump {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	dumps := map[string]*trace.Dump{}
	for _, name := range names {
		if dumps[filepath.Base(name)], err = trace.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	return dumps
}

// merged is what trace-merge says of the files in a directory, with durations and addresses taken out.
func merged(t *testing.T, dir string) string {
	t.Helper()
	var all []*trace.Dump
	for _, d := range dumpsIn(t, dir) {
		all = append(all, d)
	}
	said, _, _ := strings.Cut(trace.Merge(all), "who entered last")
	said = regexp.MustCompile(`for [^,)\n]*`).ReplaceAllString(said, "for T")
	said = regexp.MustCompile(`rank (\d) \([^);]*:\d+\)`).ReplaceAllString(said, "rank $1")
	said = regexp.MustCompile(`rank (\d) \([^);]*:\d+; `).ReplaceAllString(said, "rank $1 (")
	return regexp.MustCompile(`(?m)^the dumps are not of one moment.*\n`).ReplaceAllString(said, "")
}

// Every kind of call is recorded in the order in which it ran, with what the ranks agreed on.
func TestTraceHasTheCalls(t *testing.T) {
	overWorlds(t, func(t *testing.T, w world) {
		gs := groups(t, w, 2, Config{})
		before := time.Now()
		for r, err := range each(gs, func(g *ProcessGroup) error {
			ctx := t.Context()
			a := AllReduceAsync(ctx, g, make([]float32, 1000), Max)
			b := BroadcastAsync(ctx, g, make([]int64, 3), 1)
			sub, err := g.Split(ctx, 0, 0)
			if err != nil {
				return err
			}
			return errors.Join(a.Wait(ctx), b.Wait(ctx), sub.Close(), g.Barrier(ctx),
				AllGatherV(ctx, g, make([]float64, 3), make([]float64, 1+g.Rank()), []int{1, 2}))
		}) {
			if err != nil {
				t.Fatalf("rank %d: %v", r, err)
			}
		}
		for r, g := range gs {
			d := dumpOf(t, g)
			var got []string
			at := before.Round(0).Add(-time.Millisecond)
			for i, c := range d.Calls {
				got = append(got, c.What.String())
				if c.Start.Before(at) || c.Micros < 0 || c.Running || c.Error != "" || c.Seq != uint64(i+1) {
					t.Errorf("rank %d, call %d: %+v", r, i, c)
				}
				at = c.Start
			}
			want := []string{"all-reduce f32 x 1000 max", "broadcast i64 x 3 from root 1", "all-gather i64 x 4", "barrier",
				"all-gather f64 x 3 (counts "}
			for i, s := range want {
				if len(got) != len(want) || !strings.HasPrefix(got[i], s) {
					t.Errorf("rank %d: got %q, want %q", r, got, want)
					break
				}
			}
			if d.Calls[0].Bytes != 4000 || d.Rank != r || d.Size != 2 || d.Made != 5 || d.Waiting != 0 || d.Cause != nil || d.PID != os.Getpid() {
				t.Errorf("rank %d: %+v", r, d)
			}
			if d.Time.Before(at) || time.Since(d.Time) > time.Minute {
				t.Errorf("rank %d: written at %v", r, d.Time)
			}
		}
	})
}

// A dump's words for a call are those of the errors.
func TestTraceWords(t *testing.T) {
	buf := dtype.Of(make([]float32, 6))
	for _, c := range []ring.Call{
		{Op: ring.OpAllReduce, Dst: buf, Src: buf, Reduce: Mean},
		{Op: ring.OpReduceScatter, Dst: buf, Src: buf, Reduce: Sum, RecvCounts: []int{1, 5}},
		{Op: ring.OpAllGather, Dst: buf, Src: buf}, {Op: ring.OpAllGather, Dst: buf, Src: buf, RecvCounts: []int{6, 0}},
		{Op: ring.OpBroadcast, Dst: buf, Root: 1}, {Op: ring.OpReduce, Dst: buf, Src: buf, Reduce: Min, Root: 1},
		{Op: ring.OpGather, Dst: buf, Src: buf, Root: 1}, {Op: ring.OpScatter, Dst: buf, Src: buf},
		{Op: ring.OpAllToAll, Dst: buf, Src: buf}, {Op: ring.OpBarrier},
	} {
		tag := ring.Tag(&c, 0, 7, AlgorithmDirect)
		if got, want := traceWhat(tag.Call, tag.Count).String()+", #7", ring.Describe(tag); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// The ring keeps the last calls, and what waits for its turn is counted.
func TestTraceWindow(t *testing.T) {
	gs := groups(t, memWorld, 2, Config{})
	const calls = recorded + 44
	for r, err := range each(gs, func(g *ProcessGroup) error {
		for range calls {
			if err := g.Barrier(t.Context()); err != nil {
				return err
			}
		}
		return nil
	}) {
		if err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
	}
	var works []*Work
	for range 4 {
		works = append(works, AllReduceAsync(t.Context(), gs[0], []int8{1}, Sum))
	}
	d := dumpOf(t, gs[0])
	for d.Made == calls { // the first has not begun yet
		d = dumpOf(t, gs[0])
	}
	first, last := d.Calls[0], d.Calls[len(d.Calls)-1]
	if len(d.Calls) != recorded || first.Seq != 46 || last.Seq != calls+1 || !last.Running || last.Op != "all-reduce" || d.Waiting != 3 {
		t.Errorf("%d calls, from %+v to %+v, %d waiting", len(d.Calls), first, last, d.Waiting)
	}
	for range works {
		if err := AllReduce(t.Context(), gs[1], []int8{1}, Sum); err != nil {
			t.Fatal(err)
		}
	}
	for _, w := range works {
		if err := w.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// inCall returns when a rank has begun its call with that number.
func inCall(g *ProcessGroup, seq uint64) {
	for made := uint64(0); made < seq; time.Sleep(time.Millisecond) {
		g.mu.Lock()
		made = g.recorder.made
		g.mu.Unlock()
	}
}

// What the ranks write when their group breaks tells, side by side, what happened.
func TestTraceOfFailures(t *testing.T) {
	warm := func(ctx context.Context, g *ProcessGroup) error {
		return errors.Join(Broadcast(ctx, g, make([]float32, 8), 1), AllReduce(ctx, g, make([]int64, 8), Max))
	}
	for name, c := range map[string]struct {
		call, other func(ctx context.Context, g *ProcessGroup) error // of most ranks, of rank 2
		want        string
	}{
		"mismatch": {
			func(ctx context.Context, g *ProcessGroup) error { return AllReduce(ctx, g, make([]float32, 9), Sum) },
			func(ctx context.Context, g *ProcessGroup) error { return g.Barrier(ctx) }, `
4 ranks, run r/1, epoch 0: calls #1–#2 agree
#3  ranks 0, 1, 3: all-reduce f32 x 9 sum, doubling, in it for T
    rank 2: barrier, doubling, in it for T
`},
		"stall": {
			func(ctx context.Context, g *ProcessGroup) error {
				ctx, cancel := context.WithTimeout(ctx, 700*time.Millisecond)
				defer cancel()
				return AllReduce(ctx, g, make([]float32, 9), Sum)
			},
			func(ctx context.Context, g *ProcessGroup) error { return verdict(g) }, `
4 ranks, run r/1, epoch 0: calls #1–#2 agree
#3  ranks 0, 1, 3: all-reduce f32 x 9 sum, doubling, in it for T
    rank 2: completed #2 all-reduce i64 x 8 max, doubling, has not called #3 (idle for T)
first cause, by all: all-reduce #3 stalled, missing: rank 2 (all-reduce i64 x 8 max, doubling, #2 completed): context deadline exceeded
`},
		"kill": {
			func(ctx context.Context, g *ProcessGroup) error { return AllReduce(ctx, g, make([]float32, 9), Sum) },
			func(ctx context.Context, g *ProcessGroup) error {
				g.cfg.TraceDir = "" // a killed process writes nothing
				return g.t.Close()
			}, `
4 ranks (1 without a dump), run r/1, epoch 0: calls #1–#2 agree
#3  ranks 0, 1, 3: all-reduce f32 x 9 sum, doubling, in it for T
    rank 2: no dump (goccl-r_1~896f27ed-rank2-epoch0.json); the others know: connection ended, KNOWN
first cause, by all: rank 2 in all-reduce #3: EOF
`},
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(t *testing.T, w world) {
				dir := t.TempDir()
				gs := groups(t, w, 4, Config{TraceDir: dir, runID: "r/1"})
				each(gs, func(g *ProcessGroup) error { return warm(t.Context(), g) })
				each(gs, func(g *ProcessGroup) error {
					if g.Rank() == 2 {
						for _, r := range []int{0, 1, 3} {
							inCall(gs[r], 3)
						}
						return c.other(t.Context(), g)
					}
					return c.call(t.Context(), g)
				})
				each(gs, func(g *ProcessGroup) error { <-g.life.Done(); return g.Close() })
				said := merged(t, dir)
				said = regexp.MustCompile(`connection ended, .*`).ReplaceAllString(said, "connection ended, KNOWN")
				if name == "mismatch" { // who met whom first is a matter of luck
					said, _, _ = strings.Cut(said, "first cause")
				}
				if said != strings.TrimPrefix(c.want, "\n") {
					t.Errorf("got\n%s\nwant%s", said, c.want)
				}
			})
		})
	}
}

// A process that exits as soon as its call has failed has written its trace before.
func TestTraceOfProcesses(t *testing.T) {
	for name, want := range map[string]string{
		"mismatch": "\n    rank 3: all-reduce f32 x 101 sum, doubling, in it for T\n", // another may hear of it before its own call
		"stall":    "#1  ranks 0, 2, 3: barrier, doubling, in it for T\n    rank 1: has made no call\n",
		"abort":    "first cause, by all: rank 1 aborted: enough",
		"kill":     "rank 2: no dump (goccl-rank2-epoch0.json); the others know: connection ended, ",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("GOCCL_TRACE_DIR", dir)
			processes(t, name, 4)
			if said := merged(t, dir); !strings.Contains(said, want) {
				t.Errorf("merged:\n%s", said)
			}
			for name, d := range dumpsIn(t, dir) {
				if d.Cause == nil || name != fmt.Sprintf("goccl-rank%d-epoch0.json", d.Rank) {
					t.Errorf("%s: %+v", name, d)
				}
			}
		})
	}
}

// logged collects log records as the JSON handler writes them.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

type logRecord struct {
	Level, Msg, Cause, File, Error string
	Rank                           int
	Trace                          *trace.Dump
}

func (l *logged) records(t *testing.T) []logRecord {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []logRecord
	for d := json.NewDecoder(bytes.NewReader(l.b.Bytes())); ; {
		var r logRecord
		if err := d.Decode(&r); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
}

// A failure is one warning with the cause and the last calls, which is out before the failing call returns; a directory that
// cannot be written to is another, and harms nothing.
func TestFailureIsLogged(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(bad, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"", t.TempDir(), bad} {
		var log logged
		gs := groups(t, memWorld, 2, Config{Logger: slog.New(slog.NewJSONHandler(&log, nil)), TraceDir: dir})
		each(gs, func(g *ProcessGroup) error {
			for range 40 {
				if err := g.Barrier(t.Context()); err != nil {
					return err
				}
			}
			return nil
		})
		gs[1].cfg.TraceDir = ""
		errs := each(gs, func(g *ProcessGroup) error { return AllReduce(t.Context(), g, make([]int32, 3+g.Rank()), Sum) })
		warned := map[int]int{}
		for _, r := range log.records(t) {
			if r.Error != "" {
				if r.Msg != "goccl: trace not written" || r.Level != "WARN" || r.Rank != 0 || dir != bad {
					t.Errorf("%q: logged %+v", dir, r)
				}
				continue
			}
			warned[r.Rank]++
			if r.Msg != "goccl: group is broken" || r.Level != "WARN" || r.Cause != errs[r.Rank].Error() {
				t.Errorf("%q: logged %+v, want %v", dir, r, errs[r.Rank])
			}
			if n := len(r.Trace.Calls); n != loggedCalls || r.Trace.Calls[n-1].Seq != 41 || r.Trace.Calls[n-1].Op != "all-reduce" {
				t.Errorf("%q: the record has calls %+v", dir, r.Trace.Calls)
			}
			if want := r.Rank == 0 && dir != "" && dir != bad; want != (r.File != "") {
				t.Errorf("%q: rank %d, file %q", dir, r.Rank, r.File)
			} else if want {
				if d, err := trace.ReadFile(r.File); err != nil || len(d.Calls) != 41 {
					t.Errorf("%v, %+v", err, d)
				}
			}
		}
		if len(warned) != 2 || warned[0] != 1 || warned[1] != 1 {
			t.Errorf("%q: warnings by rank %v", dir, warned)
		}
		each(gs, func(g *ProcessGroup) error { return g.Close() })
	}
}

// A cause is told by its kind and its culprit.
func TestTraceCause(t *testing.T) {
	for kind, c := range map[string]struct {
		err     error
		rank    int
		missing int
	}{
		"peer":     {&PeerError{Rank: 3, Err: io.EOF}, 3, 0},
		"mismatch": {&MismatchError{Rank: 2}, 2, 0},
		"stall":    {&StallError{Missing: []int{4, 5}, Err: &timeoutError{time.Second}}, 1, 2},
		"abort":    {&localAbort{AbortError{1, "no"}, io.EOF}, 1, 0},
		"closed":   {broken(net.ErrClosed), 1, 0},
	} {
		got := traceCause(c.err, 1)
		if got.Kind != kind || got.Rank != c.rank || len(got.Missing) != c.missing || got.Text != c.err.Error() {
			t.Errorf("%v: %+v", c.err, got)
		}
	}
	if got := traceCause(errors.New("goccl: barrier #1 cancelled"), 7); got.Kind != "peer" || got.Rank != 7 {
		t.Errorf("a cause of our own: %+v", got)
	}
}

// A group that works, or was closed, tells too; and Close leaves no file.
func TestTraceAfterClose(t *testing.T) {
	dir := t.TempDir()
	gs := groups(t, memWorld, 2, Config{TraceDir: dir})
	for r, err := range each(gs, func(g *ProcessGroup) error {
		return errors.Join(g.Barrier(t.Context()), g.Close())
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	if d := dumpOf(t, gs[1]); d.Made != 1 || d.Cause != nil || len(d.Peers) != 1 {
		t.Errorf("%+v", d)
	}
	if files := dumpsIn(t, dir); len(files) > 0 {
		t.Errorf("files %v", files)
	}
	if err := gs[0].WriteTrace(fails{}); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("to a writer that fails: %v", err)
	}
}

type fails struct{}

func (fails) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// The run id of Join is in the trace and its name; who aborts and exits has written it.
func TestTraceOfAbort(t *testing.T) {
	dir := t.TempDir()
	g, err := Join(t.Context(), JoinConfig{Size: 1, RunID: "r 9", Config: Config{TraceDir: dir}})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	g.Abort(errors.New("enough"))
	d := dumpsIn(t, dir)[trace.FileName("r 9", 0, "", 0)]
	if d == nil || d.RunID != "r 9" || d.Cause.Kind != "abort" || len(d.Calls) != 0 {
		t.Errorf("got %+v", d)
	}
}

// hung is a log handler that takes its time.
type hung struct{ release chan struct{} }

func (h hung) Enabled(context.Context, slog.Level) bool  { return true }
func (h hung) Handle(context.Context, slog.Record) error { <-h.release; return nil }
func (h hung) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h hung) WithGroup(string) slog.Handler             { return h }

// A logger or a disk that hangs holds nobody up for long.
func TestReportThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := hung{make(chan struct{})}
		gs := groups(t, memWorld, 2, Config{Logger: slog.New(h)})
		begin := time.Now()
		for r, err := range each(gs, func(g *ProcessGroup) error { return AllReduce(t.Context(), g, make([]int8, g.Rank()), Sum) }) {
			if !errors.As(err, new(*MismatchError)) {
				t.Errorf("rank %d: %v", r, err)
			}
		}
		if took := time.Since(begin); took < reportBound || took > reportBound+tellBound {
			t.Errorf("the calls took %v", took)
		}
		begin = time.Now()
		each(gs, func(g *ProcessGroup) error { return g.Close() })
		if took := time.Since(begin); took > 2*flushBound {
			t.Errorf("Close took %v", took)
		}
		close(h.release)
	})
}

// Where the system has no signal for it, TraceOnSignal says so.
func TestTraceOnNoSignal(t *testing.T) {
	saved := traceSignals
	defer func() { traceSignals = saved }()
	traceSignals = nil
	var log logged
	gs := groups(t, memWorld, 1, Config{Logger: slog.New(slog.NewJSONHandler(&log, nil))})
	gs[0].TraceOnSignal()()
	if r := log.records(t); len(r) != 1 || r[0].Level != "WARN" || !strings.Contains(r[0].Msg, "no SIGUSR1") {
		t.Errorf("logged %+v", r)
	}
}

// The survivors' next group writes traces of its own, of the next epoch, and the old group's stay.
func TestTraceOfTheNextEpoch(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w world) {
		dir := t.TempDir()
		gs := groups(t, w, 3, Config{TraceDir: dir, runID: "x"})
		gs[1].cfg.TraceDir = ""
		next := make([]*ProcessGroup, 2)
		for r, err := range each(gs, func(g *ProcessGroup) error {
			if g.Rank() == 1 {
				return g.t.Close()
			}
			if err := g.Barrier(t.Context()); err == nil {
				return errors.New("no error")
			}
			n, err := g.Shrink(t.Context())
			if err == nil {
				next[g.Rank()/2] = n
				if AllReduce(t.Context(), n, make([]int8, n.Rank()), Sum) == nil {
					err = errors.New("no mismatch")
				}
			}
			return err
		}) {
			if err != nil {
				t.Fatalf("rank %d: %v", r, err)
			}
		}
		each(next, func(g *ProcessGroup) error { return g.Close() })
		var epochs [2]int
		for name, d := range dumpsIn(t, dir) {
			if !strings.HasPrefix(name, fmt.Sprintf("goccl-x-rank%d-epoch%d", d.Rank, d.Epoch)) || d.Epoch > 1 ||
				d.Epoch == 1 && !slices.Equal(d.Parents, []int{0, 2}) || d.Cause.Kind != [...]string{"peer", "mismatch"}[d.Epoch] {
				t.Errorf("%s: %+v, %+v", name, d, d.Cause)
			}
			epochs[d.Epoch]++
		}
		if epochs != [2]int{2, 2} {
			t.Errorf("traces by epoch: %v", epochs)
		}
	})
}
