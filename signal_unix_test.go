//go:build unix

package goccl

import (
	"errors"
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
		raiseHere(t, s, keep)
	}
	appear := func() {
		t.Helper()
		appearIn(t, dir, files...)
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

// raiseHere sends a signal to this process, and waits until it has come.
func raiseHere(t *testing.T, s syscall.Signal, keep <-chan os.Signal) {
	t.Helper()
	if err := syscall.Kill(os.Getpid(), s); err != nil {
		t.Fatal(err)
	}
	<-keep
}

// appearIn waits until files are there, which a goroutine of a group's makes, and removes them.
func appearIn(t *testing.T, dir string, files ...string) {
	t.Helper()
	for _, name := range files {
		for end := time.Now().Add(10 * time.Second); os.Remove(filepath.Join(dir, name)) != nil; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("no %s", name)
			}
		}
	}
}

// Signals go on to be heard by the groups that follow, whether Shrink makes them or Admit, until the last one is closed.
func TestTraceOnSignalAfterShrinkAndAdmit(t *testing.T) {
	keep := make(chan os.Signal, 8)
	signal.Notify(keep, syscall.SIGUSR1)
	defer signal.Stop(keep)
	dir := t.TempDir()
	r := startRejoinable(t, 3)
	sub := make([]*ProcessGroup, 3)
	if err := errors.Join(each(r.gs, func(g *ProcessGroup) (err error) {
		g.cfg.TraceDir = dir
		sub[g.Rank()], err = g.Split(t.Context(), 0, 0)
		return err
	})...); err != nil {
		t.Fatal(err)
	}
	first := r.gs[0]
	stop := first.TraceOnSignal()
	stopSub := sub[0].TraceOnSignal()
	raiseHere(t, syscall.SIGUSR1, keep)
	appearIn(t, dir, "goccl-r-rank0-epoch0.json")
	kill(r.gs[2])
	for _, g := range r.gs[:2] {
		verdict(g)
	}
	r.gs = mustShrink(t, r.gs[:2], 1, []int{0, 1})
	stopSub() // which has ended with its group
	raiseHere(t, syscall.SIGUSR1, keep)
	appearIn(t, dir, "goccl-r-rank0-epoch1.json")
	joined := r.come(t.Context(), Join)
	next, errs := r.admit(t.Context())
	if err := errors.Join(append(errs, (<-joined).err)...); err != nil {
		t.Fatal(err)
	}
	raiseHere(t, syscall.SIGUSR1, keep)
	appearIn(t, dir, "goccl-r-rank0-epoch2.json")
	stopLate := first.TraceOnSignal(syscall.SIGUSR1) // on a group that others follow
	stop()
	raiseHere(t, syscall.SIGUSR1, keep)
	appearIn(t, dir, "goccl-r-rank0-epoch2.json")
	next[0].Close()
	stopLate()                          // at once
	for name := range dumpsIn(t, dir) { // of what broke
		os.Remove(filepath.Join(dir, name))
	}
	raiseHere(t, syscall.SIGUSR1, keep)
	if left := dumpsIn(t, dir); len(left) > 0 {
		t.Errorf("files %v after the end", left)
	}
}
