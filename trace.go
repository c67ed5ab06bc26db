package goccl

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/goccl/goccl/internal/trace"
	"github.com/goccl/goccl/ring"
	"github.com/goccl/goccl/transport"
)

// WriteTrace writes what this rank knows as one JSON object: its last 256 collectives with their times, the running one
// among them, the first cause, and what the other ranks have told. It works at any time, on a broken and on a closed group
// too. "goccl trace-merge" compares such files of several ranks.
func (g *ProcessGroup) WriteTrace(w io.Writer) error {
	g.mu.Lock()
	s := g.snapshot(time.Now())
	g.mu.Unlock()
	if err := s.dump(g).Write(w); err != nil {
		return fmt.Errorf("goccl: trace: %w", err)
	}
	return nil
}

// dump puts a snapshot of g into the form that is written down.
func (s *snapshot) dump(g *ProcessGroup) *trace.Dump {
	host, _ := os.Hostname() // "" is as good as an error here
	d := &trace.Dump{
		Format: trace.Format, Version: trace.Version,
		RunID: g.cfg.runID, Epoch: g.epoch, Parents: g.ranks, Rank: g.rank, Size: g.size,
		Host: host, PID: os.Getpid(), Time: s.now.Round(0), Made: s.made, Waiting: s.waiting,
	}
	if g.id != 0 {
		d.Group = fmt.Sprintf("%016x", g.id)
	}
	if s.cause != nil {
		d.Cause = traceCause(s.cause, g.rank)
		d.Cause.Time = s.wall(s.causeAt)
	}
	for r := range s.peers {
		if r != g.rank {
			d.Peers = append(d.Peers, s.tracePeer(r))
		}
	}
	for seq := s.made - min(s.made, recorded) + 1; seq <= s.made; seq++ {
		d.Calls = append(d.Calls, s.traceCall(seq))
	}
	return d
}

// wall returns the wall-clock time of a moment by its distance from now, which the monotonic clock measures.
func (s *snapshot) wall(t time.Time) time.Time { return s.now.Round(0).Add(t.Sub(s.now)) }

func (s *snapshot) traceCall(seq uint64) trace.Call {
	r := &s.calls[seq%recorded]
	start := s.born.Add(r.start)
	c := trace.Call{
		Seq: seq, What: traceWhat(r.call, r.count), Bytes: int64(r.bytes), Start: s.wall(start),
		Micros: r.took.Microseconds(), Running: r.running,
	}
	if r.running {
		c.Micros = s.now.Sub(start).Microseconds()
	}
	if r.err != nil {
		c.Error = r.err.Error()
	}
	return c
}

// traceWhat unpacks Call and Count of a tag.
func traceWhat(call, count uint64) trace.What {
	f := ring.Unpack(transport.Tag{Call: call, Count: count})
	w := trace.What{Op: f.Op.String(), Count: f.Count, Algorithm: f.Algorithm.String()}
	if f.Op != ring.OpBarrier {
		w.Type = f.Type.String()
	}
	if f.Reduce != 0 {
		w.Reduce = f.Reduce.String()
	}
	if f.Rooted {
		w.Root = &f.Root
	}
	if f.Counts != 0 {
		w.Counts = fmt.Sprintf("%04x", f.Counts)
	}
	return w
}

func (s *snapshot) tracePeer(rank int) trace.Peer {
	p := &s.peers[rank]
	t := trace.Peer{Rank: rank, Addr: p.addr, State: trace.StateOK}
	if at := s.pulses[rank].heard; !at.IsZero() {
		t.Heard = s.wall(at)
	}
	switch {
	case p.left:
		t.State = trace.StateLeft
	case p.silent:
		t.State = trace.StateSilent
	case p.lost:
		t.State = trace.StateLost
	}
	if p.heard {
		t.Last = &trace.Report{Seq: p.report.seq, Running: p.report.running}
		if p.report.seq > 0 {
			t.Last.What = traceWhat(p.report.call, p.report.count)
		}
	}
	return t
}

// traceCause takes a first cause apart. What has no other culprit is this rank's.
func traceCause(err error, self int) *trace.Cause {
	c := &trace.Cause{Kind: "peer", Rank: self, Text: err.Error()}
	var mismatch *MismatchError
	var stall *StallError
	var abort *AbortError
	var peer *PeerError
	switch {
	case errors.As(err, &mismatch):
		c.Kind, c.Rank = "mismatch", mismatch.Rank
	case errors.As(err, &stall):
		c.Kind, c.Missing = "stall", stall.Missing
	case errors.As(err, &abort):
		c.Kind, c.Rank = "abort", abort.Rank
	case errors.As(err, &peer):
		c.Rank = peer.Rank
	case errors.Is(err, net.ErrClosed):
		c.Kind = "closed"
	}
	return c
}
