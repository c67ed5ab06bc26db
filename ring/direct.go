package ring

// Direct exchange. Every contribution goes straight to the rank that needs it; peers are visited in the order rank+1,
// rank+2, …, so that no rank is everyone's first target. An owner folds all contributions in rank order with one rounding.

// foldFromAll receives a contribution of every other rank and returns the move that sends of the result wait for.
func (p *plan) foldFromAll(at, with span) (gate int) {
	for d := 1; d < p.size; d++ {
		i := p.add(move{verb: fold, peer: p.peer(-d), at: at, with: with})
		if gate == 0 {
			gate = i
		}
	}
	return gate
}

func directAllReduce(p *plan) {
	mine := p.parts[p.rank]
	for d := 1; d < p.size; d++ {
		p.send(p.peer(d), p.src(p.parts[p.peer(d)]), 0)
	}
	gate := p.foldFromAll(p.dst(mine), p.src(mine))
	p.directPass(p.dst(mine), gate)
}

// directPass is the all-gather; own is this rank's chunk, wherever it lies.
func (p *plan) directPass(own span, gate int) {
	for d := 1; d < p.size; d++ {
		p.send(p.peer(d), own, gate)
		p.store(p.peer(-d), p.dst(p.parts[p.peer(-d)]))
	}
}

func directAllGather(p *plan) {
	p.copy(p.dst(p.parts[p.rank]), p.src(p.own))
	p.directPass(p.src(p.own), 0)
}

func directReduceScatter(p *plan) {
	for d := 1; d < p.size; d++ {
		p.send(p.peer(d), p.src(p.parts[p.peer(d)]), 0)
	}
	p.foldFromAll(p.dst(p.own), p.src(p.parts[p.rank]))
}

// directReduce is a reduce-scatter whose owners send their chunk to the root; they keep it in scratch.
func directReduce(p *plan) {
	mine := p.parts[p.rank]
	for d := 1; d < p.size; d++ {
		p.send(p.peer(d), p.src(p.parts[p.peer(d)]), 0)
	}
	if p.rank != p.root {
		own := p.newTmp(mine.count())
		p.send(p.root, own, p.foldFromAll(own, p.src(mine)))
		return
	}
	p.foldFromAll(p.dst(mine), p.src(mine))
	p.collect()
}

// collect is the root's side of a gather.
func (p *plan) collect() {
	for d := 1; d < p.size; d++ {
		p.store(p.peer(-d), p.dst(p.parts[p.peer(-d)]))
	}
}

func oneShotAllReduce(p *plan) {
	for d := 1; d < p.size; d++ {
		p.send(p.peer(d), p.src(p.all), 0)
	}
	p.foldFromAll(p.dst(p.all), p.src(p.all))
}

func oneShotReduce(p *plan) {
	if p.rank != p.root {
		p.send(p.root, p.src(p.all), 0)
		return
	}
	p.foldFromAll(p.dst(p.all), p.src(p.all))
}

func directBroadcast(p *plan) {
	if p.rank != p.root {
		p.store(p.root, p.dst(p.all))
		return
	}
	for d := 1; d < p.size; d++ {
		p.send(p.peer(d), p.dst(p.all), 0)
	}
}

func directGather(p *plan) {
	if p.rank != p.root {
		p.send(p.root, p.src(p.own), 0)
		return
	}
	p.copy(p.dst(p.parts[p.rank]), p.src(p.own))
	p.collect()
}

func directScatter(p *plan) {
	if p.rank != p.root {
		p.store(p.root, p.dst(p.own))
		return
	}
	p.copy(p.dst(p.own), p.src(p.parts[p.rank]))
	for d := 1; d < p.size; d++ {
		p.send(p.peer(d), p.src(p.parts[p.peer(d)]), 0)
	}
}

func directAllToAll(p *plan) {
	p.copy(p.dst(p.parts[p.rank]), p.src(p.give[p.rank]))
	for d := 1; d < p.size; d++ {
		p.send(p.peer(d), p.src(p.give[p.peer(d)]), 0)
		p.store(p.peer(-d), p.dst(p.parts[p.peer(-d)]))
	}
}
