package tcp

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

// A roster is the coordinator's knowledge as a pure state machine: who has come, who has reported, what failed first.
type roster struct {
	size     int
	sizeFrom string // whose size that is, for messages
	members  []*member
	came     int
	fine     int
	hints    map[int]string // by claimed rank
}

// A member is a rank that has registered.
type member struct {
	rank, size int
	addr       string // for messages
	reg        registration
	reported   bool
}

func (m *member) String() string { return fmt.Sprintf("rank %d (%s)", m.rank, m.addr) }

func newRoster(size int, sizeFrom string) *roster {
	return &roster{size: size, sizeFrom: sizeFrom, members: make([]*member, size), hints: make(map[int]string)}
}

// admit enters a rank, or says why the start has failed.
func (r *roster) admit(m *member) *outcome {
	switch {
	case m.size != r.size:
		return failed([]int{m.rank}, "sizes disagree: rank %d (%s) says %d, %s says %d", m.rank, m.addr, m.size, r.sizeFrom, r.size)
	case m.rank < 0 || m.rank >= r.size:
		return failed([]int{m.rank}, "rank %d (%s) does not exist among %d", m.rank, m.addr, r.size)
	case r.members[m.rank] != nil:
		return failed([]int{m.rank}, "rank %d is claimed twice: by %s and by %s", m.rank, r.members[m.rank].addr, m.addr)
	case m.reg.problem != "":
		return failed([]int{m.rank}, "rank %d (%s): %s", m.rank, m.addr, m.reg.problem)
	}
	for _, other := range r.members {
		if other == nil {
			continue
		}
		if o := differingOption(other, m); o != nil {
			return o
		}
		break // all that came before are equal
	}
	r.members[m.rank] = m
	r.came++
	return nil
}

// differingOption names the first option in which two members differ.
func differingOption(a, b *member) *outcome {
	if a.rank > b.rank {
		a, b = b, a
	}
	key, have, want, differ := compareOptions(a.reg.options, b.reg.options)
	if !differ {
		return nil
	}
	return failed([]int{a.rank, b.rank}, "option %q differs: rank %d (%s) has %s, rank %d (%s) has %s",
		key, a.rank, a.addr, have, b.rank, b.addr, want)
}

// compareOptions finds the first option in which two lists differ, and how.
func compareOptions(x, y []option) (key, inX, inY string, differ bool) {
	for len(x) > 0 || len(y) > 0 {
		switch {
		case len(y) == 0 || len(x) > 0 && x[0].key < y[0].key:
			return x[0].key, fmt.Sprintf("%q", x[0].value), "nothing", true
		case len(x) == 0 || y[0].key < x[0].key:
			return y[0].key, "nothing", fmt.Sprintf("%q", y[0].value), true
		case x[0].value != y[0].value:
			return x[0].key, fmt.Sprintf("%q", x[0].value), fmt.Sprintf("%q", y[0].value), true
		}
		x, y = x[1:], y[1:]
	}
	return "", "", "", false
}

func (r *roster) full() bool { return r.came == r.size }

// missing lists the ranks that have not come.
func (r *roster) missing() []int {
	var list []int
	for rank, m := range r.members {
		if m == nil {
			list = append(list, rank)
		}
	}
	return list
}

// unreported lists the ranks whose result is out.
func (r *roster) unreported() []int {
	var list []int
	for rank, m := range r.members {
		if m != nil && !m.reported {
			list = append(list, rank)
		}
	}
	return list
}

// report takes a rank's result; it returns the verdict when there is one.
func (r *roster) report(m *member, o *outcome) *outcome {
	if o.code == outcomeFine {
		if !m.reported && r.full() {
			m.reported = true
			r.fine++
		}
		if r.fine == r.size {
			return &outcome{}
		}
		return nil
	}
	who := m.String()
	if o.code == outcomeLate && len(o.ranks) == 0 { // it waited for others, and who they are is known best here
		return r.timedOut("at " + who + " " + o.text)
	}
	return &outcome{code: o.code, ranks: []int{m.rank}, text: who + ": " + o.text}
}

// lost is a registered rank whose connection ended before the verdict.
func (r *roster) lost(m *member) *outcome {
	return failed([]int{m.rank}, "rank %d (%s) was lost before all were connected", m.rank, m.addr)
}

// timedOut is what everybody hears when a deadline passes; where says whose, and after what time.
func (r *roster) timedOut(where string) *outcome {
	if missing := r.missing(); len(missing) > 0 {
		return &outcome{code: outcomeMissing, ranks: missing, text: "deadline passed " + where + ": " + missingText(missing) + r.hintsFor(missing)}
	}
	late := r.unreported()
	return &outcome{code: outcomeLate, ranks: late, text: "deadline passed " + where + ": not connected to all others: " + rankList(late)}
}

// table is what all ranks get once everybody is there, or why they cannot.
func (r *roster) table(world [16]byte) (*table, *outcome) {
	t := &table{world: world, peers: make([]peerInfo, r.size)}
	for rank, m := range r.members {
		t.peers[rank] = m.reg.info
	}
	if o := r.unreachable(); o != nil {
		return nil, o
	}
	return t, nil
}

// unreachable finds a rank that told ranks of other hosts to look for it on their own.
func (r *roster) unreachable() *outcome {
	for _, m := range r.members {
		host, _, err := net.SplitHostPort(m.reg.info.tcp)
		if err != nil {
			return failed([]int{m.rank}, "rank %d advertises %q, which is no address", m.rank, m.reg.info.tcp)
		}
		if m.reg.info.shared || !loopback(host) {
			continue
		}
		for _, other := range r.members {
			if other.reg.info.host != m.reg.info.host {
				return failed([]int{m.rank}, "rank %d advertises the loopback address %s, which rank %d (%s) on another host cannot reach: set Listen, Advertise or Interface",
					m.rank, m.reg.info.tcp, other.rank, other.addr)
			}
		}
	}
	return nil
}

func missingText(ranks []int) string { return "missing: " + rankList(ranks) }

// rankList reads "rank 2" or "ranks 2, 5"; runs of three and more are shortened, "ranks 2–9, 12".
func rankList(ranks []int) string {
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d", ranks[0])
	}
	ranks = slices.Sorted(slices.Values(ranks))
	var parts []string
	for i := 0; i < len(ranks); {
		j := i
		for j+1 < len(ranks) && ranks[j+1] == ranks[j]+1 {
			j++
		}
		if j-i >= 2 {
			parts = append(parts, fmt.Sprintf("%d–%d", ranks[i], ranks[j]))
		} else {
			for k := i; k <= j; k++ {
				parts = append(parts, fmt.Sprint(ranks[k]))
			}
		}
		i = j + 1
	}
	return "ranks " + strings.Join(parts, ", ")
}

// after is a duration as people read it.
func after(d time.Duration) string { return "after " + round(d).String() }

func round(d time.Duration) time.Duration {
	unit := time.Millisecond
	if d > 10*time.Second {
		unit = 100 * time.Millisecond
	}
	return d.Round(unit)
}
