package ring

import "math/bits"

// Recursive doubling and halving: the number of steps is logarithmic. Partial results travel in the accumulator type, so
// only the end rounds; inputs travel as they are. A size that is no power of two has extra ranks: of the first 2 × extra
// ranks each odd one hands its input to the even rank before it, which stands for both and hands the result back. The
// ranks that remain are seats of a power of two.

// seats returns their number and that of the extra ranks.
func (p *plan) seats() (n, extra int) {
	n = 1 << (bits.Len(uint(p.size)) - 1)
	return n, p.size - n
}

// seated is the rank on a seat. Seats below extra stand for two ranks.
func seated(seat, extra int) int { return seat + min(seat, extra) }

// takeSeat finds this rank's seat; ok is false for one that has none. A rank that stands for two has own and gate changed:
// it first accumulates its neighbour's input.
func (p *plan) takeSeat(extra int, own *span, gate *int) (seat int, ok bool) {
	if p.rank >= 2*extra {
		return p.rank - extra, true
	}
	if p.rank%2 == 1 {
		return 0, false
	}
	acc := p.newAcc(own.count())
	*gate = p.add(move{verb: accumulate, peer: p.rank + 1, at: acc, with: *own})
	*own = acc
	return p.rank / 2, true
}

func doublingAllReduce(p *plan) {
	seats, extra := p.seats()
	own, gate, dst := p.src(p.all), 0, p.dst(p.all)
	seat, ok := p.takeSeat(extra, &own, &gate)
	if !ok {
		p.send(p.rank-1, own, 0)
		p.store(p.rank-1, dst)
		return
	}
	for bit := 1; bit < seats; bit <<= 1 {
		other := seat ^ bit
		peer := seated(other, extra)
		p.send(peer, own, gate)
		// A buffer of its own per step: what arrives from this step's peer does not prove that an earlier one has been served.
		sum := p.newAcc(p.all.count())
		gate = p.add(move{verb: accumulate, peer: peer, at: sum, with: own, after: gate,
			wide: bit > 1 || other < extra, last: bit<<1 == seats, out: dst})
		own = sum
	}
	if seat < extra {
		p.send(p.rank+1, dst, gate)
	}
}

// halvingReduceScatter gives away half of what is left in each step. Accumulators lie in scratch where the elements lie in
// Src; a rank that gives a half away goes on in the other.
func halvingReduceScatter(p *plan) {
	seats, extra := p.seats()
	own, gate := p.src(p.all), 0
	seat, ok := p.takeSeat(extra, &own, &gate)
	if !ok {
		p.send(p.rank-1, own, 0)
		p.store(p.rank-1, p.dst(p.own))
		return
	}
	p.acc = p.all.count()
	out := p.dst(p.own)
	if seat < extra {
		out = p.newTmp(p.own.count() + p.parts[p.rank+1].count())
	}
	for bit := seats >> 1; bit > 0; bit >>= 1 {
		other := seat ^ bit
		peer := seated(other, extra)
		keep, give := p.seatRange(seat, bit, extra), p.seatRange(other, bit, extra)
		p.send(peer, span{own.area, give}, gate)
		gate = p.add(move{verb: accumulate, peer: peer, at: span{inAcc, keep}, with: span{own.area, keep}, after: gate,
			wide: bit < seats>>1 || other < extra, last: bit == 1, out: out})
		own.area = inAcc
	}
	if seat < extra {
		n := p.own.count()
		p.send(p.rank+1, span{inTmp, chunk{out.lo + n, out.hi}}, gate)
		p.copies = append(p.copies, localCopy{to: p.dst(p.own), from: span{inTmp, chunk{out.lo, out.lo + n}}, late: true})
	}
}

// seatRange covers the parts of all ranks that the n seats around seat, aligned to n, stand for.
func (p *plan) seatRange(seat, n, extra int) chunk {
	first := seat &^ (n - 1)
	last := seated(first+n, extra) - 1
	return chunk{p.parts[seated(first, extra)].lo, p.parts[last].hi}
}
