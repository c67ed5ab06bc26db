package goccl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccl/goccl/transport/tcp"
)

// programs are what one rank does as a process of its own. What they return is printed, and the process exits at once,
// without Close.
var programs = map[string]func(ctx context.Context, g *ProcessGroup) error{
	"stall": func(ctx context.Context, g *ProcessGroup) error {
		if g.Rank() == 1 {
			return verdict(g)
		}
		ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		defer cancel()
		return g.Barrier(ctx)
	},
	"abort": func(ctx context.Context, g *ProcessGroup) error {
		if g.Rank() == 1 {
			g.Abort(errors.New("enough"))
			return nil
		}
		return g.Barrier(ctx)
	},
	"mismatch": func(ctx context.Context, g *ProcessGroup) error {
		return AllReduce(ctx, g, make([]float32, 100+g.Rank()/3), Sum)
	},
	"kill": func(ctx context.Context, g *ProcessGroup) error {
		buf := make([]float32, 4<<20)
		if g.Rank() == 2 {
			me, err := os.FindProcess(os.Getpid())
			if err != nil {
				return err
			}
			time.AfterFunc(30*time.Millisecond, func() { me.Kill() })
		}
		for {
			if err := AllReduce(ctx, g, buf, Sum); err != nil {
				return err
			}
		}
	},
	"leave": func(ctx context.Context, g *ProcessGroup) error {
		for range 3 {
			if err := g.Barrier(ctx); err != nil {
				return err
			}
		}
		return nil
	},
}

// configs are those of programs that need another than the default.
var configs = map[string]Config{}

// A rank that exits right after its call has failed, as log.Fatal does, must not be blamed in place of the cause.
func TestProcesses(t *testing.T) {
	if name := os.Getenv("GOCCL_TEST_PROGRAM"); name != "" {
		rankProcess(programs[name], configs[name])
	}
	for name, wrong := range map[string]func(r int, said string) bool{
		"stall": func(r int, said string) bool { return !strings.Contains(said, "stalled, missing: rank 1") },
		"abort": func(r int, said string) bool { return r != 1 && !strings.Contains(said, "rank 1 aborted: enough") },
		"mismatch": func(r int, said string) bool {
			return !strings.Contains(said, "x 100") || !strings.Contains(said, "x 101")
		},
		"kill":  func(r int, said string) bool { return r != 2 && !strings.Contains(said, "rank 2 (") },
		"leave": func(r int, said string) bool { return said != "<nil>" },
	} {
		t.Run(name, func(t *testing.T) {
			for r, said := range processes(t, name, 4) {
				if wrong(r, said) {
					t.Errorf("rank %d said %s", r, said)
				}
			}
		})
	}
}

// processes runs a program on n ranks and returns what each said.
func processes(t *testing.T, name string, n int) []string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	said := make([]string, n)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := tcp.Rendezvous(ctx, ln, tcp.RendezvousConfig{Size: n}); err != nil {
			t.Error(err)
		}
	})
	for r := range n {
		wg.Go(func() {
			cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestProcesses$")
			cmd.Env = append(os.Environ(), "GOCCL_TEST_PROGRAM="+name, fmt.Sprint("GOCCL_RANK=", r), fmt.Sprint("GOCCL_WORLD_SIZE=", n),
				"GOCCL_COORDINATOR="+ln.Addr().String())
			out, _ := cmd.Output() // the exit status says nothing more
			said[r] = strings.TrimSpace(string(out))
		})
	}
	wg.Wait()
	return said
}

func rankProcess(program func(ctx context.Context, g *ProcessGroup) error, cfg Config) {
	g, err := Join(context.Background(), JoinConfig{Config: cfg})
	if err == nil {
		err = program(context.Background(), g)
	}
	fmt.Println(err)
	os.Exit(0)
}
