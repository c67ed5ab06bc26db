package trace

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Merge lines the dumps of several ranks up by the numbers of their calls and says in words where they part. Dumps of
// different runs, epochs and groups come in sections of their own.
func Merge(dumps []*Dump) string {
	var b strings.Builder
	for i, s := range sections(dumps) {
		if i > 0 {
			b.WriteByte('\n')
		}
		s.write(&b)
	}
	return b.String()
}

// A section is the dumps of one group in one epoch of one run, one for each rank at most.
type section struct {
	dumps []*Dump // ascending by rank
	older []int   // ranks of which older dumps were left out

	from   uint64 // the first call that all of the dumps could record
	agreed uint64 // the last call that all of them have made, and as the same call, before they part
}

// key is what dumps of one section share.
func (d *Dump) key() string { return fmt.Sprintf("%q %q %d", d.RunID, d.Group, d.Size) }

func sections(dumps []*Dump) []*section {
	sorted := slices.Clone(dumps)
	slices.SortStableFunc(sorted, func(a, b *Dump) int {
		return cmp.Or(strings.Compare(a.RunID, b.RunID), cmp.Compare(a.Epoch, b.Epoch), strings.Compare(a.Group, b.Group),
			cmp.Compare(a.Size, b.Size), cmp.Compare(a.Rank, b.Rank), a.Time.Compare(b.Time))
	})
	var all []*section
	for i, d := range sorted {
		if i == 0 || d.key() != sorted[i-1].key() || d.Epoch != sorted[i-1].Epoch {
			all = append(all, &section{})
		}
		s := all[len(all)-1]
		if n := len(s.dumps); n > 0 && s.dumps[n-1].Rank == d.Rank {
			s.dumps[n-1] = d // the newer one
			s.older = append(s.older, d.Rank)
		} else {
			s.dumps = append(s.dumps, d)
		}
	}
	for _, s := range all {
		s.older = slices.Compact(s.older)
		s.align()
	}
	return all
}

// align finds the calls that all dumps have, and up to where they agree.
func (s *section) align() {
	s.from, s.agreed = s.dumps[0].first(), s.dumps[0].done()
	for _, d := range s.dumps[1:] {
		s.from, s.agreed = max(s.from, d.first()), min(s.agreed, d.done())
	}
	// A disagreement over the next call is where they part, even if a rank was still on its way out of the one before.
	for seq := s.from; seq <= s.least()+1; seq++ {
		if s.differ(seq) {
			s.agreed = seq - 1
			return
		}
	}
}

// least is the number of calls of the rank that has made the fewest.
func (s *section) least() uint64 {
	return slices.MinFunc(s.dumps, func(a, b *Dump) int { return cmp.Compare(a.Made, b.Made) }).Made
}

// differ reports whether the ranks that have made a call do not mean the same.
func (s *section) differ(seq uint64) bool {
	var first *Call
	for _, d := range s.dumps {
		switch c := d.call(seq); {
		case c == nil:
		case first == nil:
			first = c
		case c.What.String() != first.What.String():
			return true
		}
	}
	return false
}

// first is the number of the oldest recorded call, or of the next if there is none.
func (d *Dump) first() uint64 { return d.Made - uint64(len(d.Calls)) + 1 }

// done is the number of the last call that ended well, as far as the dump tells.
func (d *Dump) done() uint64 {
	if n := len(d.Calls); n > 0 && !d.Calls[n-1].completed() {
		return d.Made - 1
	}
	return d.Made
}

// call returns a recorded call, nil if it is not recorded.
func (d *Dump) call(seq uint64) *Call {
	if seq < d.first() || seq > d.Made {
		return nil
	}
	return &d.Calls[seq-d.first()]
}

func (s *section) write(b *strings.Builder) {
	fmt.Fprintf(b, "%s: %s\n", s.title(), s.agreement())
	if at := s.agreed + 1; s.inCall() {
		label := fmt.Sprintf("#%d ", at)
		for _, line := range append(s.standing(at), s.missing()...) {
			fmt.Fprintf(b, "%s %s\n", label, line)
			label = strings.Repeat(" ", len(label))
		}
	} else {
		for _, line := range s.missing() {
			fmt.Fprintf(b, "  %s\n", line)
		}
	}
	for _, line := range append(s.causes(), s.remarks()...) {
		fmt.Fprintf(b, "%s\n", line)
	}
	s.writeArrivals(b)
}

func (s *section) title() string {
	d := s.dumps[0]
	t := count(d.Size, "rank")
	if n := d.Size - len(s.dumps); n > 0 {
		t += fmt.Sprintf(" (%d without a dump)", n)
	}
	if d.RunID != "" {
		t += ", run " + plain(d.RunID)
	}
	t += fmt.Sprintf(", epoch %d", d.Epoch)
	if d.Group != "" {
		t += ", group " + plain(d.Group)
	}
	if d.Parents != nil {
		t += fmt.Sprintf(", formerly %s", ranks(d.Parents))
	}
	return t
}

// agreement says which calls were the same on all ranks.
func (s *section) agreement() string {
	switch {
	case s.from > s.agreed+1:
		return "no call is recorded by all ranks"
	case s.from > s.agreed && !s.inCall():
		return "no call was made"
	case s.from > s.agreed && s.from == 1:
		return "they part at the first call"
	case s.from > s.agreed:
		return "they part at the first call that all have recorded"
	}
	t := fmt.Sprintf("call #%d agrees", s.from)
	if s.from < s.agreed {
		t = fmt.Sprintf("calls #%d–#%d agree", s.from, s.agreed)
	}
	if s.from > 1 {
		t += ", earlier ones are no longer recorded"
	}
	if !s.inCall() {
		t += ", and no rank is in a call"
	}
	return t
}

// inCall reports whether any rank has begun a call beyond those that agree.
func (s *section) inCall() bool {
	return slices.ContainsFunc(s.dumps, func(d *Dump) bool { return d.Made > s.agreed })
}
