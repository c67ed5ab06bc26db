package main

import (
	"fmt"
	"os"
)

// A kill is the death of a rank on demand.
type kill struct {
	rank int // as the ranks were numbered at the start; -1: none
	step int // counted from the start of the training
}

// check refuses the death of a rank, or at a step, that there will not be.
func (k kill) check(ranks, steps int) error {
	switch {
	case k.rank < 0:
		return nil
	case k.rank >= ranks:
		return fmt.Errorf("-kill-rank %d: there are only %d ranks", k.rank, ranks)
	case k.step >= steps:
		return fmt.Errorf("-at-step %d: there are only %d steps", k.step, steps)
	}
	return nil
}

// asRank returns what kills this process before a step, if it is the one.
func (k kill) asRank(rank int) func(step int) {
	return func(step int) {
		if rank != k.rank || step != k.step {
			return
		}
		if self, err := os.FindProcess(os.Getpid()); err == nil && self.Kill() == nil {
			select {} // nothing of this process shall go on, such as a goodbye
		}
	}
}
