package faults

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goccl/goccl"
)

// A plan tells a rank what to be. All ranks of a job get the same one.
type plan struct {
	Role    string
	Control string // path of the Unix-domain socket where the test listens

	Count     int // elements of an all-reduce, float32; calls of a soak
	Groups    int // of a soak
	Secret    []byte
	Spaces    []string      // network namespaces, by rank; nil: the test's own
	Heartbeat time.Duration // as in goccl.Config
	Minority  bool          // ShrinkMinority
	Elastic   bool          // admit whoever waits, after each step
	Link      string
	Listen    []string // by rank, as in goccl.JoinConfig; nil: empty
	Advertise []string // the same
}

// A report is what a rank says when something has happened to it.
type report struct {
	Event   string
	Rank    int // in the world that was launched
	Pid     int
	Life    int           // how often the rank had been started before
	At      int64         // on the machine's monotonic clock, ns
	Failure *failure      `json:",omitempty"`
	Steps   int           // all-reduces completed since the start of the process
	Wrong   string        `json:",omitempty"` // what is wrong with a result
	Members []int         `json:",omitempty"` // of the group, by their ranks in the world that was launched
	Addr    string        `json:",omitempty"` // where the rank listens
	Step    time.Duration `json:",omitempty"` // how long an all-reduce took, median
	Log     []string      `json:",omitempty"` // lines that the library logged, warnings and worse
	Calm    tally         `json:",omitzero"`  // before the rank joined
	Now     tally         `json:",omitzero"`
}

// A tally is what a process holds.
type tally struct {
	Goroutines, Descriptors int
	Resident                int64         // bytes
	CPU                     time.Duration // user and system, so far
}

func (t tally) within(calm tally) bool {
	return t.Goroutines <= calm.Goroutines && t.Descriptors <= calm.Descriptors
}

func takeTally() tally {
	t := tally{Goroutines: runtime.NumGoroutine(), Resident: resident()}
	if fds, err := os.ReadDir("/proc/self/fd"); err == nil {
		t.Descriptors = len(fds) - 1 // the directory itself
	}
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err == nil {
		t.CPU = time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return t
}

func resident() int64 {
	text, _ := os.ReadFile("/proc/self/statm")
	if f := strings.Fields(string(text)); len(f) > 1 {
		pages, _ := strconv.ParseInt(f[1], 10, 64)
		return pages * int64(os.Getpagesize())
	}
	return 0
}

// now is the machine's monotonic clock, the same for all processes.
func now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

// A failure is an error as the test needs to know it.
type failure struct {
	Text string
	Kind string
	Rank int // who is to blame, in the group that failed, and then in the world that was launched; -1: nobody
	Seq  uint64
}

func describe(err error) *failure {
	if err == nil {
		return nil
	}
	f := &failure{Text: err.Error(), Kind: "other", Rank: -1}
	var peer *goccl.PeerError
	var mismatch *goccl.MismatchError
	var stall *goccl.StallError
	var abort *goccl.AbortError
	var excluded *goccl.ExcludedError
	switch {
	case errors.Is(err, goccl.ErrNoMajority):
		f.Kind = "no majority"
	case errors.As(err, &excluded):
		f.Kind = "excluded"
	case errors.As(err, &mismatch):
		f.Kind, f.Rank = "mismatch", mismatch.Rank
	case errors.As(err, &stall):
		f.Kind, f.Seq = "stall", stall.Seq
		if len(stall.Missing) > 0 {
			f.Rank = stall.Missing[0]
		}
	case errors.As(err, &abort):
		f.Kind, f.Rank = "abort", abort.Rank
	case errors.As(err, &peer):
		f.Kind, f.Rank, f.Seq = "peer", peer.Rank, peer.Seq
	case errors.Is(err, net.ErrClosed):
		f.Kind = "closed"
	case errors.Is(err, context.DeadlineExceeded):
		f.Kind = "deadline"
	}
	return f
}

// in turns the rank to blame into its number in the world that was launched. A group whose members are not known is that world.
func (f *failure) in(members []int) *failure {
	if f != nil && f.Rank >= 0 && f.Rank < len(members) {
		f.Rank = members[f.Rank]
	}
	return f
}
