package trace

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	clockSlack = 10 * time.Microsecond // how far apart times of one clock may seem by rounding
	maxLate    = 8                     // how many ranks are listed as late
)

// writeArrivals says who entered last, over the calls that all ranks completed. The one that the others wait for most is
// the one to look at when a job is slow.
func (s *section) writeArrivals(b *strings.Builder) {
	if len(s.dumps) < 2 || s.from > s.agreed {
		return
	}
	late := s.late()
	var order []int // the dumps that were ever last, most often first
	for i, l := range late {
		if slices.Sort(l); len(l) > 0 {
			order = append(order, i)
		}
	}
	if order == nil {
		return
	}
	slices.SortStableFunc(order, func(i, j int) int { return len(late[j]) - len(late[i]) })
	fmt.Fprintf(b, "who entered last in %s (%s):\n", count(int(s.agreed-s.from+1), "call"), s.clocks())
	for _, i := range order[:min(len(order), maxLate)] {
		n := len(late[i])
		fmt.Fprintf(b, "  rank %d: %s, behind the first by %s in the median, %s at most\n",
			s.dumps[i].Rank, count(n, "time"), human(late[i][n/2]), human(late[i][n-1]))
	}
	if n := len(order) - maxLate; n > 0 {
		fmt.Fprintf(b, "  %s less often\n", count(n, "other rank"))
	}
}

// late says by dump how far it was behind the first, where it was the last to enter a call.
func (s *section) late() [][]time.Duration {
	late := make([][]time.Duration, len(s.dumps))
	for seq := s.from; seq <= s.agreed; seq++ {
		first, last := s.ends(seq)
		if behind := s.dumps[last].call(seq).Start.Sub(s.dumps[first].call(seq).Start); behind > 0 {
			late[last] = append(late[last], behind)
		}
	}
	return late
}

// ends returns the dumps that entered a call first and last.
func (s *section) ends(seq uint64) (first, last int) {
	for i, d := range s.dumps {
		at := d.call(seq).Start
		if at.Before(s.dumps[first].call(seq).Start) {
			first = i
		}
		if at.After(s.dumps[last].call(seq).Start) {
			last = i
		}
	}
	return first, last
}

// clocks says how far the ranks' times can be compared.
func (s *section) clocks() string {
	text := "by the clocks of their hosts: less than these differ by means nothing"
	if !slices.ContainsFunc(s.dumps, func(d *Dump) bool { return d.Host != s.dumps[0].Host }) {
		text = "all on host " + plain(s.dumps[0].Host)
	}
	if skew, ahead, behind := s.skew(); skew > clockSlack {
		text += fmt.Sprintf("; rank %d's clock is ahead of rank %d's by %s at least", ahead, behind, human(skew))
	}
	return text
}

// skew returns by how much two clocks differ at least: no rank leaves a call that needs all ranks before all have entered.
func (s *section) skew() (most time.Duration, ahead, behind int) {
	for seq := s.from; seq <= s.agreed; seq++ {
		if !s.dumps[0].call(seq).needsAll() {
			continue
		}
		_, last := s.ends(seq)
		entered := s.dumps[last]
		for _, d := range s.dumps {
			if gap := entered.call(seq).Start.Sub(d.call(seq).end()); gap > most {
				most, ahead, behind = gap, entered.Rank, d.Rank
			}
		}
	}
	return most, ahead, behind
}

// needsAll reports whether no rank can complete the call before every rank has entered it.
func (c *Call) needsAll() bool {
	switch c.Op {
	case "all-reduce", "barrier":
		return true
	case "all-gather", "reduce-scatter", "all-to-all":
		return c.Counts == "" && c.Count > 0
	}
	return false
}
