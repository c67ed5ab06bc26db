package goccl

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// The simulation runs the agreement of a few ranks over streams that deliver in order but whenever the schedule likes, with
// crashes, cuts, withdrawals and the opening of groups, and lets those who go on agree again in their next group.

type simFaults struct {
	crashes, cuts, withdrawals int
	split                      bool // the world falls into two halves, one stream after the other
	early                      bool // a silent rank may be held for gone while what it sent is still on its way
	minority                   bool
	admits                     bool // the first group broke in an Admit, which all or only some of its ranks could make
}

type shrinkSim struct {
	rng     *rand.Rand
	faults  simFaults
	n       int
	crashed []bool
	cut     [][]bool // cut[i][j]: nothing from i reaches j any more
	doomed  [][2]int // streams yet to be cut by the split
	planned simFaults
	first   *simGroup
	groups  []*simGroup
	logs    bool // keep a log, which takes long
	log     []string
	steps   int
	actions []simAction
	lone    int // ranks crashed before anybody called Shrink
	offered int // the rank of the first group that may learn that every rank has what Admit made; -1: none
}

type simGroup struct {
	parent  *simGroup
	level   int
	epoch   uint64
	members []int // ids
	seats   []*simSeat
	queues  [][][]agreedMessage // [from][to]
	decided map[uint32]proposal
	tries   map[uint64]*simTry
	next    map[string]*simGroup
}

// A simSeat is a member's place in a group.
type simSeat struct {
	id     int
	a      *agreement // nil: the member has not got the group
	called bool       // Shrink is running, or has returned
	gone   []bool     // ranks noticed to be gone
	result agreedResult
	ended  bool // Shrink has returned
	quit   bool // by a withdrawal
	seen   uint32
	try    *simTry // being opened
}

// A simTry is the opening of one group.
type simTry struct {
	instance uint32
	epoch    uint64
	ranks    []int
	started  map[int]bool
	aborted  map[int]bool
}

type simAction struct {
	kind string
	g    *simGroup
	i, j int
}

func newShrinkSim(seed uint64, n int, faults simFaults) *shrinkSim {
	s := &shrinkSim{offered: -1, rng: rand.New(rand.NewPCG(seed, uint64(n))), faults: faults, planned: faults, n: n, crashed: make([]bool, n)}
	ids := make([]int, n)
	for i := range n {
		ids[i] = i
		s.cut = append(s.cut, make([]bool, n))
	}
	s.first = s.newGroup(nil, 0, ids)
	for r, seat := range s.first.seats {
		seat.a = newAgreement(r, n, 0, faults.minority)
	}
	if faults.admits {
		spoilt := s.rng.IntN(2*n) - n // this rank could not; below 0: all could
		for r, seat := range s.first.seats {
			if r != spoilt {
				seat.a.offer = proposal{commit: true, epoch: 1, ranks: ids}
			}
			seat.a.tried = 1
		}
		if spoilt < 0 {
			s.offered = s.rng.IntN(n)
		}
	}
	if faults.split {
		left := make([]bool, n)
		for i := range left {
			left[i] = s.rng.IntN(2) == 0
		}
		for i := range n {
			for j := range n {
				if left[i] != left[j] {
					s.doomed = append(s.doomed, [2]int{i, j})
				}
			}
		}
		s.rng.Shuffle(len(s.doomed), func(i, j int) { s.doomed[i], s.doomed[j] = s.doomed[j], s.doomed[i] })
	}
	return s
}

func (s *shrinkSim) newGroup(parent *simGroup, epoch uint64, members []int) *simGroup {
	g := &simGroup{parent: parent, epoch: epoch, members: members, decided: map[uint32]proposal{}, tries: map[uint64]*simTry{}, next: map[string]*simGroup{}}
	if parent != nil {
		g.level = parent.level + 1
	}
	for _, id := range members {
		g.seats = append(g.seats, &simSeat{id: id, gone: make([]bool, len(members))})
		g.queues = append(g.queues, make([][]agreedMessage, len(members)))
	}
	s.groups = append(s.groups, g)
	return g
}

// simFailure is what a schedule that breaks a rule panics with.
type simFailure string

func (s *shrinkSim) fail(format string, args ...any) { panic(simFailure(fmt.Sprintf(format, args...))) }

// run plays one schedule to its end.
func (s *shrinkSim) run() {
	for s.steps = 0; ; s.steps++ {
		if s.steps > 20000 {
			s.fail("no end after %d steps", s.steps)
		}
		if s.rng.IntN(30) == 0 {
			s.fault()
		}
		s.actions = s.actions[:0]
		for _, g := range s.groups {
			s.enabled(g)
		}
		if len(s.actions) == 0 {
			if len(s.doomed) > 0 {
				s.fault()
				continue
			}
			if s.comeBack() {
				continue
			}
			return
		}
		s.perform(s.actions[s.rng.IntN(len(s.actions))])
	}
}

// comeBack lets a rank that has withdrawn call again when others wait; false: there is none.
func (s *shrinkSim) comeBack() bool {
	for _, g := range s.groups {
		waits := func(seat *simSeat) bool { return seat.called && !seat.ended && !s.crashed[seat.id] }
		back := func(seat *simSeat) bool { return seat.quit && !s.crashed[seat.id] }
		if i := slices.IndexFunc(g.seats, back); i >= 0 && slices.ContainsFunc(g.seats, waits) {
			s.perform(simAction{"call", g, i, 0})
			return true
		}
	}
	return false
}

func (s *shrinkSim) note(format string, args ...any) {
	if s.logs {
		s.log = append(s.log, fmt.Sprintf(format, args...))
	}
}

// fault lets one of the planned faults happen.
func (s *shrinkSim) fault() {
	f := &s.faults
	i, j := s.rng.IntN(s.n), s.rng.IntN(s.n)
	switch s.rng.IntN(3) {
	case 0:
		if f.crashes > 0 && !s.crashed[i] {
			f.crashes--
			s.crash(i)
		}
	case 1:
		if len(s.doomed) > 0 {
			c := s.doomed[0]
			s.doomed = s.doomed[1:]
			s.cutStream(c[0], c[1])
		} else if f.cuts > 0 && i != j {
			f.cuts--
			s.cutStream(i, j)
		}
	case 2:
		g := s.groups[s.rng.IntN(len(s.groups))]
		seat := g.seats[s.rng.IntN(len(g.seats))]
		if f.withdrawals > 0 && seat.called && !seat.ended && !s.crashed[seat.id] && !seat.a.committed {
			f.withdrawals--
			seat.quit = true
			s.note("%d withdraws", seat.id)
			s.end(g, slices.Index(g.seats, seat))
		}
	}
}

func (s *shrinkSim) crash(i int) {
	s.crashed[i] = true
	s.note("crash %d", i)
	for _, g := range s.groups {
		if from := slices.Index(g.members, i); from >= 0 {
			for to := range g.members {
				s.cutQueue(g, from, to)
			}
		}
	}
	if !slices.ContainsFunc(s.first.seats, func(seat *simSeat) bool { return seat.called }) {
		s.lone++
	}
}

func (s *shrinkSim) cutStream(i, j int) {
	s.cut[i][j] = true
	s.note("cut %d to %d", i, j)
	for _, g := range s.groups {
		if from, to := slices.Index(g.members, i), slices.Index(g.members, j); from >= 0 && to >= 0 {
			s.cutQueue(g, from, to)
		}
	}
}

// cutQueue loses some of what is on its way, from the end.
func (s *shrinkSim) cutQueue(g *simGroup, from, to int) {
	q := g.queues[from][to]
	g.queues[from][to] = q[:s.rng.IntN(len(q)+1)]
}

// enabled collects what may happen next in a group.
func (s *shrinkSim) enabled(g *simGroup) {
	add := func(kind string, i, j int) { s.actions = append(s.actions, simAction{kind, g, i, j}) }
	for j, seat := range g.seats {
		if seat.a == nil || s.crashed[seat.id] {
			continue
		}
		if !seat.called && s.calls(g, j) || seat.quit && s.rng.IntN(4) == 0 {
			add("call", j, 0)
		}
		if j == s.offered && g.level == 0 && !seat.called {
			add("learn", j, 0)
		}
		if seat.try != nil {
			s.enabledOpening(g, j, add)
		}
		for i := range g.seats {
			if i == j {
				continue
			}
			queued := len(g.queues[i][j]) > 0
			if queued && !s.left(g, j) {
				add("deliver", i, j)
			}
			if !seat.gone[i] && s.isGone(g, i, j) && (!queued || s.faults.early && !s.left(g, i)) {
				add("notice", i, j)
			}
		}
	}
}

// calls reports whether a rank has a reason to call Shrink.
func (s *shrinkSim) calls(g *simGroup, j int) bool {
	if g.level == 0 {
		return true
	}
	return slices.Contains(g.seats[j].gone, true) ||
		slices.ContainsFunc(g.seats, func(o *simSeat) bool { return o.called && !s.cut[o.id][g.members[j]] })
}

// left reports whether a rank has gone on from a group, so that its streams there are closed.
func (s *shrinkSim) left(g *simGroup, i int) bool {
	return g.seats[i].ended && g.seats[i].result == agreedCommit
}

// isGone reports whether nothing more comes from i to j.
func (s *shrinkSim) isGone(g *simGroup, i, j int) bool {
	from, to := g.members[i], g.members[j]
	if s.crashed[from] || s.cut[from][to] || s.left(g, i) {
		return true
	}
	if g.seats[i].a == nil { // it may have ended the call that would have given it this group
		before := g.parent.seats[slices.Index(g.parent.members, from)]
		return before.ended && before.result != agreedCommit
	}
	return false
}

func (s *shrinkSim) enabledOpening(g *simGroup, j int, add func(string, int, int)) {
	seat, try := g.seats[j], g.seats[j].try
	if seat.a.doomed() {
		add("abort", j, -1)
	}
	all := true
	for _, r := range try.ranks {
		o := g.members[r]
		broken := s.crashed[o] || try.aborted[r] || s.cut[o][seat.id] || s.cut[seat.id][o]
		if broken && r != j {
			add("abort", j, r)
		}
		all = all && try.started[r] && !broken
	}
	if all {
		add("opened", j, 0)
	}
}

func (s *shrinkSim) perform(act simAction) {
	g, i, j := act.g, act.i, act.j
	s.note("%d:%s %d %d", g.level, act.kind, i, j)
	switch act.kind {
	case "call":
		seat := g.seats[i]
		seat.called, seat.ended, seat.quit, seat.result = true, false, false, agreedPending
		seat.seen, seat.try = seat.a.instance, nil
		seat.a.enter(func(r int) bool { return seat.gone[r] })
		s.follow(g, i)
	case "learn":
		seat := g.seats[i]
		seat.called, seat.a.result = true, agreedCommit
		seat.a.conclude()
		s.follow(g, i)
		s.end(g, i)
	case "deliver":
		m := g.queues[i][j][0]
		g.queues[i][j] = g.queues[i][j][1:]
		s.note("   %+v", m)
		g.seats[j].a.receive(i, &m)
		s.follow(g, j)
	case "notice":
		g.seats[j].gone[i] = true
		g.seats[j].a.lose(i)
		s.follow(g, j)
	case "opened":
		try := g.seats[i].try
		g.seats[i].try = nil
		g.seats[i].a.opened(try.instance, true, -1)
		s.follow(g, i)
	case "abort":
		try := g.seats[i].try
		g.seats[i].try = nil
		try.aborted[i] = true
		g.seats[i].a.opened(try.instance, false, j)
		s.follow(g, i)
	}
}

// follow carries out what a rank's agreement wants after an event.
func (s *shrinkSim) follow(g *simGroup, i int) {
	seat := g.seats[i]
	a := seat.a
	for _, o := range a.flush() {
		if to := g.members[o.to]; !s.crashed[to] && !s.cut[seat.id][to] {
			g.queues[i][o.to] = append(g.queues[i][o.to], o.agreedMessage)
		}
	}
	if a.instance > 0 || a.committed {
		s.checkDecision(g, a)
	}
	if !a.active || seat.ended {
		return
	}
	if a.instance > seat.seen {
		seat.seen = a.instance
		if seat.try != nil {
			seat.try.aborted[i] = true
			seat.try = nil
		}
		if !a.committed && slices.Contains(a.base, i) {
			s.open(g, i)
		}
	}
	if a.result != agreedPending {
		s.end(g, i)
	}
}

func (s *shrinkSim) open(g *simGroup, i int) {
	a := g.seats[i].a
	try := g.tries[a.attempt.epoch]
	if try == nil {
		try = &simTry{a.instance - 1, a.attempt.epoch, a.attempt.ranks, map[int]bool{}, map[int]bool{}}
		g.tries[a.attempt.epoch] = try
	}
	if !slices.Equal(try.ranks, a.attempt.ranks) || try.instance != a.instance-1 || try.started[i] || try.epoch <= g.epoch {
		s.fail("epoch %d tried twice: %+v and %+v", try.epoch, try, a.attempt)
	}
	try.started[i] = true
	g.seats[i].try = try
}

// checkDecision fails if two ranks know different decisions of one instance.
func (s *shrinkSim) checkDecision(g *simGroup, a *agreement) {
	instance := a.instance - 1
	if a.committed {
		instance++
	}
	known, ok := g.decided[instance]
	if !ok {
		g.decided[instance] = a.attempt
	} else if !s.faults.minority && !sameProposal(known, a.attempt) {
		s.fail("instance %d decided %+v and %+v", instance, known, a.attempt)
	}
}

func sameProposal(a, b proposal) bool {
	return a.commit == b.commit && a.epoch == b.epoch && slices.Equal(a.ranks, b.ranks)
}

// end lets a rank's call of Shrink return.
func (s *shrinkSim) end(g *simGroup, i int) {
	seat := g.seats[i]
	a := seat.a
	seat.ended, seat.result = true, a.result
	s.note("%d:%d ends with %d %+v", g.level, seat.id, a.result, a.attempt)
	if seat.try != nil {
		seat.try.aborted[i] = true
		seat.try = nil
	}
	if a.result != agreedCommit {
		a.leave()
		s.follow(g, i)
		return
	}
	name := fmt.Sprint(a.attempt.epoch, a.attempt.ranks)
	next := g.next[name]
	if next == nil {
		ids := make([]int, len(a.attempt.ranks))
		for k, r := range a.attempt.ranks {
			ids[k] = g.members[r]
		}
		next = s.newGroup(g, a.attempt.epoch, ids)
		g.next[name] = next
	}
	r := slices.Index(next.members, seat.id)
	next.seats[r].a = newAgreement(r, len(next.members), next.epoch, s.faults.minority)
}

// check states what must hold at the end.
func (s *shrinkSim) check() {
	for _, g := range s.groups {
		for i, seat := range g.seats {
			if seat.called && !seat.ended && !s.crashed[seat.id] {
				s.fail("level %d, rank %d (id %d) waits for %v", g.level, i, seat.id, seat.a.waitsFor())
			}
		}
		if len(g.next) > 1 && !s.faults.minority {
			s.fail("level %d went on as %d groups", g.level, len(g.next))
		}
	}
	s.checkLineages()
	if f := s.planned; f.cuts == 0 && !f.split && f.withdrawals == 0 {
		s.checkCrashStop()
	}
}

// checkLineages fails if two groups work at the end: if each of them is held by all its members.
func (s *shrinkSim) checkLineages() {
	if s.faults.minority {
		return
	}
	var working []*simGroup
	for _, g := range s.groups {
		if g.level > 0 && !slices.ContainsFunc(g.seats, func(seat *simSeat) bool { return seat.a == nil || s.left(g, slices.Index(g.seats, seat)) }) {
			working = append(working, g)
		}
	}
	if len(working) > 1 {
		s.fail("%d groups work: %v %v", len(working), working[0].members, working[1].members)
	}
}

// checkCrashStop states what holds when ranks only crash: nobody living is left out.
func (s *shrinkSim) checkCrashStop() {
	var living []int
	for i, c := range s.crashed {
		if !c {
			living = append(living, i)
		}
	}
	for _, i := range living {
		seat := s.first.seats[i]
		switch seat.result {
		case agreedExcluded, agreedPending:
			s.fail("rank %d: result %d", i, seat.result)
		case agreedNoMajority:
			if 2*len(living) > s.n || s.faults.minority {
				s.fail("rank %d has no majority, living are %v", i, living)
			}
		case agreedCommit:
			if v := seat.a.attempt; slices.ContainsFunc(living, func(r int) bool {
				return !slices.Contains(v.ranks, r) && s.first.seats[r].result == agreedCommit
			}) {
				s.fail("rank %d goes on as %v, living are %v", i, v.ranks, living)
			}
			if 2*(s.n-s.lone) <= s.n && !s.faults.minority && !s.faults.admits {
				s.fail("rank %d goes on although %d of %d were dead before", i, s.lone, s.n)
			}
		}
	}
}

// play plays one schedule and returns which rule it breaks, "" for none.
func (s *shrinkSim) play() (broken string) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case simFailure:
			broken = string(r)
		default:
			panic(r)
		}
	}()
	s.run()
	s.check()
	return ""
}

// simulate plays schedules of one sort of fault over small worlds.
func simulate(t *testing.T, seeds int, plan func(rng *rand.Rand, n int) simFaults) {
	t.Parallel()
	if testing.Short() {
		seeds /= 10
	}
	for seed := range uint64(seeds) {
		n := 2 + int(seed%6)
		faults := plan(rand.New(rand.NewPCG(seed, 7)), n)
		if newShrinkSim(seed, n, faults).play() != "" {
			s := newShrinkSim(seed, n, faults)
			s.logs = true
			broken := s.play()
			for r, seat := range s.first.seats {
				t.Logf("rank %d of the first group, crashed %v: %+v\n%+v", r, s.crashed[r], *seat, *seat.a)
			}
			t.Fatalf("seed %d, %d ranks, %+v: %s\n%s", seed, n, faults, broken, strings.Join(s.log, "\n"))
		}
	}
}

func TestShrinkAgreementCrashes(t *testing.T) {
	simulate(t, 10_000, func(rng *rand.Rand, n int) simFaults {
		return simFaults{crashes: rng.IntN(n), early: rng.IntN(2) == 0}
	})
}

func TestShrinkAgreementMinority(t *testing.T) {
	simulate(t, 5_000, func(rng *rand.Rand, n int) simFaults {
		return simFaults{crashes: rng.IntN(n), minority: true}
	})
}

func TestShrinkAgreementAfterAdmit(t *testing.T) {
	simulate(t, 10_000, func(rng *rand.Rand, n int) simFaults {
		return simFaults{admits: true, crashes: rng.IntN(n), split: rng.IntN(2) == 0, cuts: rng.IntN(2), withdrawals: rng.IntN(2), early: rng.IntN(2) == 0}
	})
}

func TestShrinkAgreementPartitions(t *testing.T) {
	simulate(t, 10_000, func(rng *rand.Rand, n int) simFaults {
		return simFaults{split: true, crashes: rng.IntN(2), early: rng.IntN(2) == 0}
	})
}

func TestShrinkAgreementCuts(t *testing.T) {
	simulate(t, 10_000, func(rng *rand.Rand, n int) simFaults {
		return simFaults{cuts: 1 + rng.IntN(n), crashes: rng.IntN(2), early: rng.IntN(2) == 0}
	})
}

func TestShrinkAgreementWithdrawals(t *testing.T) {
	simulate(t, 10_000, func(rng *rand.Rand, n int) simFaults {
		return simFaults{withdrawals: 1 + rng.IntN(3), crashes: rng.IntN(n), cuts: rng.IntN(3), split: rng.IntN(4) == 0, early: rng.IntN(2) == 0}
	})
}

// TestAgreementKeepsItsPromise asks an acceptor for less than it has promised, which streams in order never do.
func TestAgreementKeepsItsPromise(t *testing.T) {
	a := newAgreement(1, 2, 0, false)
	a.enter(func(int) bool { return false })
	a.flush()
	ask := func(kind agreedKind, round uint32) agreedKind {
		a.receive(0, &agreedMessage{kind: kind, ballot: ballot{round, 0}, value: proposal{epoch: 1, ranks: []int{0, 1}}})
		out := a.flush()
		if len(out) != 1 || out[0].to != 0 {
			t.Fatalf("answers %+v", out)
		}
		return out[0].kind
	}
	for _, c := range []struct {
		kind  agreedKind
		round uint32
		want  agreedKind
	}{
		{agreedPrepare, 5, agreedPromise},
		{agreedPrepare, 4, agreedVote}, // says what it has promised
		{agreedAccept, 4, agreedVote},
		{agreedAccept, 5, agreedAccepted},
		{agreedPrepare, 6, agreedPromise},
		{agreedAccept, 5, agreedVote},
	} {
		if got := ask(c.kind, c.round); got != c.want {
			t.Errorf("asked %d in round %d it answers %d, want %d", c.kind, c.round, got, c.want)
		}
	}
}
