package goccl

import (
	"fmt"
	"math"
	"strings"

	"github.com/goccl/goccl/dtype"
	"github.com/goccl/goccl/ring"
)

// plan puts ring's choice into words.
func plan(op string, t dtype.Type, count, size int, forced Algorithm) string {
	name, reduction, _ := strings.Cut(strings.TrimSpace(op), " ")
	o, err := ring.ParseOp(name)
	if err != nil {
		return err.Error()
	}
	reduce := Sum
	if reduction != "" {
		if reduce, err = dtype.ParseReduceOp(reduction); err != nil {
			return err.Error()
		}
	}
	if !t.Valid() || count < 0 || count > math.MaxInt/t.Size() {
		return fmt.Sprintf("goccl: plan of %v x %d: no such buffer", t, count)
	}
	all := dtype.Device(t, 0, count, 0) // the choice looks at type and count only
	a, why := ring.Choose(&ring.Call{Op: o, Dst: all, Src: all, Reduce: reduce}, size, forced, nil)
	return fmt.Sprintf("%v %v x %d on %d ranks: %v (%s)", o, t, count, size, a, why)
}
