//go:build unix

package launch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// terminate asks a process to end.
var terminate os.Signal = syscall.SIGTERM

// Forwarded are the signals that a launcher passes on.
var Forwarded = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}

func endsRun(s os.Signal) bool { return s != syscall.SIGUSR1 && s != syscall.SIGUSR2 }

// isolate puts the rank into a process group of its own, so that all it starts can be ended with it. A terminal's
// interrupt then reaches the launcher alone, which passes it on.
func isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
}

func signalGroup(cmd *exec.Cmd, s os.Signal) {
	if sig, ok := s.(syscall.Signal); ok {
		_ = syscall.Kill(-cmd.Process.Pid, sig) // fails only when the group is gone
	}
}

func killGroup(cmd *exec.Cmd) { signalGroup(cmd, os.Kill) }

func signalCode(s os.Signal) int {
	if sig, ok := s.(syscall.Signal); ok {
		return 128 + int(sig)
	}
	return 1
}

// exitStatus puts a failed process's end in numbers and words.
func exitStatus(state *os.ProcessState, err error) (code int, text string) {
	if state == nil {
		return 1, "could not be waited for: " + err.Error()
	}
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return signalCode(ws.Signal()), "was ended by " + state.String()
	}
	if !errors.As(err, new(*exec.ExitError)) {
		return 1, "failed: " + err.Error()
	}
	return state.ExitCode(), fmt.Sprintf("exited with code %d", state.ExitCode())
}
