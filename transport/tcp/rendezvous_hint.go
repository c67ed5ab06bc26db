package tcp

import (
	"errors"
	"fmt"
	"strings"
)

// A hint is what a refused caller said of itself. Anybody can say that, so it must not fail a start; but when the rank is
// missing in the end, it may well be why.
type hint struct {
	rank int
	text string
}

// maxHints bounds how many hints stand in one error; the roster keeps one for each rank.
const maxHints = 4

func newHint(h *hello, why error, from string) *hint {
	reason := why.Error()
	if r := (*rejection)(nil); errors.As(why, &r) {
		reason = r.text
	}
	return &hint{int(h.from), fmt.Sprintf("a caller from %s that said it was rank %d was refused: %s", from, h.from, reason)}
}

// remember keeps the latest hint of each rank that exists.
func (r *roster) remember(h *hint) {
	if h.rank >= 0 && h.rank < r.size {
		r.hints[h.rank] = h.text
	}
}

// hintsFor is what may explain why ranks are missing, for the end of a sentence.
func (r *roster) hintsFor(missing []int) string {
	var b strings.Builder
	n := 0
	for _, rank := range missing {
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
		fmt.Fprintf(&b, "; callers for %d more of them were refused too", n-maxHints)
	}
	return b.String()
}
