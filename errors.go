package goccl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/goccl/goccl/ring"
	"github.com/goccl/goccl/transport"
)

// ErrArgument is wrapped by every error about a bad argument. Such a call sent nothing, takes no place in the order of
// calls and leaves the group usable.
var ErrArgument = ring.ErrArgument

// ErrBroken is wrapped, together with the first cause, by every collective called after the group failed.
var ErrBroken = errors.New("goccl: group is broken")

// ErrNoMajority is wrapped by the error of Shrink when too few ranks of the group are left: others, cut off from here, could be
// going on. Config.ShrinkMinority lifts the rule.
var ErrNoMajority = errors.New("goccl: no majority of the group is left")

// A PeerError is a failure with a culprit: the rank that died, left, was cancelled or broke the protocol, or gave no sign of
// life for too long, in which case it wraps os.ErrDeadlineExceeded. That rank can be this one: stopped or cut off for so long
// that the others went on without it.
type PeerError = transport.PeerError

// A MismatchError says that two ranks called different things: operation, type, count, root, reduce operation or order.
type MismatchError = ring.MismatchError

// A StallError says that a deadline passed in a collective.
type StallError struct {
	Missing []int    // ranks that had not arrived in the call, ascending; empty when all had
	Op      string   // the call
	Seq     uint64   // its sequence number; 0: it has none (shrink)
	Calls   []string // by rank: the call it is in or has completed last; "" when it did not say
	Addrs   []string // by rank: its address; "" over a transport without addresses
	Err     error    // which limit passed: the cause of the context, or the group's Timeout
}

func (e *StallError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "goccl: %s", e.Op)
	if e.Seq > 0 {
		fmt.Fprintf(&b, " #%d", e.Seq)
	}
	b.WriteString(" stalled")
	if len(e.Missing) == 0 {
		b.WriteString(", all ranks are in the call")
	} else {
		b.WriteString(", missing:")
		e.writeMissing(&b)
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	return b.String()
}

// writeMissing writes who is missing, where they are and which calls these are in.
func (e *StallError) writeMissing(b *strings.Builder) {
	for i, r := range e.Missing {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(b, " rank %d", r)
		var known []string
		for _, of := range [][]string{e.Addrs, e.Calls} {
			if r < len(of) && of[r] != "" {
				known = append(known, of[r])
			}
		}
		if len(known) > 0 {
			fmt.Fprintf(b, " (%s)", strings.Join(known, "; "))
		}
	}
}

func (e *StallError) Unwrap() error { return e.Err }

// An AbortError says that a rank called Abort.
type AbortError struct {
	Rank int
	Text string // of the cause given to Abort
}

func (e *AbortError) Error() string {
	return fmt.Sprintf("goccl: rank %d aborted: %s", e.Rank, bareText(e.Text))
}

// An ExcludedError says that the group goes on without this rank: the others held it for dead, or it came too late.
type ExcludedError struct {
	Epoch uint64 // of the group that goes on
	Ranks []int  // of this group that are in it, ascending
}

func (e *ExcludedError) Error() string {
	return fmt.Sprintf("goccl: excluded: epoch %d goes on with ranks %v", e.Epoch, e.Ranks)
}

// localAbort is the AbortError on the rank that aborted, where the caller's own cause is still at hand.
type localAbort struct {
	AbortError
	cause error
}

func (e *localAbort) Unwrap() []error { return []error{&e.AbortError, e.cause} }

// errLeft is why a call fails that needs a rank which has said goodbye.
var errLeft = errors.New("left the group")

// remoteCause carries the words of another rank's error, and what kind it was where the kind is part of our API.
type remoteCause struct {
	text string
	kind error // context.DeadlineExceeded for a stall, else nil
}

func (e *remoteCause) Error() string { return e.text }
func (e *remoteCause) Unwrap() error { return e.kind }

// silentError is why a rank is to blame that gave no sign of life.
type silentError struct{ text string }

func (e *silentError) Error() string { return e.text }
func (e *silentError) Unwrap() error { return os.ErrDeadlineExceeded }

// timeoutError is the cause of a call that ran into the group's own Timeout rather than a context.
type timeoutError struct{ limit fmt.Stringer }

func (e *timeoutError) Error() string { return fmt.Sprintf("group timeout of %v passed", e.limit) }
func (e *timeoutError) Unwrap() error { return context.DeadlineExceeded }

// broken is the error of a call that found the group broken before it began.
func broken(cause error) error { return &outer{"group is broken", []error{ErrBroken, cause}} }

// outer puts words before the last of some errors and wraps them all. The message begins with "goccl: " once.
type outer struct {
	words string
	errs  []error
}

func (e *outer) Error() string {
	return "goccl: " + e.words + ": " + bareText(e.errs[len(e.errs)-1].Error())
}
func (e *outer) Unwrap() []error { return e.errs }

// bareText is a message without our prefix, to follow other words of ours.
func bareText(s string) string { return strings.TrimPrefix(s, "goccl: ") }

func argument(format string, args ...any) error {
	return fmt.Errorf("goccl: %w: %w", ErrArgument, fmt.Errorf(format, args...))
}
