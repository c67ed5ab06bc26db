//go:build unix

package goccl

import (
	"os"
	"syscall"
)

// traceSignals are those that TraceOnSignal takes when none is named.
var traceSignals = []os.Signal{syscall.SIGUSR1}
