package goccl

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/goccl/goccl/internal/trace"
)

const (
	reportBound = 500 * time.Millisecond // how long a failing call waits for the report of its failure to be written
	loggedCalls = 16                     // how many of the last calls go into a log record
)

// dumps writes the flight recorder down when the group breaks or a signal comes.
type dumps struct {
	begun    bool           // the failure is being reported, or has been; guarded by the group's mu
	causeAt  time.Time      // when the group broke; guarded by the group's mu
	reported chan struct{}  // closed when it has been reported
	closed   chan struct{}  // closed by Close; ends the wait for signals
	writers  sync.WaitGroup // those that wait for signals, and warnings on their way to the logger
	heir     *ProcessGroup  // which group waits for the signals then; nil: none. Guarded by the group's mu
}

func (d *dumps) init() { d.reported, d.closed = make(chan struct{}), make(chan struct{}) }

// reportFailure has the first cause and what led to it logged and written to Config.TraceDir. The caller holds g.mu; the
// disk and the logger may be slow, so a goroutine does it, which failing calls and Close wait for within bounds.
func (g *ProcessGroup) reportFailure() {
	if g.dumps.begun {
		return
	}
	g.dumps.begun, g.dumps.causeAt = true, time.Now()
	if g.cfg.TraceDir == "" && g.cfg.Logger == nil {
		close(g.dumps.reported)
		return
	}
	s := g.snapshot(g.dumps.causeAt)
	go func() {
		defer close(g.dumps.reported)
		g.report(s, slog.LevelWarn, "goccl: group is broken")
	}()
}

// awaitReport waits until a failure has been reported, if there was one, or the bound has passed: a program may exit as
// soon as its call has failed.
func (g *ProcessGroup) awaitReport(bound time.Duration) {
	g.mu.Lock()
	begun := g.dumps.begun
	g.mu.Unlock()
	if begun {
		await(g.dumps.reported, bound)
	}
}

// await waits until c is closed or the bound has passed.
func await(c <-chan struct{}, bound time.Duration) {
	select {
	case <-c:
		return
	default:
	}
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case <-c:
	case <-timer.C:
	}
}

// report writes a snapshot to its file, if there is to be one, and the end of it to the logger.
func (g *ProcessGroup) report(s *snapshot, level slog.Level, message string) {
	log, ctx := g.cfg.logger(), context.Background()
	d := s.dump(g)
	attrs := []slog.Attr{slog.Int("rank", g.rank)}
	if s.cause != nil {
		attrs = append(attrs, slog.Any("cause", s.cause))
	}
	if g.cfg.TraceDir != "" {
		path, err := d.WriteFile(g.cfg.TraceDir)
		if err != nil {
			log.LogAttrs(ctx, slog.LevelWarn, "goccl: trace not written", slog.Int("rank", g.rank), slog.Any("error", err))
		} else {
			attrs = append(attrs, slog.String("file", path))
		}
	}
	if !log.Enabled(ctx, level) {
		return
	}
	d.Calls = d.Calls[max(0, len(d.Calls)-loggedCalls):]
	log.LogAttrs(ctx, level, message, append(attrs, slog.Any("trace", trace.Logged{Dump: d}))...)
}

// TraceOnSignal writes what WriteTrace does, of this group and of the sub-groups split off it, whenever one of the signals
// comes, SIGUSR1 if none is named: to files in Config.TraceDir, and with the last calls to Config.Logger. Without either
// it does nothing. Where Shrink or Admit has made the group that follows, it goes on with that one. It ends with stop or Close;
// from then on the signal has its old effect: SIGUSR1's on a Go program is none. Where there is no SIGUSR1, as on Windows, the
// signals must be named. Stop may be called twice.
func (g *ProcessGroup) TraceOnSignal(sig ...os.Signal) (stop func()) {
	if len(sig) == 0 {
		sig = traceSignals
	}
	if len(sig) == 0 {
		g.cfg.logger().Warn("goccl: TraceOnSignal: this system has no SIGUSR1: name a signal", "rank", g.rank)
		return func() {}
	}
	first := g.awaitSignals()
	if first == nil {
		return func() {}
	}
	came, stopped, done := make(chan os.Signal, 1), make(chan struct{}), make(chan struct{})
	signal.Notify(came, sig...)
	go func() {
		defer close(done)
		defer signal.Stop(came)
		for g := first; g != nil; {
			g = g.reportOnSignals(came, stopped)
		}
	}()
	var once sync.Once
	return func() {
		once.Do(func() { close(stopped) })
		<-done
	}
}

// awaitSignals returns the group, or the first of those that follow it, that is not closed, once its Close has come to wait
// for reportOnSignals; nil: there is none.
func (g *ProcessGroup) awaitSignals() *ProcessGroup {
	for g != nil {
		g.mu.Lock()
		open, heir := !g.closed, g.dumps.heir
		if open {
			g.dumps.writers.Add(1)
		}
		g.mu.Unlock()
		if open {
			return g
		}
		g = heir
	}
	return nil
}

// reportOnSignals reports at every signal until it is stopped or the group is closed. It returns which group goes on with it.
func (g *ProcessGroup) reportOnSignals(came <-chan os.Signal, stopped <-chan struct{}) *ProcessGroup {
	defer g.dumps.writers.Done()
	for {
		select {
		case <-came:
			g.reportAll("goccl: trace on signal")
		case <-stopped:
			return nil
		case <-g.dumps.closed:
			return g.awaitSignals()
		}
	}
}

// reportAll reports how the group and its sub-groups stand.
func (g *ProcessGroup) reportAll(message string) {
	g.mu.Lock()
	s := g.snapshot(time.Now())
	g.mu.Unlock()
	g.report(s, slog.LevelInfo, message)
	for _, c := range g.children.all() {
		c.reportAll(message)
	}
}

// stop ends what waits for signals, and waits for all writers unless the disk or the logger hangs. No writer may begin any more.
func (d *dumps) stop(bound time.Duration) {
	close(d.closed)
	done := make(chan struct{})
	go func() {
		d.writers.Wait()
		close(done)
	}()
	await(done, bound)
}
