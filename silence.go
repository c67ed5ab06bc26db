package goccl

import "slices"

// silenced carries out what follows, beside the end of the collectives, from the verdict that ranks give no sign of life: the
// messages with them end, and the sub-groups that they are in learn of it. These send no heartbeats of their own.
func (g *ProcessGroup) silenced(s *silence) {
	for _, r := range s.ranks {
		g.p2p.lost(r, &silentError{s.absence})
	}
	for _, c := range g.children.all() {
		if inside := s.among(c.inside); inside != nil {
			c.mu.Lock()
			c.health.silence(inside)
			c.settle()
			c.silenced(inside)
			c.control.tell(&c.watch)
		}
	}
}

// among is a verdict as a sub-group of the given ranks sees it, nil if it does not concern it.
func (s *silence) among(ranks []int) *silence {
	in := silence{culprit: -1, absence: s.absence, reason: s.reason}
	for i, r := range ranks {
		if slices.Contains(s.ranks, r) {
			in.ranks = append(in.ranks, i)
		}
		if r == s.culprit {
			in.culprit = i
		}
	}
	if in.ranks == nil {
		return nil
	}
	if in.culprit < 0 {
		in.culprit, in.reason = in.ranks[0], s.absence
	}
	return &in
}
