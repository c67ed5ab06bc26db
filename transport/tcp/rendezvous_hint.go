package tcp

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A hint is what a refused caller said of itself, or one that refused this end. Anybody can say that, so it must not fail a start; but when the rank is
// missing in the end, it may well be why.
type hint struct {
	rank int // nameless: it did not say
	text string
}

const nameless = -1

// maxHints bounds how many hints stand in one error; the roster keeps one for each rank.
const maxHints = 4

func newHint(h *hello, why error, from string) *hint {
	reason := why.Error()
	if r := (*rejection)(nil); errors.As(why, &r) {
		reason = r.text
	}
	var t *tlsError
	switch {
	case errors.As(why, &t) && t.theirs:
		return &hint{nameless, fmt.Sprintf("a caller from %s turned away: %s", from, reason)}
	case h == nil:
		return &hint{nameless, fmt.Sprintf("a caller from %s was refused: %s", from, reason)}
	}
	return &hint{int(h.from), fmt.Sprintf("a caller from %s that said it was rank %d was refused: %s", from, h.from, reason)}
}

// remember keeps the latest hint of each rank that exists, and the latest of those that did not say which they are.
func (r *roster) remember(h *hint) {
	if h.rank >= nameless && h.rank < r.size {
		r.hints[h.rank] = h.text
	}
}

// hintsFor is what may explain why ranks are missing, for the end of a sentence.
func (r *roster) hintsFor(missing []int) string {
	var b strings.Builder
	n := 0
	for _, rank := range append(slices.Clip(missing), nameless) {
		text, ok := r.hints[rank]
		if !ok {
			continue
		}
		if n++; n > maxHints {
			continue
		}
		b.WriteString("; " + text)
	}
	if n > maxHints {
		fmt.Fprintf(&b, "; %d more callers were refused", n-maxHints)
	}
	return b.String()
}
