package ring

// ranges tells the plan which elements piece, a range of what length counts, stands for.
func (x *Executor) ranges(c *Call, piece chunk) {
	p := &x.plan
	p.root, p.all = c.Root, piece
	p.parts, p.give = p.parts[:0], p.give[:0]
	switch c.Op {
	case OpAllReduce, OpReduce:
		p.parts = splitEvenly(p.parts, piece, p.size)
		return
	case OpBroadcast, OpBarrier:
		return
	case OpAllToAll:
		p.parts = splitParts(p.parts, c.Dst.Count()/p.size, p.size, c.RecvCounts)
		p.give = splitParts(p.give, c.Src.Count()/p.size, p.size, c.SendCounts)
		return
	case OpAllGather, OpGather:
		p.parts = splitParts(p.parts, c.Src.Count(), p.size, c.RecvCounts)
	case OpScatter:
		p.parts = splitParts(p.parts, c.Dst.Count(), p.size, c.SendCounts)
	case OpReduceScatter:
		p.parts = splitParts(p.parts, c.Dst.Count(), p.size, c.RecvCounts)
		x.clip(piece)
		return
	}
	p.own = chunk{0, p.parts[p.rank].count()}
}

// clip leaves of each part what belongs to the piece.
func (x *Executor) clip(piece chunk) {
	p := &x.plan
	whole := p.parts[p.rank]
	p.all = chunk{0, p.parts[p.size-1].hi}
	for i := range p.parts {
		p.parts[i] = p.parts[i].clip(piece)
	}
	p.own = p.parts[p.rank].shift(-whole.lo)
}

// splitParts makes n parts of count elements, or of the given counts.
func splitParts(s []chunk, count, n int, counts []int) []chunk {
	if counts != nil {
		return splitBy(s, counts)
	}
	return splitEvenly(s, chunk{0, count * n}, n)
}

// schedule fills the plan's moves: the one place where operations and algorithms meet. Choose gives no other pairs.
func schedule(p *plan, op Op, a Algorithm) {
	type pair struct {
		Op
		Algorithm
	}
	switch (pair{op, a}) {
	case pair{OpAllReduce, Ring}:
		ringAllReduce(p)
	case pair{OpAllReduce, Direct}:
		directAllReduce(p)
	case pair{OpAllReduce, OneShot}:
		oneShotAllReduce(p)
	case pair{OpAllReduce, Doubling}:
		doublingAllReduce(p)
	case pair{OpReduceScatter, Ring}:
		ringReduceScatter(p)
	case pair{OpReduceScatter, Direct}:
		directReduceScatter(p)
	case pair{OpReduceScatter, Doubling}:
		halvingReduceScatter(p)
	case pair{OpAllGather, Ring}:
		ringAllGather(p)
	case pair{OpAllGather, Direct}:
		directAllGather(p)
	case pair{OpAllGather, Doubling}:
		bruckAllGather(p)
	case pair{OpBroadcast, Chain}:
		chainBroadcast(p)
	case pair{OpBroadcast, Direct}:
		directBroadcast(p)
	case pair{OpBroadcast, Doubling}:
		treeBroadcast(p)
	case pair{OpReduce, Chain}:
		chainReduce(p)
	case pair{OpReduce, Direct}:
		directReduce(p)
	case pair{OpReduce, OneShot}:
		oneShotReduce(p)
	case pair{OpReduce, Doubling}:
		treeReduce(p)
	case pair{OpGather, Direct}:
		directGather(p)
	case pair{OpScatter, Direct}:
		directScatter(p)
	case pair{OpAllToAll, Direct}:
		directAllToAll(p)
	case pair{OpBarrier, Doubling}:
		disseminate(p)
	default:
		panic("BUG: ring: no schedule for " + op.String() + ", " + a.String())
	}
}

// alone is every operation in a world of one.
func alone(p *plan, op Op) {
	switch op {
	case OpAllReduce, OpReduce:
		p.copy(p.dst(p.all), p.src(p.all))
	case OpReduceScatter, OpScatter:
		p.copy(p.dst(p.own), p.src(p.parts[0]))
	case OpAllGather, OpGather:
		p.copy(p.dst(p.parts[0]), p.src(p.own))
	case OpAllToAll:
		p.copy(p.dst(p.parts[0]), p.src(p.give[0]))
	}
}
