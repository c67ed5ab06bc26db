//go:build unix

package goccl

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"
)

func init() {
	programs["stop"] = stoppedProgram
	configs["stop"] = Config{Heartbeat: 500 * time.Millisecond}
}

// stoppedProgram stops rank 2 in the middle of its calls, as a debugger or a frozen container does. Once rank 0 knows, it lets
// rank 2 go on, and exits as the others do.
func stoppedProgram(ctx context.Context, g *ProcessGroup) error {
	pids := make([]int64, g.Size())
	if err := AllGather(ctx, g, pids, []int64{int64(syscall.Getpid())}); err != nil {
		return err
	}
	buf := make([]float32, 1<<16)
	for i := 0; ; i++ {
		if g.Rank() == 2 && i == 20 {
			syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
		}
		if err := AllReduce(ctx, g, buf, Sum); err != nil {
			if g.Rank() == 0 {
				syscall.Kill(int(pids[2]), syscall.SIGCONT)
			}
			return err
		}
	}
}

// All ranks name the one that was stopped, and so does that one when it goes on, although by then the others are gone.
func TestStoppedProcess(t *testing.T) {
	for r, said := range processes(t, "stop", 4) {
		want := "no sign of life for"
		if r == 2 {
			want = "declared dead by rank"
		}
		said = strings.TrimPrefix(said, ErrBroken.Error()+": ") // its own part of the last call may have been complete
		if !strings.HasPrefix(said, "rank 2 (") || !strings.Contains(said, want) {
			t.Errorf("rank %d said %s", r, said)
		}
	}
}
