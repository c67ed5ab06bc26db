package launch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

func init() {
	roles["nested"] = func() { // a launcher for the test to kill
		if err := Run(context.Background(), config("wait", 2)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
	}
}

// A launcher that is killed cannot end its ranks; the system does.
func TestRanksDieWithTheLauncher(t *testing.T) {
	ln := listen(t)
	exe, _ := os.Executable()
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), roleEnv+"=nested", "GOCCL_TEST_ADDR="+ln.Addr().String())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	a, b := accept(t, ln), accept(t, ln)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	a.ended(t)
	b.ended(t)
}
