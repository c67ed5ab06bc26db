package link

import (
	"fmt"
	"slices"

	"github.com/goccl/goccl/transport"
)

// CheckEpoch reports what is wrong with the argument of a Regroup call on a rank whose own epoch is given.
func CheckEpoch(rank, size int, epoch uint64, next transport.Epoch) error {
	if next.Number <= epoch {
		return fmt.Errorf("regroup: epoch %d does not come after epoch %d", next.Number, epoch)
	}
	seen := make([]bool, size)
	for _, p := range next.Ranks {
		if p < 0 || p >= size || seen[p] {
			return fmt.Errorf("regroup: ranks %v: %d is twice in them or not a rank of %d", next.Ranks, p, size)
		}
		seen[p] = true
	}
	if !slices.Contains(next.Ranks, rank) {
		return fmt.Errorf("regroup: ranks %v do not contain this rank, %d", next.Ranks, rank)
	}
	return nil
}
