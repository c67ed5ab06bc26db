package faults

import (
	"context"
	"time"

	"github.com/goccl/goccl"
)

// shrinkBound bounds a Shrink: much longer than one should take.
const shrinkBound = 30 * time.Second

func (s *self) shrink(ctx context.Context, g *goccl.ProcessGroup) *goccl.ProcessGroup {
	ctx, cancel := context.WithTimeout(ctx, shrinkBound)
	defer cancel()
	next, err := g.Shrink(ctx)
	if err == nil {
		s.say("shrunk", nil)
		return next
	}
	s.say("not shrunk", func(r *report) { r.Failure = describe(err) })
	s.done(g.Close(), "")
	return nil
}
