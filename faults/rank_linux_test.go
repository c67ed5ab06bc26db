package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl"
)

// roles are what a rank can be. A role returns when it has said all it has to say.
var roles = map[string]func(*self){}

// self is a rank's own view of its process.
type self struct {
	plan    plan
	rank    int // in the world that was launched
	life    int
	calm    tally
	last    []int        // the members of the group that it works with, or worked with last
	finish  atomic.Bool  // the test wants the work to end
	goal    atomic.Int64 // the number of steps at which to report; 0: none
	until   atomic.Int64 // when to report that the work lasts, as now; 0: never
	steps   atomic.Int64 // done
	log     logLines
	conn    net.Conn
	sayMu   sync.Mutex
	encoder *json.Encoder
	orders  chan order
}

// An order is what the test tells a rank.
type order struct {
	Do string
	N  int
}

// runRank is the main function of a rank.
func runRank(text string) {
	s := &self{orders: make(chan order, 16)}
	if err := json.Unmarshal([]byte(text), &s.plan); err != nil {
		panic(err)
	}
	s.rank, _ = strconv.Atoi(os.Getenv("GOCCL_RANK"))
	s.life, _ = strconv.Atoi(os.Getenv("GOCCL_RESTART"))
	s.plan.enter(s.rank)
	conn, err := net.Dial("unix", s.plan.Control)
	if err != nil {
		panic(err)
	}
	s.conn, s.encoder = conn, json.NewEncoder(conn)
	go s.listen()
	s.say("hello", nil)
	s.calm = takeTally()
	role := roles[s.plan.Role]
	if role == nil {
		panic("no role " + s.plan.Role)
	}
	role(s)
}

// listen takes the test's orders. The test's end is ours.
func (s *self) listen() {
	for d := json.NewDecoder(s.conn); ; {
		var o order
		if err := d.Decode(&o); err != nil {
			os.Exit(0)
		}
		switch o.Do {
		case "finish":
			s.finish.Store(true)
		case "steps":
			s.goal.Store(s.steps.Load() + int64(o.N))
		case "last":
			s.until.Store(now() + int64(o.N)*int64(time.Millisecond))
		case "exit":
			os.Exit(o.N)
		default:
			s.orders <- o
		}
	}
}

// stepped counts a step of the work, says so if it is the first one of a group, and answers the test's orders.
func (s *self) stepped(first bool, fill func(*report)) {
	steps := s.steps.Add(1)
	if first {
		s.say("running", fill)
	}
	if goal := s.goal.Load(); goal > 0 && steps >= goal {
		s.goal.Store(0)
		s.say("reached", fill)
	}
	if at := s.until.Load(); at > 0 && now() >= at {
		s.until.Store(0)
		s.say("lasted", fill)
	}
}

// say tells the test what has happened.
func (s *self) say(event string, fill func(*report)) {
	r := report{Event: event, At: now(), Rank: s.rank, Pid: os.Getpid(), Life: s.life, Steps: int(s.steps.Load())}
	if fill != nil {
		fill(&r)
	}
	s.sayMu.Lock()
	defer s.sayMu.Unlock()
	if err := s.encoder.Encode(&r); err != nil {
		os.Exit(0)
	}
}

func (s *self) config() goccl.JoinConfig {
	cfg := goccl.JoinConfig{Timeout: 30 * time.Second, Link: s.plan.Link, Secret: s.plan.Secret}
	cfg.Heartbeat, cfg.ShrinkMinority = s.plan.Heartbeat, s.plan.Minority
	cfg.Logger = slog.New(slog.NewTextHandler(&s.log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if s.plan.Listen != nil {
		cfg.Listen = s.plan.Listen[s.rank]
	}
	if s.plan.Advertise != nil {
		cfg.Advertise = s.plan.Advertise[s.rank]
	}
	return cfg
}

// join meets the others; the process ends when that fails.
func (s *self) join(ctx context.Context) *goccl.ProcessGroup {
	g, err := goccl.Join(ctx, s.config())
	if err != nil {
		s.say("not joined", func(r *report) { r.Failure = describe(err) })
		os.Exit(1)
	}
	return g
}

// settled is what the process holds once what has been closed is gone.
func (s *self) settled() tally {
	t := takeTally()
	for end := time.Now().Add(3 * time.Second); !t.within(s.calm) && time.Now().Before(end); t = takeTally() {
		time.Sleep(5 * time.Millisecond)
	}
	return t
}

// done is a rank's last report: what is left after everything was closed.
func (s *self) done(closeErr error, wrong string) {
	left := s.settled()
	if wrong == "" && left.Goroutines > s.calm.Goroutines {
		wrong = stacks()
	}
	s.say("done", func(r *report) {
		r.Failure, r.Wrong, r.Calm, r.Now, r.Log = describe(closeErr), wrong, s.calm, left, s.log.all()
	})
}

// logLines keeps what the library logs.
type logLines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logLines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(strings.Lines(l.text.String()))
}
