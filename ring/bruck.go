package ring

// Bruck's all-gather and the dissemination barrier: in each step a rank has twice as much as before, whatever the size.

// bruckAllGather fetches, in each step, as many parts as the rank has, from the rank that far on. A run of parts that goes
// round the end of the buffer takes two frames.
func bruckAllGather(p *plan) {
	p.copy(p.dst(p.parts[p.rank]), p.src(p.own))
	gate := 0
	for have := 1; have < p.size; have *= 2 {
		n := min(have, p.size-have)
		to, from := p.peer(-have), p.peer(have)
		for _, c := range p.run(p.rank, n) {
			if c.hi >= 0 {
				p.send(to, p.dst(c), gate)
			}
		}
		for _, c := range p.run(from, n) {
			if c.hi >= 0 {
				gate = p.add(move{verb: store, peer: from, at: p.dst(c), after: gate, whole: true})
			}
		}
	}
}

// run is the range of n parts from first on, in two pieces if it goes round; a negative hi marks the missing second.
func (p *plan) run(first, n int) [2]chunk {
	if first+n <= p.size {
		return [2]chunk{{p.parts[first].lo, p.parts[first+n-1].hi}, {-1, -1}}
	}
	return [2]chunk{{p.parts[first].lo, p.parts[p.size-1].hi}, {p.parts[0].lo, p.parts[first+n-p.size-1].hi}}
}

// disseminate is the barrier. Each frame carries one byte, because only a byte can wait for another.
func disseminate(p *plan) {
	token, gate := p.newTmp(1), 0
	for d := 1; d < p.size; d *= 2 {
		p.send(p.peer(d), token, gate)
		gate = p.add(move{verb: store, peer: p.peer(-d), at: p.newTmp(1), after: gate, whole: true})
	}
}
