//go:build !unix

package launch

import (
	"fmt"
	"os"
	"os/exec"
)

// Without Unix signals there is no way to ask: processes are killed.
var terminate os.Signal = os.Kill

// Forwarded are the signals that a launcher passes on.
var Forwarded = []os.Signal{os.Interrupt}

func endsRun(os.Signal) bool { return true }

func isolate(*exec.Cmd) {}

func signalGroup(cmd *exec.Cmd, _ os.Signal) { _ = cmd.Process.Kill() } // fails only when the process is gone

func killGroup(*exec.Cmd) {}

func signalCode(os.Signal) int { return 130 }

func exitStatus(state *os.ProcessState, err error) (code int, text string) {
	if state == nil {
		return 1, "failed: " + err.Error()
	}
	return state.ExitCode(), fmt.Sprintf("exited with code %d", state.ExitCode())
}
