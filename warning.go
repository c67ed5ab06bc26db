package goccl

import (
	"fmt"
	"strings"
	"time"
)

// A stallWarning is what is logged of a call that takes long.
type stallWarning struct {
	StallError
	waited time.Duration
}

// tickWarning warns of the running call once it has taken long. It first asks who is missing. at is tick's.
func (h *health) tickWarning(now time.Time, at func(time.Time) bool) {
	if at(h.warnAt) {
		h.ask()
		h.warnAt, h.warnBy = time.Time{}, now.Add(decideGrace)
	}
	if !h.warnBy.IsZero() && (h.allAnswered() || at(h.warnBy)) {
		h.warning = &stallWarning{*h.stallError(h.mine, h.missing(), nil), now.Sub(h.beganAt)}
		h.warnBy = time.Time{}
	}
}

// takeWarning returns the warning that is to be logged, nil for none.
func (h *health) takeWarning() *stallWarning {
	w := h.warning
	h.warning = nil
	return w
}

func (w *stallWarning) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "goccl: %s #%d waits", w.Op, w.Seq)
	if len(w.Missing) == 0 {
		b.WriteString(", all ranks are in the call")
	} else {
		b.WriteString(" for")
		w.writeMissing(&b)
	}
	return b.String()
}

func (w *stallWarning) log(g *ProcessGroup) {
	attrs := []any{"rank", g.rank, "op", w.Op, "seq", w.Seq, "missing", w.Missing, "calls", w.Calls, "waited", w.waited.Round(time.Millisecond)}
	if g.ranks != nil {
		attrs = append(attrs, "parent_ranks", g.ranks)
	}
	g.cfg.logger().Warn(w.String(), attrs...)
}

// warnLater warns of a send or receive that is not over, by a call of stop, when it has taken long. what includes the
// preposition.
func (p *p2p) warnLater(what string, peer int, tag uint32) (stop func()) {
	after := p.g.cfg.stallWarning()
	if after == 0 {
		return func() {}
	}
	timer := time.AfterFunc(after, func() {
		text := fmt.Sprintf("goccl: %s rank %d tag %d waits", what, peer, tag)
		op, _, _ := strings.Cut(what, " ")
		if op == "send" && p.peers[peer].full.Load() {
			text += fmt.Sprintf(", mailbox full at rank %d", peer)
		}
		p.g.cfg.logger().Warn(text, "rank", p.g.rank, "op", op, "peer", peer, "tag", tag, "waited", after)
	})
	return func() { timer.Stop() }
}
