package launch

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccl/goccl/transport/tcp"
)

// The test binary is its own rank program: with this variable set it does what it says and nothing else.
const roleEnv = "GOCCL_TEST_LAUNCH_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		roles[role]()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var roles = map[string]func(){
	"env": func() {
		fmt.Println(os.Getenv("GOCCL_RANK"), os.Getenv("GOCCL_WORLD_SIZE"), os.Getenv("GOCCL_RUN_ID"), os.Getenv("GOCCL_COORDINATOR"), os.Args[1:])
	},
	"secret": func() { fmt.Printf("%q\n", os.Getenv("GOCCL_SECRET")) },
	"lines": func() {
		for i := range 200 {
			fmt.Printf("line %d %s\n", i, strings.Repeat("x", i*97))
		}
		fmt.Fprintln(os.Stderr, "to stderr")
		fmt.Print("no newline at the end")
	},
	"fail2": func() {
		if os.Getenv("GOCCL_RANK") == "2" {
			os.Exit(7)
		}
		forever()
	},
	"silent": func() {},
	"late panic": func() {
		if os.Getenv("GOCCL_RANK") == "1" {
			defer time.Sleep(100 * time.Millisecond) // as a deferred Close may take
			panic("boom")
		}
		os.Exit(1)
	},
	"partial": func() {
		fmt.Print("begun ")
		_, _ = io.Copy(io.Discard, connected()) // until the test has seen it
		fmt.Println("ended")
	},
	"wait": func() { _, _ = io.Copy(io.Discard, connected()) },
}

// connected dials the test, so that it can see what becomes of this process.
func connected() net.Conn {
	conn, err := net.Dial("tcp", os.Getenv("GOCCL_TEST_ADDR"))
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(conn, "%s %d\n", os.Getenv("GOCCL_RANK"), os.Getpid())
	return conn
}

func config(role string, size int, env ...string) Config {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return Config{Size: size, Program: exe, Env: append(os.Environ(), append(env, roleEnv+"="+role)...), Stdout: io.Discard, Stderr: io.Discard}
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestEnvironment(t *testing.T) {
	var out bytes.Buffer
	cfg := config("env", 3, "GOCCL_RANK=99", "GOCCL_WORLD_SIZE=100")
	cfg.Stdout, cfg.Args, cfg.Prefix = &out, []string{"a", "b c"}, true
	if err := Run(testContext(t), cfg); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for line := range strings.Lines(out.String()) {
		mark, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		got[mark] = rest
	}
	for r := range 3 {
		f := strings.SplitN(got[fmt.Sprintf("[%d]", r)], " ", 5)
		if len(f) != 5 || f[0] != fmt.Sprint(r) || f[1] != "3" || f[4] != "[a b c]" {
			t.Fatalf("rank %d sees %q", r, f)
		}
		first := strings.SplitN(got["[0]"], " ", 5)
		if f[2] != first[2] || len(f[2]) < 16 {
			t.Errorf("run id %q of rank %d, %q of rank 0", f[2], r, first[2])
		}
		if host, port, err := net.SplitHostPort(f[3]); err != nil || !net.ParseIP(host).IsLoopback() || port == "0" || f[3] != first[3] {
			t.Errorf("coordinator %q of rank %d, %q of rank 0", f[3], r, first[3])
		}
	}
}

func TestGivenCoordinatorAndRunID(t *testing.T) {
	var out bytes.Buffer
	cfg := config("env", 2)
	cfg.Stdout, cfg.Coordinator, cfg.RunID = &out, "localhost:4711", "mine"
	if err := Run(testContext(t), cfg); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), " 2 mine localhost:4711 []\n"); n != 2 {
		t.Errorf("output %q", out.String())
	}
}

// TestSecret: ranks that only this process meets get a fresh secret, the same for all and another each time.
func TestSecret(t *testing.T) {
	secrets := func(edit func(*Config), env ...string) []string {
		var out bytes.Buffer
		cfg := config("secret", 2, env...)
		cfg.Stdout = &out
		edit(&cfg)
		if err := Run(testContext(t), cfg); err != nil {
			t.Fatal(err)
		}
		return strings.Fields(out.String())
	}
	none := func(*Config) {}
	first, second := secrets(none), secrets(none)
	if len(first) != 2 || first[0] != first[1] || len(first[0]) < 20 || first[0] == second[0] {
		t.Errorf("fresh secrets: %v, then %v", first, second)
	}
	for _, c := range []struct {
		what, want string
		got        []string
	}{
		{"given", `"given"`, secrets(none, "GOCCL_SECRET=given")},
		{"a file, which they read themselves", `""`, secrets(none, "GOCCL_SECRET_FILE=launch_test.go")},
		{"a coordinator of others", `""`, secrets(func(cfg *Config) { cfg.Coordinator = "localhost:4711" })},
	} {
		if len(c.got) != 2 || c.got[0] != c.want || c.got[1] != c.want {
			t.Errorf("%s: the ranks have %v, want %s", c.what, c.got, c.want)
		}
	}
	err := Run(testContext(t), config("secret", 2, "GOCCL_SECRET_FILE=/nonexistent/secret"))
	if err == nil || !strings.Contains(err.Error(), "GOCCL_SECRET_FILE: open /nonexistent/secret") {
		t.Errorf("an unreadable secret: %v", err)
	}
}

// TestStrangersCannotJoin: another user of the machine who knows run id and address is not let in.
func TestStrangersCannotJoin(t *testing.T) {
	cfg := config("env", 2)
	if err := cfg.complete(); err != nil {
		t.Fatal(err)
	}
	stop, err := cfg.meet(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	_, err = tcp.Connect(testContext(t), tcp.Config{Rank: 1, Size: 2, Coordinator: cfg.Coordinator, RunID: cfg.RunID})
	if err == nil || !strings.Contains(err.Error(), "join at "+cfg.Coordinator+": refused: rank 1 has no secret, the coordinator asks for one") {
		t.Errorf("%v", err)
	}
}

func TestOutput(t *testing.T) {
	var out, errs bytes.Buffer
	cfg := config("lines", 4)
	cfg.Stdout, cfg.Stderr, cfg.Prefix = &out, &errs, true
	if err := Run(testContext(t), cfg); err != nil {
		t.Fatal(err)
	}
	next := map[string]int{}
	for line := range strings.Lines(out.String()) {
		mark, rest, _ := strings.Cut(line, " ")
		i := next[mark]
		want := "no newline at the end\n"
		if i < 200 {
			want = fmt.Sprintf("line %d %s\n", i, strings.Repeat("x", i*97))
		}
		if rest != want {
			t.Fatalf("line %d of %s is %.40q, want %.40q", i, mark, rest, want)
		}
		next[mark]++
	}
	for r := range 4 {
		if n := next[fmt.Sprintf("[%d]", r)]; n != 201 {
			t.Errorf("%d lines of rank %d, want 201", n, r)
		}
		if want := fmt.Sprintf("[%d] to stderr\n", r); strings.Count(errs.String(), want) != 1 {
			t.Errorf("standard error is %q, lacks %q", errs.String(), want)
		}
	}
}

// A line that is not finished shows soon, and is continued without a second mark.
func TestPartialLine(t *testing.T) {
	ln := listen(t)
	seen := &watchWriter{want: "[0] begun ", seen: make(chan struct{})}
	cfg := config("partial", 1, "GOCCL_TEST_ADDR="+ln.Addr().String())
	cfg.Stdout, cfg.Prefix = seen, true
	result := make(chan error, 1)
	go func() { result <- Run(testContext(t), cfg) }()
	conn := accept(t, ln)
	select {
	case <-seen.seen:
	case <-testContext(t).Done():
		t.Fatal("the unfinished line never showed")
	}
	conn.Close()
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	if got := seen.String(); got != "[0] begun ended\n" {
		t.Errorf("output %q", got)
	}
}

func TestMergeKeepsLinesApart(t *testing.T) {
	var out bytes.Buffer
	l := &lines{w: &out, prefix: true}
	l.write(0, []byte("a\nb"))
	l.write(1, []byte("c"))
	l.write(1, []byte("d\ne\n"))
	l.write(0, []byte("f"))
	l.say("launcher\n")
	l.write(2, []byte("g"))
	l.finish(1)
	l.finish(2)
	want := "[0] a\n[0] b\n[1] cd\n[1] e\n[0] f\nlauncher\n[2] g\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestFailedRankEndsTheRest(t *testing.T) {
	var errs bytes.Buffer
	cfg := config("fail2", 4)
	cfg.Name, cfg.Stderr = "prog", &errs
	err := Run(testContext(t), cfg)
	var rank *RankError
	if !errors.As(err, &rank) || rank.Rank != 2 || rank.Code != 7 || ExitCode(err) != 7 {
		t.Fatalf("got %v", err)
	}
	if s := errs.String(); !strings.HasPrefix(s, "prog: rank 2 (pid ") || !strings.Contains(s, "exited with code 7") || !strings.Contains(s, "; ending the other ") {
		t.Errorf("said %q", s)
	}
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancelCause(testContext(t))
	ln := listen(t)
	cfg := config("wait", 3, "GOCCL_TEST_ADDR="+ln.Addr().String())
	go func() {
		for range 3 {
			accept(t, ln)
		}
		cancel(io.ErrClosedPipe)
	}()
	if err := Run(ctx, cfg); !errors.Is(err, io.ErrClosedPipe) || ExitCode(err) != 1 {
		t.Errorf("got %v, exit code %d", err, ExitCode(err))
	}
}

// An end that comes while ranks are being started does not wait for the last of them.
func TestEndWhileStarting(t *testing.T) {
	const size = tcp.MaxSize
	cfg := config("fail2", size)
	if err := Run(testContext(t), cfg); ExitCode(err) != 7 {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(testContext(t))
	cancel()
	if err := Run(ctx, config("silent", size)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestCannotStart(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		cfg  Config
		code int
	}{
		{"too many ranks", Config{Size: tcp.MaxSize + 1, Program: os.Args[0]}, 1},
		{"no such program", Config{Size: 2, Program: "goccl-no-such-program"}, 127},
		{"no such path", Config{Size: 2, Program: plain + "-not"}, 127},
		{"not executable", Config{Size: 2, Program: plain}, 126},
		{"no rank", Config{Size: 0, Program: "goccl"}, 1},
	} {
		if err := Run(testContext(t), c.cfg); err == nil || ExitCode(err) != c.code {
			t.Errorf("%s: %v, exit code %d, want %d", c.name, err, ExitCode(err), c.code)
		}
	}
	if code := ExitCode(exec.ErrNotFound); code != 127 {
		t.Error(code)
	}
}

func TestStartsRanks(t *testing.T) {
	for _, name := range ranks {
		t.Setenv(name, "")
	}
	if !StartsRanks(false) || !StartsRanks(true) {
		t.Error("nobody made this process a rank, yet it does not start its own")
	}
	t.Setenv("SLURM_PROCID", "0")
	if StartsRanks(false) || !StartsRanks(true) {
		t.Error("in a batch job a program is a rank unless asked for ranks")
	}
	t.Setenv("GOCCL_RANK", "0")
	if StartsRanks(false) || StartsRanks(true) {
		t.Error("a rank of ours never starts ranks")
	}
}

func listen(t *testing.T) net.Listener {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

type rankConn struct {
	net.Conn
	rank, pid int
	r         *bufio.Reader
}

// accept waits for a rank that calls connected.
func accept(t *testing.T, ln net.Listener) *rankConn {
	_ = ln.(*net.TCPListener).SetDeadline(time.Now().Add(time.Minute))
	conn, err := ln.Accept()
	if err != nil {
		t.Error(err)
		return nil
	}
	t.Cleanup(func() { conn.Close() })
	c := &rankConn{Conn: conn, r: bufio.NewReader(conn)}
	if _, err := fmt.Fscanf(c.r, "%d %d\n", &c.rank, &c.pid); err != nil {
		t.Error(err)
	}
	return c
}

// ended waits until the process at the other end is gone.
func (c *rankConn) ended(t *testing.T) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := c.r.ReadByte(); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("process %d of rank %d is still there", c.pid, c.rank)
	}
}

type watchWriter struct {
	mu   sync.Mutex
	got  bytes.Buffer
	want string
	seen chan struct{}
	done bool
}

func (w *watchWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.got.Write(p)
	if !w.done && strings.Contains(w.got.String(), w.want) {
		w.done = true
		close(w.seen)
	}
	return len(p), nil
}

func (w *watchWriter) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.got.String()
}

// forever sleeps until the process is ended. An empty select would be a deadlock to the runtime of a program without cgo.
func forever() {
	for {
		time.Sleep(time.Hour)
	}
}

// A rank that takes a moment to die of its own failure, while another one that only suffers from it exits at once, is still
// heard.
func TestSlowFailureIsHeard(t *testing.T) {
	cfg := config("late panic", 3)
	var out, errs bytes.Buffer
	cfg.Name, cfg.Stdout, cfg.Stderr = "test", &out, &errs
	err := Run(testContext(t), cfg)
	var rank *RankError
	if !errors.As(err, &rank) || rank.Rank == 1 || ExitCode(err) != 1 {
		t.Errorf("got %v, want the exit of the first to go", err)
	}
	for _, want := range []string{"boom", "rank 1", "exited with code 2", "too"} {
		if !strings.Contains(errs.String(), want) {
			t.Errorf("no %q in what was said:\n%s", want, errs.String())
		}
	}
}
