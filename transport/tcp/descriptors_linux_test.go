package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goccl/goccl/transport"
)

// limitFiles gives this process, which is a test's own, few descriptors.
func limitFiles(t *testing.T, n uint64) {
	t.Helper()
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: n}); err != nil {
		t.Fatal(err)
	}
}

// hog takes all descriptors but some. Go's own take one or two first.
func hog(t *testing.T, but int) (free func()) {
	t.Helper()
	var taken []*os.File
	for {
		f, err := os.Open(os.DevNull)
		if errors.Is(err, syscall.EMFILE) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		taken = append(taken, f)
	}
	for _, f := range taken[:but] {
		f.Close()
	}
	return func() {
		for _, f := range taken[but:] {
			f.Close()
		}
	}
}

// subsetOfAll opens a sub-group of all ranks. When one cannot, the others give up, as in a group; all do when none of the ranks
// has a descriptor left to accept with.
func subsetOfAll(t *testing.T, ts []*Transport, id uint64, patience time.Duration) []error {
	all := make([]int, len(ts))
	for r := range all {
		all[r] = r
	}
	errs := make([]error, len(ts))
	ctx, giveUp := context.WithTimeout(t.Context(), patience)
	defer giveUp()
	var wg sync.WaitGroup
	for r := range ts {
		wg.Go(func() {
			var sub transport.Transport
			if sub, errs[r] = ts[r].Subset(ctx, id, all); errs[r] != nil {
				giveUp()
			} else {
				errs[r] = sub.Close()
			}
		})
	}
	wg.Wait()
	return errs
}

// Wherever the descriptors end while a sub-group is opened, that is an error which says so and blames no peer, and costs nothing
// else: the next one can be opened.
func TestDescriptorsEndInSubset(t *testing.T) {
	if !inChild(t, nil) {
		return
	}
	limitFiles(t, 200)
	ts := newWorld(t, 2, Config{})
	failed, opened := 0, 0
	for but := range 24 {
		free := hog(t, but)
		errs := subsetOfAll(t, ts, uint64(2*but+1), 300*time.Millisecond)
		free()
		for r, err := range errs {
			switch peer := (*transport.PeerError)(nil); {
			case err == nil:
				opened++
			case outOfDescriptors(err) && errors.As(err, &peer):
				t.Errorf("rank %d, %d descriptors left: its own lack is blamed on a peer: %v", r, but, err)
			default:
				failed++
			}
		}
		noErrors(t, subsetOfAll(t, ts, uint64(2*but+2), 10*time.Second))
	}
	if failed == 0 || opened == 0 {
		t.Errorf("%d failed, %d opened: want some of both", failed, opened)
	}
}

// Descriptors that strangers hold are taken from them when a sub-group needs them.
func TestSubsetDespiteStrangers(t *testing.T) {
	if !inChild(t, nil) {
		return
	}
	limitFiles(t, 200)
	ts := newWorld(t, 2, Config{})
	for round := range 12 {
		var conns []net.Conn
		for i := range 2 * 10 {
			c, err := net.Dial("tcp", ts[0].Addr(i%2))
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, c)
		}
		for _, tr := range ts {
			s := tr.mesh.host.srv
			eventually(t, "the strangers to come", func() (bool, string) {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.pending.Len() >= 10, fmt.Sprint(s.pending.Len())
			})
		}
		free := hog(t, round)
		noErrors(t, subsetOfAll(t, ts, uint64(round+1), 10*time.Second))
		free()
		for _, c := range conns {
			c.Close()
		}
	}
}
