package goccl

import (
	"errors"
	"io"
	"testing"
	"time"
)

// However often an error of ours is wrapped by others, its message names us once, at the front, and all kinds are found.
func TestErrorsAreWordedOnce(t *testing.T) {
	stall := &StallError{Op: "all-reduce", Seq: 3, Err: &timeoutError{time.Second}}
	peer := &PeerError{Rank: 2, Op: "all-reduce", Seq: 3, Err: io.EOF}
	for want, err := range map[string]error{
		"goccl: group is broken: all-reduce #3 stalled, all ranks are in the call: group timeout of 1s passed": broken(stall),
		"goccl: group is broken: rank 2 in all-reduce #3: EOF":                                                 broken(peer),
		"goccl: sub-group of ranks [0 2]: group is broken: rank 2 in all-reduce #3: EOF":                       &outer{"sub-group of ranks [0 2]", []error{broken(peer)}},
		"goccl: rank 1 aborted: all-reduce #3 stalled, all ranks are in the call: group timeout of 1s passed":  &AbortError{1, stall.Error()},
		"goccl: barrier #9 stalled, missing: rank 0, rank 1 (10.0.0.2:29500), rank 2 (10.0.0.3:7; barrier, #8 completed): limit": &StallError{
			Op: "barrier", Seq: 9, Missing: []int{0, 1, 2}, Addrs: []string{"", "10.0.0.2:29500", "10.0.0.3:7"},
			Calls: []string{"", "", "barrier, #8 completed"}, Err: errors.New("limit")},
		"goccl: group is broken: rank 1 aborted: loss is NaN": broken(&AbortError{1, "loss is NaN"}),
	} {
		if err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	err := &outer{"sub-group", []error{broken(peer)}}
	if !errors.Is(err, ErrBroken) || !errors.Is(err, io.EOF) || !errors.As(err, new(*PeerError)) {
		t.Errorf("%v does not wrap all", err)
	}
}
