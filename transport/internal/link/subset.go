package link

import (
	"fmt"
	"slices"
)

// CheckSubset reports what is wrong with the arguments of a Subset call on a rank.
func CheckSubset(rank, size int, id uint64, ranks []int) error {
	if id == 0 {
		return fmt.Errorf("subset: id 0 is the whole group's")
	}
	seen := make([]bool, size)
	for _, p := range ranks {
		if p < 0 || p >= size || seen[p] {
			return fmt.Errorf("subset: ranks %v: %d is twice in them or not a rank of %d", ranks, p, size)
		}
		seen[p] = true
	}
	if !slices.Contains(ranks, rank) {
		return fmt.Errorf("subset: ranks %v do not contain this rank, %d", ranks, rank)
	}
	return nil
}
