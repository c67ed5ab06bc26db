package ring

// Binomial trees over the places of the chain: the parent of a place is the place without its lowest bit.

func treeBroadcast(p *plan) {
	bit, gate := 1, 0
	for ; bit < p.size && p.place()&bit == 0; bit <<= 1 {
	}
	if bit < p.size {
		gate = p.store(p.peer(-bit), p.dst(p.all))
	}
	for bit >>= 1; bit > 0; bit >>= 1 {
		if p.place()+bit < p.size {
			p.send(p.peer(bit), p.dst(p.all), gate)
		}
	}
}

// treeReduce accumulates the children in the order of their places, so that bits do not depend on who is first.
func treeReduce(p *plan) {
	own, gate := p.src(p.all), 0
	for bit := 1; bit < p.size; bit <<= 1 {
		if p.place()&bit != 0 {
			p.send(p.peer(-bit), own, gate)
			return
		}
		child := p.place() + bit
		if child >= p.size {
			continue
		}
		sum := own
		if own.area == inSrc {
			sum = p.newAcc(p.all.count())
		}
		gate = p.add(move{verb: accumulate, peer: p.peer(bit), at: sum, with: own, after: gate,
			wide: bit > 1 && child+1 < p.size, // it has children itself
			last: p.place() == 0 && bit<<1 >= p.size, out: p.dst(p.all)})
		own = sum
	}
}
