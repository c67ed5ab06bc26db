package trace

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A party is ranks of which the same is to be said. In its words, howLong stands for the durations.
type party struct {
	words string
	ranks []int
	durations
}

// durations are the shortest and the longest of some.
type durations struct{ least, most time.Duration }

func (d durations) String() string {
	if human(d.least) == human(d.most) {
		return human(d.most)
	}
	return human(d.least) + " to " + human(d.most)
}

// parties collects ranks by what is said of them, in the order of their first ranks.
type parties []party

func (p *parties) add(rank int, d time.Duration, words string) {
	i := slices.IndexFunc(*p, func(q party) bool { return q.words == words })
	if i < 0 {
		*p = append(*p, party{words: words, ranks: []int{rank}, durations: durations{d, d}})
		return
	}
	q := &(*p)[i]
	q.ranks = append(q.ranks, rank)
	q.least, q.most = min(q.least, d), max(q.most, d)
}

func (p parties) lines() []string {
	var lines []string
	for _, q := range p {
		words := strings.Replace(q.words, howLong, q.durations.String(), 1)
		lines = append(lines, fmt.Sprintf("%s: %s", ranks(q.ranks), words))
	}
	return lines
}

// howLong stands for a party's durations; no words from a dump have it, since plain lets no control character through.
const howLong = "\x00"

// standing says where every rank with a dump stands at the call with that number.
func (s *section) standing(seq uint64) []string {
	var p parties
	for _, d := range s.dumps {
		words, took := d.standing(seq)
		if d.Waiting > 0 {
			words += fmt.Sprintf(", %s in line behind", count(d.Waiting, "call"))
		}
		p.add(d.Rank, took, words)
	}
	return p.lines()
}

func (d *Dump) standing(seq uint64) (words string, took time.Duration) {
	c := d.call(seq)
	switch {
	case d.Made < seq && d.Made == 0:
		return "has made no call", 0
	case d.Made < seq:
		return d.idle(seq)
	case c == nil:
		words = "completed, no longer recorded"
	case !c.completed():
		return c.pending()
	default:
		words = c.What.String() + ", completed"
	}
	if d.Made == seq {
		return words, 0
	}
	last := d.call(d.Made)
	if last == nil {
		return fmt.Sprintf("%s; has begun #%d", words, d.Made), 0
	}
	if last.completed() {
		return fmt.Sprintf("%s; came as far as #%d, also completed", words, d.Made), 0
	}
	more, took := last.pending()
	return fmt.Sprintf("%s; is at #%d %s", words, d.Made, more), took
}

// pending says how a call stands that has not ended well. Whether it has failed already or is about to when a dump of the
// failure is made is a matter of luck, so there is no difference in the words.
func (c *Call) pending() (words string, took time.Duration) {
	return fmt.Sprintf("%v, in it for %s", c.What, howLong), c.took()
}

// idle says what a rank did last that has not come to the call with that number.
func (d *Dump) idle(seq uint64) (words string, took time.Duration) {
	last := d.call(d.Made)
	if last == nil {
		return fmt.Sprintf("completed #%d, has not called #%d", d.Made, seq), 0
	}
	if !last.completed() {
		words, took = last.pending()
		return fmt.Sprintf("still in #%d %s, has not called #%d", d.Made, words, seq), took
	}
	took = max(0, d.Time.Sub(last.end()))
	return fmt.Sprintf("completed #%d %v, has not called #%d (idle for %s)", d.Made, last.What, seq, howLong), took
}

// known is what others tell of a rank.
type known struct {
	state string
	last  *Report
}

func (k known) String() string {
	return fmt.Sprintf("no dump; the others know: %s, %s", stateWords(k.state), k.last.words())
}

// missing says what is known of the ranks without a dump.
func (s *section) missing() []string {
	about := map[int]known{}
	for _, d := range s.dumps {
		for _, p := range d.Peers {
			k := about[p.Rank]
			if gravity(p.State) >= gravity(k.state) {
				k.state = p.State
			}
			if p.Last.after(k.last) {
				k.last = p.Last
			}
			about[p.Rank] = k
		}
	}
	var p parties
	name, nothing := "", known{}.String()
	for r, i := 0, 0; r < s.dumps[0].Size; r++ {
		if i < len(s.dumps) && s.dumps[i].Rank == r {
			i++
			continue
		}
		if name == "" {
			d := s.dumps[0]
			name = FileName(d.RunID, d.Epoch, d.Group, r)
		}
		words := nothing
		if k, ok := about[r]; ok {
			words = k.String()
		}
		p.add(r, 0, words)
	}
	lines := p.lines()
	if len(lines) > 0 {
		lines[0] = strings.Replace(lines[0], "no dump;", "no dump ("+name+");", 1)
	}
	return lines
}

// after reports whether r is newer than s.
func (r *Report) after(s *Report) bool {
	return r != nil && (s == nil || r.Seq > s.Seq || r.Seq == s.Seq && s.Running && !r.Running)
}

func (r *Report) words() string {
	switch {
	case r == nil:
		return "told nothing of its calls"
	case r.Seq == 0:
		return "had made no call"
	case r.Running:
		return fmt.Sprintf("last told to be in #%d %v", r.Seq, r.What)
	}
	return fmt.Sprintf("last told to have completed #%d %v", r.Seq, r.What)
}

// gravity orders states by how little is left of a rank.
func gravity(state string) int {
	return slices.Index([]string{StateOK, StateLeft, StateSilent, StateLost}, state)
}

func stateWords(state string) string {
	switch state {
	case StateOK, "":
		return "connected"
	case StateLeft:
		return "left in order"
	case StateSilent:
		return "gave no sign of life"
	case StateLost:
		return "connection ended"
	}
	return plain(state)
}

// causes says what broke the group, according to whom. Ranks word the same cause differently, as it came to them: the
// shortest is the one of who met it.
func (s *section) causes() []string {
	type verdict struct {
		text  string
		ranks []int
	}
	var all []verdict
	index := map[string]int{}
	var none []int
	for _, d := range s.dumps {
		if d.Cause == nil {
			none = append(none, d.Rank)
			continue
		}
		text := plain(strings.TrimPrefix(d.Cause.Text, "goccl: "))
		key := fmt.Sprint(d.Cause.Kind, d.Cause.Rank, d.Cause.Missing)
		switch d.Cause.Kind {
		case "mismatch": // each blames another
			key = text
		case "stall": // each waited for itself
			key = fmt.Sprint(d.Cause.Kind, d.Cause.Missing)
		}
		i, ok := index[key]
		if !ok {
			i = len(all)
			index[key] = i
			all = append(all, verdict{text: text})
		}
		v := &all[i]
		v.ranks = append(v.ranks, d.Rank)
		if len(text) < len(v.text) {
			v.text = text
		}
	}
	var lines []string
	for _, v := range all {
		who := "all"
		if len(v.ranks) < len(s.dumps) {
			who = ranks(v.ranks)
		}
		lines = append(lines, fmt.Sprintf("first cause, by %s: %s", who, v.text))
	}
	switch {
	case len(none) == len(s.dumps):
		lines = append(lines, "no rank knows of a failure")
	case len(none) > 0:
		lines = append(lines, ranks(none)+": no failure known")
	}
	return lines
}

// remarks says what makes the comparison doubtful.
func (s *section) remarks() []string {
	var lines []string
	if len(s.older) > 0 {
		lines = append(lines, fmt.Sprintf("more than one dump of %s: only the newest was read", ranks(s.older)))
	}
	oldest := slices.MinFunc(s.dumps, func(a, b *Dump) int { return a.Time.Compare(b.Time) })
	newest := slices.MaxFunc(s.dumps, func(a, b *Dump) int { return a.Time.Compare(b.Time) })
	if gap := newest.Time.Sub(oldest.Time); gap >= time.Second {
		lines = append(lines, fmt.Sprintf("the dumps are not of one moment: rank %d's is %s older than rank %d's",
			oldest.Rank, human(gap), newest.Rank))
	}
	return lines
}
