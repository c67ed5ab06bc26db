package trace

import (
	"slices"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// A script makes the dump of a rank call by call. Time passes only where it is told to.
type script struct{ *Dump }

func rank(r, size int) script {
	return script{&Dump{Format: Format, Version: Version, RunID: "r1", Rank: r, Size: size, Host: "a", Time: noon, Made: 0}}
}

func (s script) after(d time.Duration) script { s.Time = s.Time.Add(d); return s }

func (s script) call(w What, took time.Duration) script {
	s.Made++
	s.Calls = append(s.Calls, Call{Seq: s.Made, What: w, Start: s.Time, Micros: took.Microseconds()})
	s.Calls = s.Calls[max(0, len(s.Calls)-256):]
	return s.after(took)
}

func (s script) calls(n int, w What, took time.Duration) script {
	for range n {
		s.call(w, took)
	}
	return s
}

func (s script) waiting(w What, took time.Duration) script {
	s.call(w, took)
	s.Calls[len(s.Calls)-1].Running = true
	return s
}

func (s script) failed(w What, took time.Duration) script {
	s.call(w, took)
	s.Calls[len(s.Calls)-1].Error = "EOF"
	return s
}

func (s script) cause(kind string, rank int, text string) script {
	s.Cause = &Cause{Kind: kind, Rank: rank, Text: text, Time: s.Time}
	return s
}

func (s script) edit(f func(d *Dump)) script { f(s.Dump); return s }

func reduce(count uint64) What {
	return What{Op: "all-reduce", Type: "f32", Count: count, Reduce: "sum", Algorithm: "ring"}
}

func broadcast(count uint64, root int) What {
	return What{Op: "broadcast", Type: "f32", Count: count, Algorithm: "one-shot", Root: &root}
}

var barrier = What{Op: "barrier", Algorithm: "doubling"}

const ms = time.Millisecond

func TestMerge(t *testing.T) {
	stall := "goccl: all-reduce #3 stalled, missing: rank 2"
	for name, c := range map[string]struct {
		dumps []script
		want  string
	}{
		"stall": {[]script{
			rank(0, 4).call(barrier, ms).call(broadcast(8, 1), ms).waiting(reduce(1024), 10200*ms).cause("stall", 0, stall+": limit"),
			rank(1, 4).call(barrier, ms).call(broadcast(8, 1), ms).waiting(reduce(1024), 10200*ms).cause("stall", 1, stall+": rank 0: limit"),
			rank(2, 4).call(barrier, ms).call(broadcast(8, 1), ms).after(10200*ms).cause("stall", 2, stall+": rank 0: limit"),
			rank(3, 4).call(barrier, ms).call(broadcast(8, 1), ms).waiting(reduce(1024), 9900*ms).cause("stall", 3, stall+": rank 0: limit"),
		}, `
4 ranks, run r1, epoch 0: calls #1–#2 agree
#3  ranks 0, 1, 3: all-reduce f32 x 1024 sum, ring, in it for 9.9 s to 10.2 s
    rank 2: completed #2 broadcast f32 x 8 from root 1, one-shot, has not called #3 (idle for 10.2 s)
first cause, by all: all-reduce #3 stalled, missing: rank 2: limit
`},
		"mismatch": {[]script{
			rank(1, 3).call(barrier, ms).failed(reduce(200), 2*ms).cause("mismatch", 0, "rank 0 is in x 100; this rank in x 200"),
			rank(0, 3).call(barrier, ms).failed(reduce(100), 3*ms).cause("mismatch", 1, "rank 1 is in x 200; this rank in x 100"),
			rank(2, 3).call(barrier, ms).waiting(reduce(100), 4*ms).cause("mismatch", 1, "rank 1 is in x 200; this rank in x 100"),
		}, `
3 ranks, run r1, epoch 0: call #1 agrees
#2  ranks 0, 2: all-reduce f32 x 100 sum, ring, in it for 3.0 ms to 4.0 ms
    rank 1: all-reduce f32 x 200 sum, ring, in it for 2.0 ms
first cause, by ranks 0, 2: rank 1 is in x 200; this rank in x 100
first cause, by rank 1: rank 0 is in x 100; this rank in x 200
`},
		"mismatch, and a rank on its way to it": {[]script{
			rank(0, 3).call(barrier, ms).failed(reduce(100), 3*ms),
			rank(1, 3).call(barrier, ms).failed(reduce(200), 2*ms),
			rank(2, 3).failed(barrier, 4*ms),
		}, `
3 ranks, run r1, epoch 0: call #1 agrees
#2  rank 0: all-reduce f32 x 100 sum, ring, in it for 3.0 ms
    rank 1: all-reduce f32 x 200 sum, ring, in it for 2.0 ms
    rank 2: still in #1 barrier, doubling, in it for 4.0 ms, has not called #2
no rank knows of a failure
`},
		"another order, found at the end": {[]script{
			rank(0, 2).call(broadcast(8, 0), ms).call(reduce(8), ms),
			rank(1, 2).call(broadcast(8, 1), ms).call(reduce(8), ms),
		}, `
2 ranks, run r1, epoch 0: they part at the first call
#1  rank 0: broadcast f32 x 8 from root 0, one-shot, completed; came as far as #2, also completed
    rank 1: broadcast f32 x 8 from root 1, one-shot, completed; came as far as #2, also completed
no rank knows of a failure
`},
		"killed": {[]script{
			rank(0, 4).calls(300, reduce(8), ms).waiting(reduce(8), 210*ms).cause("peer", 2, "rank 2 (b:1) in all-reduce #301: EOF").edit(func(d *Dump) {
				d.Waiting = 2
				d.Peers = []Peer{{Rank: 1, State: StateOK}, {Rank: 2, State: StateLost, Last: &Report{Seq: 12, What: reduce(8)}}, {Rank: 3, State: StateOK}}
			}),
			rank(1, 4).calls(300, reduce(8), ms).waiting(reduce(8), 211*ms).cause("peer", 2, "rank 2 (b:1) in all-reduce #301: rank 0: EOF").edit(func(d *Dump) {
				d.Waiting = 2
				d.Peers = []Peer{{Rank: 2, State: StateSilent, Last: &Report{Seq: 301, Running: true, What: reduce(8)}}, {Rank: 3, State: StateLeft}}
			}),
		}, `
4 ranks (2 without a dump), run r1, epoch 0: calls #46–#300 agree, earlier ones are no longer recorded
#301  ranks 0, 1: all-reduce f32 x 8 sum, ring, in it for 210.0 ms to 211.0 ms, 2 calls in line behind
      rank 2: no dump (goccl-r1-rank2-epoch0.json); the others know: connection ended, last told to be in #301 all-reduce f32 x 8 sum, ring
      rank 3: no dump; the others know: left in order, told nothing of its calls
first cause, by all: rank 2 (b:1) in all-reduce #301: EOF
`},
		"running job, dumps by signal": {[]script{
			rank(0, 2).call(barrier, ms).call(reduce(8), ms),
			rank(1, 2).call(barrier, ms).call(reduce(8), ms),
		}, `
2 ranks, run r1, epoch 0: calls #1–#2 agree, and no rank is in a call
no rank knows of a failure
`},
		"windows that do not meet": {[]script{
			rank(0, 2).calls(10, reduce(8), ms),
			rank(1, 2).calls(400, reduce(8), 10*ms).waiting(barrier, ms),
		}, `
2 ranks, run r1, epoch 0: no call is recorded by all ranks
#11  rank 0: completed #10 all-reduce f32 x 8 sum, ring, has not called #11 (idle for 0 µs)
     rank 1: completed, no longer recorded; is at #401 barrier, doubling, in it for 1.0 ms
no rank knows of a failure
the dumps are not of one moment: rank 0's is 4.0 s older than rank 1's
`},
		"ahead": {[]script{
			rank(0, 3).call(broadcast(8, 0), ms).call(barrier, ms),
			rank(1, 3).waiting(broadcast(8, 0), ms),
			rank(2, 3),
		}, `
3 ranks, run r1, epoch 0: they part at the first call
#1  rank 0: broadcast f32 x 8 from root 0, one-shot, completed; came as far as #2, also completed
    rank 1: broadcast f32 x 8 from root 0, one-shot, in it for 1.0 ms
    rank 2: has made no call
no rank knows of a failure
`},
		"nothing called": {[]script{rank(0, 1)}, `
1 rank, run r1, epoch 0: no call was made
no rank knows of a failure
`},
		"who is late": {[]script{
			rank(0, 2).call(reduce(8), 30*ms).call(reduce(8), 20*ms).call(reduce(8), ms),
			rank(1, 2).after(10*ms).call(reduce(8), 40*ms).call(reduce(8), 0).after(ms).call(reduce(8), ms).edit(func(d *Dump) { d.Host = "b" }),
		}, `
2 ranks, run r1, epoch 0: calls #1–#3 agree, and no rank is in a call
no rank knows of a failure
who entered last in 3 calls (by the clocks of their hosts: less than these differ by means nothing):
  rank 1: 3 times, behind the first by 10.0 ms in the median, 20.0 ms at most
`},
		"clocks that differ": {[]script{
			rank(0, 2).call(reduce(8), ms),
			rank(1, 2).after(5*time.Second).call(reduce(8), ms),
		}, `
2 ranks, run r1, epoch 0: call #1 agrees, and no rank is in a call
no rank knows of a failure
the dumps are not of one moment: rank 0's is 5.0 s older than rank 1's
who entered last in 1 call (all on host a; rank 1's clock is ahead of rank 0's by 5.0 s at least):
  rank 1: 1 time, behind the first by 5.0 s in the median, 5.0 s at most
`},
		"several groups and dumps": {[]script{
			rank(0, 1).edit(func(d *Dump) { d.Group, d.Parents = "00ff", []int{3} }),
			rank(0, 1).edit(func(d *Dump) { d.RunID = "another" }),
			rank(0, 1).edit(func(d *Dump) { d.Epoch, d.Parents = 2, []int{1} }),
			rank(0, 1).call(barrier, ms),
			rank(0, 1),
		}, `
1 rank, run another, epoch 0: no call was made
no rank knows of a failure

1 rank, run r1, epoch 0: call #1 agrees, and no rank is in a call
no rank knows of a failure
more than one dump of rank 0: only the newest was read

1 rank, run r1, epoch 0, group 00ff, formerly rank 3: no call was made
no rank knows of a failure

1 rank, run r1, epoch 2, formerly rank 1: no call was made
no rank knows of a failure
`},
		"words from a bad neighbourhood": {[]script{
			rank(0, 1).cause("peer", 0, "goccl: \x1b[31mred\nline"),
		}, `
1 rank, run r1, epoch 0: no call was made
first cause, by all: ?[31mred line
`},
	} {
		t.Run(name, func(t *testing.T) {
			var dumps []*Dump
			for _, s := range c.dumps {
				if err := s.Dump.check(); err != nil {
					t.Fatal(err)
				}
				dumps = append(dumps, s.Dump)
			}
			slices.Reverse(dumps) // the order of the files means nothing
			if got := Merge(dumps); got != strings.TrimPrefix(c.want, "\n") {
				t.Errorf("got\n%s\nwant%s", got, c.want)
			}
		})
	}
	if got := Merge(nil); got != "" {
		t.Errorf("of nothing: %q", got)
	}
}
