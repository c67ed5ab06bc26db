//go:build !unix

package goccl

import "os"

// traceSignals is empty: this system has no signal for a program's own use.
var traceSignals []os.Signal
