package ring

// The ring. Rank r sends only to next = r+1 and receives only from prev = r−1. A reduce-scatter has size−1 steps: in step s
// rank r passes on the partial result of chunk r−1−s, which it completed with its own elements in step s−1, and ends as
// owner of chunk r. An all-gather has size−1 more: in step s it passes on chunk r−s. Every send after the first waits, byte
// by byte, for the receive before it, so that receiving, reducing and sending overlap without segments.

func ringAllReduce(p *plan) {
	next, prev, gate := p.peer(1), p.peer(-1), 0
	from := inSrc
	for s := range p.size - 1 {
		p.send(next, span{from, p.parts[p.peer(-1-s)]}, gate)
		in := p.parts[p.peer(-2-s)]
		gate = p.add(move{verb: combine, peer: prev, at: p.dst(in), with: p.src(in), last: s == p.size-2})
		from = inDst
	}
	p.ringPass(p.dst(p.parts[p.rank]), gate)
}

// ringPass is the all-gather; own is this rank's chunk, wherever it lies.
func (p *plan) ringPass(own span, gate int) {
	next, prev := p.peer(1), p.peer(-1)
	for s := range p.size - 1 {
		p.send(next, own, gate)
		own = p.dst(p.parts[p.peer(-1-s)])
		gate = p.store(prev, own)
	}
}

func ringAllGather(p *plan) {
	p.copy(p.dst(p.parts[p.rank]), p.src(p.own))
	p.ringPass(p.src(p.own), 0)
}

// ringReduceScatter keeps the partial results of all steps but the last in scratch, size−2 chunks, for Src is not written.
func ringReduceScatter(p *plan) {
	next, prev, gate := p.peer(1), p.peer(-1), 0
	out := p.src(p.parts[p.peer(-1)])
	for s := range p.size - 1 {
		p.send(next, out, gate)
		in, last := p.parts[p.peer(-2-s)], s == p.size-2
		if out = p.dst(p.own); !last {
			out = p.newTmp(in.count())
		}
		gate = p.add(move{verb: combine, peer: prev, at: out, with: p.src(in), last: last})
	}
}
