package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccl/goccl"
)

// survive runs work, which begins with agree, until it is done. Each time a rank is lost the others go on without it.
func (t *trainer) survive(ctx context.Context, work func(context.Context) error) error {
	for {
		err := work(ctx)
		var lost *goccl.PeerError
		if !errors.As(err, &lost) {
			return err // nil: done; else nothing that going on without somebody would mend
		}
		if err := t.shrink(ctx, lost); err != nil {
			return err
		}
	}
}

// shrink makes the survivors the group. They may stand before or after the step in which the rank was lost; agree settles that.
func (t *trainer) shrink(ctx context.Context, lost *goccl.PeerError) error {
	g, err := t.group.Shrink(ctx)
	if err != nil {
		return fmt.Errorf("digits: cannot go on: %w; it began with %w", err, lost)
	}
	t.goOnWith(g, fmt.Sprintf("lost in %s #%d", lost.Op, lost.Seq))
	return nil
}

// admit lets in the processes that wait for it. All ranks call it at the same place; a newcomer comes here too, after its
// first agree, and so the others ask again until nobody waits.
func (t *trainer) admit(ctx context.Context) error {
	for {
		g, err := t.group.Admit(ctx)
		switch {
		case err != nil && t.group.Err() == nil:
			return nil // whoever came did not make it; the group is as before
		case err != nil || g == t.group:
			return err
		}
		t.goOnWith(g, "lost")
		if err := t.agree(ctx); err != nil {
			return err
		}
	}
}

// goOnWith takes the group that follows the last one, and says who has gone and come.
func (t *trainer) goOnWith(g *goccl.ProcessGroup, lost string) {
	from := g.ParentRanks() // -1 for who has come
	var gone []int
	for r := range t.group.Size() {
		if !slices.Contains(from, r) {
			gone = append(gone, r)
		}
	}
	came := g.Size() - (t.group.Size() - len(gone))
	t.use(g)
	if len(gone) > 0 {
		t.changed(fmt.Sprintf("%s %s, going on with %d ranks", names(gone), lost, g.Size()))
	}
	switch {
	case came == 1:
		t.changed(fmt.Sprintf("a process returned, %d ranks", g.Size()))
	case came > 1:
		t.changed(fmt.Sprintf("%d processes returned, %d ranks", came, g.Size()))
	}
}

// agree gives every rank rank 0's state. It is what the ranks of a new group do first: at the start, after a loss, and after
// an admission. The state is one message, taken over only when it is complete: another rank may be lost meanwhile, and the
// next rank 0 must not have half of it.
func (t *trainer) agree(ctx context.Context) error {
	params, velocity := t.network.params, t.optimizer.velocity
	state := slices.Concat(params, velocity, []float64{float64(t.epoch), float64(t.step)})
	if err := goccl.Broadcast(ctx, t.group, state, 0); err != nil {
		return err
	}
	state = state[copy(params, state):]
	state = state[copy(velocity, state):]
	if epoch := int(state[0]); epoch != t.epoch {
		t.epoch, t.sums = epoch, sums{}
	}
	t.step = int(state[1])
	return nil
}

func names(ranks []int) string {
	if len(ranks) == 1 {
		return fmt.Sprint("rank ", ranks[0])
	}
	return "ranks " + strings.Trim(fmt.Sprint(ranks), "[]")
}
