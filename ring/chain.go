package ring

// The chain. Ranks stand in a row that begins at the root: root, root+1, …, round the world. Elements run along it and are
// passed on as they arrive, so that its length costs time only once, not per element.

// place is this rank's in the row; the root's is 0.
func (p *plan) place() int { return mod(p.rank-p.root, p.size) }

func chainBroadcast(p *plan) {
	gate := 0
	if p.place() > 0 {
		gate = p.store(p.peer(-1), p.dst(p.all))
	}
	if p.place() < p.size-1 {
		p.send(p.peer(1), p.dst(p.all), gate)
	}
}

// chainReduce runs towards the root, rounding once per hop. Ranks on the way keep the partial result in scratch.
func chainReduce(p *plan) {
	out, gate := p.src(p.all), 0
	if p.place() < p.size-1 {
		if out = p.dst(p.all); p.place() > 0 {
			out = p.newTmp(p.all.count())
		}
		gate = p.add(move{verb: combine, peer: p.peer(1), at: out, with: p.src(p.all), last: p.place() == 0})
	}
	if p.place() > 0 {
		p.send(p.peer(-1), out, gate)
	}
}
