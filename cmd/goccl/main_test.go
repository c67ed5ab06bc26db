package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccl/goccl"
	"github.com/goccl/goccl/internal/testca"
	"github.com/goccl/goccl/transport/mem"
	"github.com/goccl/goccl/transport/tcp"
)

// The test binary is also the program that the tests launch.
const roleEnv = "GOCCL_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "":
		os.Exit(m.Run())
	case "sum":
		sumMain()
	case "fail":
		if os.Getenv("GOCCL_RANK") == "1" {
			fmt.Println("giving up")
			os.Exit(9)
		}
		forever()
	case "fail once":
		if fmt.Println("life", os.Getenv("GOCCL_RESTART")); os.Getenv("GOCCL_RANK") == "1" && os.Getenv("GOCCL_RESTART") == "" {
			os.Exit(9)
		}
		os.Exit(0)
	}
}

// sumMain is a rank that joins the others twice and adds up.
func sumMain() {
	for range 2 {
		if err := sumRanks(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	fmt.Println("args", os.Args[1:])
}

func sumRanks() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	g, err := goccl.Join(ctx, goccl.JoinConfig{})
	if err != nil {
		return err
	}
	defer g.Close()
	buf := []int64{int64(g.Rank()) + 1}
	if err := goccl.AllReduce(ctx, g, buf, goccl.Sum); err != nil {
		return err
	}
	fmt.Println("sum", buf[0])
	return g.Barrier(ctx)
}

func TestLaunch(t *testing.T) {
	t.Setenv(roleEnv, "sum")
	var out, errs bytes.Buffer
	if code := run([]string{"launch", "-n", "3", "--", os.Args[0], "-x", "y"}, &out, &errs); code != 0 {
		t.Fatalf("exit code %d, output %s%s", code, out.String(), errs.String())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	slices.Sort(lines)
	var want []string
	for r := range 3 {
		want = append(want, fmt.Sprintf("[%d] args [-x y]", r), fmt.Sprintf("[%d] sum 6", r), fmt.Sprintf("[%d] sum 6", r))
	}
	if !slices.Equal(lines, want) {
		t.Errorf("got %q, want %q", lines, want)
	}
}

func TestLaunchOneRank(t *testing.T) {
	t.Setenv(roleEnv, "sum")
	var out bytes.Buffer
	if code := run([]string{"launch", "-n", "1", os.Args[0]}, &out, io.Discard); code != 0 || !strings.Contains(out.String(), "[0] sum 1\n") {
		t.Errorf("exit code %d, output %s", code, out.String())
	}
}

func TestLaunchStartsAFailedRankAgain(t *testing.T) {
	t.Setenv(roleEnv, "fail once")
	for _, c := range []struct {
		flag, lives string
		code        int
	}{{"-restarts=1", "[0] life \n[1] life \n[1] life 1\n", 0}, {"-keep-going", "[0] life \n[1] life \n", 9}} {
		var out, errs bytes.Buffer
		code := run([]string{"launch", "-n", "2", c.flag, os.Args[0]}, &out, &errs)
		lines := strings.SplitAfter(out.String(), "\n")
		slices.Sort(lines)
		if lives := strings.Join(lines, ""); code != c.code || lives != c.lives || strings.Contains(errs.String(), "ending") {
			t.Errorf("%s: exit code %d, output %q, errors %q", c.flag, code, lives, errs.String())
		}
	}
}

func TestLaunchReturnsTheFailedRanksCode(t *testing.T) {
	t.Setenv(roleEnv, "fail")
	var out, errs bytes.Buffer
	if code := run([]string{"launch", "-n", "3", os.Args[0]}, &out, &errs); code != 9 {
		t.Errorf("exit code %d", code)
	}
	if out.String() != "[1] giving up\n" || !strings.HasPrefix(errs.String(), "goccl launch: rank 1 (pid ") {
		t.Errorf("output %q, errors %q", out.String(), errs.String())
	}
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		out  string // in what goes to the right stream
	}{
		{"", 2, "usage: goccl command"},
		{"help", 0, "usage: goccl command"},
		{"--help", 0, "usage: goccl command"},
		{"help launch", 0, "usage: goccl launch -n N"},
		{"launch -h", 0, "usage: goccl launch -n N"},
		{"help launch", 0, "GOCCL_RANK, GOCCL_WORLD_SIZE"},
		{"help launch", 0, "GOCCL_SECRET  "},
		{"launch --help", 0, "SIGUSR1"},
		{"launch -help", 0, "exit code"},
		{"help rendezvous", 0, "usage: goccl rendezvous -listen"},
		{"help rendezvous", 0, "GOCCL_COORDINATOR"},
		{"help trace-merge", 0, "first cause"},
		{"fly", 2, `unknown command "fly"`},
		{"help fly", 2, `unknown command "fly"`},
		{"version", 0, "goccl "},
		{"version 2", 2, `unexpected argument "2"`},
		{"launch true", 2, "-n is missing"},
		{"launch -n 0 true", 2, "-n 0: need at least one rank"},
		{"launch -n 2", 2, "no program to run"},
		{"launch -n x true", 2, "invalid value"},
		{"launch -n 2 -grace -1s true", 2, "-grace -1s"},
		{"launch -n 2 -restarts -1 true", 2, "-restarts -1"},
		{"launch -n 2 -coordinator nowhere true", 2, "-coordinator nowhere"},
		{"launch -n 2 -coordinator 127.0.0.1:1,nowhere true", 2, "want host:port, or several"},
		{"launch -n 1 -coordinator 127.0.0.1:1,127.0.0.1:2 true", 0, ""},
		{"launch -n 2 goccl-no-such-program", 127, "not found"},
		{"rendezvous -size 2", 2, "-listen is missing"},
		{"rendezvous -listen 127.0.0.1:0", 2, "-size 0"},
		{"rendezvous -listen 127.0.0.1:0 -size 2 -timeout 0s", 2, "-timeout 0s"},
		{"rendezvous -listen 127.0.0.1:0 -size 2 -cert main.go", 2, "-cert, -key and -ca go together"},
		{"rendezvous -listen 127.0.0.1:0 -size 2 -server-name x", 2, "-cert is missing"},
		{"rendezvous -listen 0.0.0.0:0 -size 2 -cert main.go -key main.go -ca main.go", 1, "goccl: TLS: main.go"},
		{"rendezvous -listen 127.0.0.1:0 -size 2 more", 2, `unexpected argument "more"`},
		{"rendezvous -listen 0.0.0.0:0 -size 2", 1, "give -secret-file, -cert, or -insecure"},
		{"rendezvous -listen 0.0.0.0:0 -size 2 -secret-file /nonexistent/s", 1, "-secret-file: open /nonexistent/s: no such file"},
		{"rendezvous -listen 0.0.0.0:0 -size 2 -timeout 20ms -secret-file main.go", 1, "missing"},
		{"help trace-merge", 0, "usage: goccl trace-merge file…"},
		{"trace-merge", 2, "no file to read"},
		{"trace-merge no-such-file", 1, "goccl trace-merge: no-such-file: "},
		{"rendezvous -listen 127.0.0.1:0 -size 2 -timeout 20ms", 1, "missing"},
	} {
		var out, errs bytes.Buffer
		code := run(strings.Fields(c.args), &out, &errs)
		right := out.String()
		if c.code != 0 {
			right = errs.String()
		}
		if code != c.code || !strings.Contains(right, c.out) {
			t.Errorf("goccl %s: exit code %d, want %d; %q lacks %q", c.args, code, c.code, right, c.out)
		}
	}
}

// Every rank, rank 0 too, dials the meeting point.
func TestRendezvous(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- rendezvous(ctx, w, io.Discard, "127.0.0.1:0", tcp.RendezvousConfig{Size: 3, RunID: "r", Secret: []byte("s")})
		w.Close()
	}()
	var addr string
	if _, err := fmt.Fscanf(r, "listening on %s\n", &addr); err != nil {
		t.Fatal(err)
	}
	rest := make(chan string, 1)
	go func() { b, _ := io.ReadAll(r); rest <- string(b) }()
	var ranks sync.WaitGroup
	for rank := range 3 {
		ranks.Go(func() {
			g, err := goccl.Join(ctx, goccl.JoinConfig{Rank: rank, Size: 3, Coordinator: addr, RunID: "r", Secret: []byte("s")})
			if err != nil {
				t.Error(err)
				return
			}
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	ranks.Wait()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if s := <-rest; !regexp.MustCompile(`(?m)^all 3 ranks have met$`).MatchString(s) {
		t.Errorf("printed %q", s)
	}
}

// With -stay the meeting point shows a process that comes later the way to the ranks that run.
func TestRendezvousStays(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, w := io.Pipe()
	serving, end := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		done <- rendezvous(serving, w, io.Discard, "127.0.0.1:0", tcp.RendezvousConfig{Size: 2, RunID: "r", Stay: true})
	}()
	var addr string
	if _, err := fmt.Fscanf(r, "listening on %s\n", &addr); err != nil {
		t.Fatal(err)
	}
	join := func(rank int) *goccl.ProcessGroup {
		g, err := goccl.Join(ctx, goccl.JoinConfig{Rank: rank, Size: 2, Coordinator: addr, RunID: "r"})
		if err != nil {
			t.Error(err)
		}
		return g
	}
	met := make(chan struct{}, 2)
	var ranks sync.WaitGroup
	for rank := range 2 {
		ranks.Go(func() {
			g := join(rank)
			met <- struct{}{}
			for g != nil && g.Size() == 2 {
				next, err := g.Admit(ctx)
				if err != nil {
					t.Error(err)
					break
				}
				g = next
			}
			if g != nil {
				g.Close()
			}
		})
	}
	<-met
	<-met
	if g := join(1); g != nil {
		if g.Size() != 3 || g.Epoch() == 0 {
			t.Errorf("size %d, epoch %d", g.Size(), g.Epoch())
		}
		g.Close()
	}
	ranks.Wait()
	end()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A rank whose certificate is for another name than -server-name is turned away, although the CA is the right one.
func TestRendezvousServerName(t *testing.T) {
	ca, dir := testca.New("the CA"), t.TempDir()
	file := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cert, key := testca.Files(ca.Issue("the coordinator", []string{"ranks.job"}, nil))
	args := []string{"rendezvous", "-listen", "127.0.0.1:0", "-size", "1", "-timeout", "3s", "-server-name", "ranks.job",
		"-cert", file("cert", cert), "-key", file("key", key), "-ca", file("ca", ca.PEM())}
	r, w := io.Pipe()
	var errs bytes.Buffer
	code := make(chan int, 1)
	go func() { code <- run(args, w, &errs) }()
	var addr string
	if _, err := fmt.Fscanf(r, "listening on %s\n", &addr); err != nil {
		t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", addr, &tls.Config{
		Certificates: []tls.Certificate{ca.Issue("a stranger", []string{"other.job"}, nil)}, RootCAs: ca.Pool(), ServerName: "ranks.job", NextProtos: []string{"goccl"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "bad certificate") {
		t.Errorf("the stranger hears %v", err)
	}
	if c := <-code; c != 1 || !strings.Contains(errs.String(), "valid for other.job, not ranks.job") {
		t.Errorf("exit code %d, said %s", c, errs.String())
	}
}

func TestRendezvousPortInUse(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var errs bytes.Buffer
	if code := run([]string{"rendezvous", "-listen", ln.Addr().String(), "-size", "2"}, io.Discard, &errs); code != 1 || !strings.Contains(errs.String(), ln.Addr().String()) {
		t.Errorf("exit code %d, said %q", code, errs.String())
	}
}

// forever sleeps until the process is ended. An empty select would be a deadlock to the runtime of a program without cgo.
func forever() {
	for {
		time.Sleep(time.Hour)
	}
}

// Two ranks that differ write their traces, and trace-merge says how they differ; a file that is none is named.
func TestTraceMerge(t *testing.T) {
	dir := t.TempDir()
	var ranks sync.WaitGroup
	for _, tr := range mem.NewWorld(2) {
		g, err := goccl.New(tr, goccl.Config{TraceDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		ranks.Go(func() {
			if err := goccl.AllReduce(t.Context(), g, make([]float64, 7+g.Rank()), goccl.Sum); err == nil {
				t.Error("no error")
			}
			g.Close()
		})
	}
	ranks.Wait()
	files := []string{filepath.Join(dir, "goccl-rank0-epoch0.json"), filepath.Join(dir, "goccl-rank1-epoch0.json")}
	const want = "2 ranks, epoch 0: they part at the first call\n" +
		"#1  rank 0: all-reduce f64 x 7 sum, one-shot, in it for T\n" +
		"    rank 1: all-reduce f64 x 8 sum, one-shot, in it for T\n" +
		"first cause, by rank 0: rank 1 is in all-reduce f64 x 8 sum, one-shot, #1; this rank in all-reduce f64 x 7 sum, one-shot, #1\n" +
		"first cause, by rank 1: rank 0 is in all-reduce f64 x 7 sum, one-shot, #1; this rank in all-reduce f64 x 8 sum, one-shot, #1\n"
	bad := filepath.Join(dir, "bad")
	if err := os.WriteFile(bad, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for code, names := range [][]string{files, append([]string{bad}, files...)} {
		var out, errs bytes.Buffer
		got := run(append([]string{"trace-merge"}, names...), &out, &errs)
		said := regexp.MustCompile(`in it for .*`).ReplaceAllString(out.String(), "in it for T")
		wantErr := ""
		if code == 1 {
			wantErr = "goccl trace-merge: " + bad + ": unexpected EOF after 1 bytes\n"
		}
		if got != code || said != want || errs.String() != wantErr {
			t.Errorf("exit code %d, errors %q, output\n%s\nwant\n%s", got, errs.String(), said, want)
		}
	}
}
