//go:build unix

package goccl

import (
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// A signal to this process makes the group and its sub-groups write their traces, until stop or Close.
func TestTraceOnSignal(t *testing.T) {
	keep := make(chan os.Signal, 8) // so that a signal nobody else waits for does not end the tests
	signal.Notify(keep, syscall.SIGUSR1, syscall.SIGUSR2)
	defer signal.Stop(keep)
	dir := t.TempDir()
	var log logged
	gs := groups(t, memWorld, 2, Config{TraceDir: dir, Logger: slog.New(slog.NewJSONHandler(&log, nil)), runID: "s"})
	subs := make([]*ProcessGroup, 2)
	for _, err := range each(gs, func(g *ProcessGroup) (err error) {
		subs[g.Rank()], err = g.Split(t.Context(), 0, -g.Rank())
		return err
	}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	files := []string{"goccl-s-rank0-epoch0.json", fmt.Sprintf("goccl-s-rank1-epoch0-%016x.json", subs[0].id)}
	raise := func(s syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(os.Getpid(), s); err != nil {
			t.Fatal(err)
		}
		<-keep
	}
	appear := func() { // the dump is made by a goroutine of the group's
		t.Helper()
		for _, name := range files {
			for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
				if os.Remove(filepath.Join(dir, name)) == nil {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("no %s", name)
				}
			}
		}
	}
	stop := gs[0].TraceOnSignal()
	stopOther := gs[0].TraceOnSignal(syscall.SIGUSR2)
	defer stopOther()
	raise(syscall.SIGUSR1)
	appear()
	raise(syscall.SIGUSR2)
	appear()
	stop()
	stop()
	raise(syscall.SIGUSR1)
	if err := gs[0].Close(); err != nil {
		t.Error(err)
	}
	raise(syscall.SIGUSR2)
	gs[0].TraceOnSignal()() // too late, and harmless
	if files := dumpsIn(t, dir); len(files) > 0 {
		t.Errorf("files %v after the end", files)
	}
	if n := len(log.records(t)); n != 4 {
		t.Errorf("%d log records: %+v", n, log.records(t))
	}
	for _, r := range log.records(t) {
		if r.Level != "INFO" || r.Msg != "goccl: trace on signal" || r.Cause != "" || r.File == "" || r.Trace.Made == 0 {
			t.Errorf("logged %+v", r)
		}
	}
}
