package goccl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
)

// shrinking is one call of Shrink.
type shrinking struct {
	g        *ProcessGroup
	seen     uint32 // how many decisions have been looked at
	open     *nextOpening
	reported bool  // how open went
	larger   bool  // take has returned the group that Admit had made
	lastErr  error // of an attempt
}

// A shrinkView is what one look at the agreement shows.
type shrinkView struct {
	closed   bool
	orphaned error // the parent has ended
	result   agreedResult
	instance uint32
	attempt  proposal
	member   bool // this rank is in attempt
	doomed   bool
	commit   bool
}

func (s *shrinking) look() shrinkView {
	g := s.g
	var orphaned error
	if g.parent != nil {
		orphaned = g.parent.children.endedBy()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.shrink.agreement
	return shrinkView{
		closed: g.closed || g.torn, orphaned: orphaned, result: a.result, instance: a.instance, attempt: a.attempt,
		member: slices.Contains(a.base, g.rank), doomed: a.doomed(), commit: a.committed && a.holds(),
	}
}

// run returns the next group, made but not yet used, and whose old one is still there.
func (s *shrinking) run(ctx context.Context) (*ProcessGroup, error) {
	for {
		v := s.look()
		switch {
		case v.closed:
			return nil, net.ErrClosed
		case v.orphaned != nil:
			return nil, orphaned(v.orphaned)
		case v.result == agreedCommit, v.commit && ctx.Err() != nil: // the others may be told yet
			return s.take(v.attempt), nil
		case v.result == agreedExcluded:
			return nil, s.excluded(v.attempt)
		case v.result == agreedNoMajority:
			return nil, s.noMajority()
		}
		s.follow(ctx, &v)
		if ctx.Err() != nil {
			return nil, s.overdue(ctx)
		}
		select {
		case <-s.g.shrink.news:
		case <-s.opened():
			s.report()
		case <-ctx.Done():
		}
	}
}

// follow starts to open an attempt that is new, and stops what has become pointless.
func (s *shrinking) follow(ctx context.Context, v *shrinkView) {
	if v.instance > s.seen && v.member && !v.attempt.commit {
		s.seen, s.reported = v.instance, false
		s.open = s.g.openNext(ctx, v.attempt, s.open)
		s.open.instance = v.instance - 1
	}
	if v.doomed && s.open != nil && !s.reported {
		s.open.cancel()
	}
}

// opened returns the channel that tells when the attempt has ended here; nil if that is known, or there is none.
func (s *shrinking) opened() <-chan struct{} {
	if s.open == nil || s.reported {
		return nil
	}
	return s.open.done
}

func (s *shrinking) report() {
	s.reported = true
	blame := -1
	if err := s.open.err; err != nil {
		var peer *PeerError
		if errors.As(err, &peer) && peer.Rank >= 0 && peer.Rank < len(s.open.ranks) {
			blame = s.open.ranks[peer.Rank]
		}
		s.lastErr = err
	}
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	s.g.shrink.agreement.opened(s.open.instance, s.open.err == nil, blame)
	s.g.postAgreed()
}

// take makes the next group of the transport that has been opened, or takes the larger one that Admit has made.
func (s *shrinking) take(v proposal) *ProcessGroup {
	if larger := s.g.takeLarger(v.epoch); larger != nil {
		s.larger = true
		return larger
	}
	t := s.open.t
	s.open = nil
	return s.g.succeed(t, v.epoch, v.ranks)
}

func (s *shrinking) excluded(v proposal) error {
	ranks := slices.DeleteFunc(slices.Clone(v.ranks), func(r int) bool { return r == s.g.rank })
	return &ExcludedError{Epoch: v.epoch, Ranks: ranks}
}

func (s *shrinking) noMajority() error {
	s.g.mu.Lock()
	a := s.g.shrink.agreement
	err := fmt.Errorf("goccl: shrink: ranks %v are left of %v: %w", a.survivors(), a.base, ErrNoMajority)
	s.g.mu.Unlock()
	if s.lastErr != nil {
		return fmt.Errorf("%w; opening failed: %w", err, s.lastErr)
	}
	return err
}

// overdue is the error when ctx has ended.
func (s *shrinking) overdue(ctx context.Context) error {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("goccl: shrink: %w", context.Cause(ctx))
	}
	g := s.g
	g.mu.Lock()
	defer g.mu.Unlock()
	err := g.health.stallError(callReport{}, g.shrink.agreement.waitsFor(), context.Cause(ctx))
	err.Op = opShrink
	err.Calls[g.rank] = opShrink
	return err
}
