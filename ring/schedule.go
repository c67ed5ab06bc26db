package ring

// A schedule is a function that fills the moves of a plan. It depends on nothing but rank, size, root and ranges of
// elements, does no I/O and cannot fail. Each algorithm has its own file; here are the words they share.

// An area is memory that moves refer to.
type area uint8

const (
	inSrc area = iota // Call.Src, only read
	inDst             // Call.Dst
	inTmp             // scratch, elements of the call's type
	inAcc             // scratch, elements of the accumulator type
)

// A span is a range of elements of an area.
type span struct {
	area
	chunk
}

// A verb says what becomes of a frame.
type verb uint8

const (
	send       verb = iota // at leaves
	store                  // received elements become at
	combine                // at = with op received, rounded to the call's type: a hop of a ring or chain
	accumulate             // at = with op received, in the accumulator type: a step of the logarithmic family
	fold                   // received is one operand of the rank-order fold into at; with is this rank's own
)

// A move is one frame that this rank sends or receives.
type move struct {
	verb
	peer int
	at   span
	with span // combine, accumulate, fold: this rank's operand
	// send: 1 + index of the receiving move that makes at final, element by element; 0: it is final already.
	// accumulate: the same for with.
	// store: the one that must be complete before anything that waits for this move is final.
	after int
	whole bool // store: what waits for it is not its own range, and is final only once all of this is here
	wide  bool // accumulate: accumulators arrive, not elements
	last  bool // combine, accumulate: the reduction ends here: divide a mean, round accumulators into out
	out   span // accumulate, last
}

// A localCopy happens without the network, before the first move or after the last.
type localCopy struct {
	to, from span
	late     bool
}

// A plan is one rank's side of a collective as data.
type plan struct {
	// What schedules read.
	rank, size, root int
	all              chunk   // the elements of a buffer that is whole on all ranks
	parts            []chunk // by rank: its share of all, or of the buffer that holds every rank's part
	own              chunk   // this rank's part in the buffer that holds nothing else
	give             []chunk // all-to-all: by rank, its part of Src; parts are those of Dst

	// What they write.
	moves    []move
	copies   []localCopy
	tmp, acc int // scratch needed, in elements
}

func (p *plan) reset() {
	p.moves, p.copies = p.moves[:0], p.copies[:0]
	p.tmp, p.acc = 0, 0
}

// peer is the rank d places on, round the world.
func (p *plan) peer(d int) int { return mod(p.rank+d, p.size) }

func mod(a, n int) int { return ((a % n) + n) % n }

// add returns the new move as others refer to it.
func (p *plan) add(m move) int {
	p.moves = append(p.moves, m)
	return len(p.moves)
}

func (p *plan) send(peer int, at span, after int) {
	p.add(move{verb: send, peer: peer, at: at, after: after})
}

func (p *plan) store(peer int, at span) int { return p.add(move{verb: store, peer: peer, at: at}) }

func (p *plan) copy(to, from span) { p.copies = append(p.copies, localCopy{to: to, from: from}) }

// newTmp and newAcc reserve scratch.
func (p *plan) newTmp(count int) span {
	p.tmp += count
	return span{inTmp, chunk{p.tmp - count, p.tmp}}
}

func (p *plan) newAcc(count int) span {
	p.acc += count
	return span{inAcc, chunk{p.acc - count, p.acc}}
}

func (p *plan) src(c chunk) span { return span{inSrc, c} }
func (p *plan) dst(c chunk) span { return span{inDst, c} }
