package trace

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

const maxPlain = 600 // characters of a text from a dump

// plain makes text from a dump fit for a terminal: one line of bounded length, without control characters.
func plain(s string) string {
	n := 0
	for i := range s {
		if n++; n > maxPlain {
			s = s[:i] + "…"
			break
		}
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		if unicode.IsSpace(r) {
			return ' '
		}
		return '?'
	}, s)
}

// ranks names ranks: "rank 3", "ranks 0, 2".
func ranks(rs []int) string {
	if len(rs) == 1 {
		return "rank " + list(rs)
	}
	return "ranks " + list(rs)
}

// list writes numbers, three and more in a row as "0–5".
func list(rs []int) string {
	var parts []string
	for len(rs) > 0 {
		n := 1
		for n < len(rs) && rs[n] == rs[n-1]+1 {
			n++
		}
		if n >= 3 {
			parts = append(parts, fmt.Sprintf("%d–%d", rs[0], rs[n-1]))
		} else {
			n = 1
			parts = append(parts, fmt.Sprint(rs[0]))
		}
		rs = rs[n:]
	}
	return strings.Join(parts, ", ")
}

// count writes a number of things: "1 call", "2 calls".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// human writes a duration with three digits or so.
func human(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.1f ms", 1000*d.Seconds())
	}
	return fmt.Sprintf("%d µs", max(0, d.Microseconds()))
}
