package ring

import (
	"github.com/goccl/goccl/dtype"
	"github.com/goccl/goccl/transport"
)

// A layout turns a plan into steps: it gives each move its memory and its sink. It belongs to an executor, which reuses it.
type layout struct {
	piece int // bytes that a window takes at a time
	stage int // bytes of all stages of a fold together, and at least a cache line for each half

	call  *Call
	acc   dtype.Type
	areas [4]dtype.Buffer // by area
	scratch
	steps       []transport.Step
	stores      []storeSink
	combines    []combineSink
	accumulates []accumulateSink
	folds       []foldSink
	folder      folder
	win         window // of the last combining move; the moves of one peer come one after the other
}

// These keep what is being reduced in a second-level cache.
const (
	defaultPiece = 256 << 10
	defaultStage = 1 << 20
)

// build replaces the steps by those of p. src and dst are the call's, src possibly a copy.
func (l *layout) build(p *plan, c *Call, src dtype.Buffer) {
	t := c.Type()
	if c.Op == OpBarrier {
		t = dtype.U8
	}
	l.call, l.acc = c, dtype.Accumulator(c.Reduce, t)
	l.areas = [4]dtype.Buffer{inSrc: src, inDst: c.Dst, inTmp: l.take(t, p.tmp), inAcc: l.take(l.acc, p.acc)}
	l.reserve(len(p.moves))
	for i := range p.moves {
		m := &p.moves[i]
		s := transport.Step{Peer: m.peer}
		if m.verb == send {
			s.Out, s.After = l.at(m.at).HostBytes(), m.after
			l.skip(p, m)
		} else {
			s.In, s.InLen = l.sink(p, m), l.length(m)
		}
		l.steps = append(l.steps, s)
	}
}

// reserve makes room for n sinks of each kind, so that they do not move while steps point to them.
func (l *layout) reserve(n int) {
	l.steps, l.win = l.steps[:0], window{}
	l.stores, l.combines, l.accumulates, l.folds = l.stores[:0], l.combines[:0], l.accumulates[:0], l.folds[:0]
	if cap(l.steps) < n {
		l.steps = make([]transport.Step, 0, n)
		l.stores = make([]storeSink, 0, n)
		l.combines = make([]combineSink, 0, n)
		l.accumulates = make([]accumulateSink, 0, n)
		l.folds = make([]foldSink, 0, n)
	}
}

// forget drops all references to the caller's memory.
func (l *layout) forget() {
	clear(l.steps)
	clear(l.stores)
	clear(l.combines)
	clear(l.accumulates)
	l.folder.dst, l.folder.own = dtype.Buffer{}, dtype.Buffer{}
	clear(l.folder.srcs)
	l.areas, l.call = [4]dtype.Buffer{}, nil
}

func (l *layout) at(s span) dtype.Buffer { return l.areas[s.area].Slice(s.lo, s.hi) }

// length is what a receiving move receives, in bytes.
func (l *layout) length(m *move) int64 {
	t := l.areas[inTmp].Type()
	if m.wide {
		t = l.acc
	}
	return int64(m.at.count()) * int64(t.Size())
}

// skip tells an accumulating sink which part of its result the waiting move m sends.
func (l *layout) skip(p *plan, m *move) {
	if m.after == 0 || p.moves[m.after-1].verb != accumulate {
		return
	}
	gate := &p.moves[m.after-1]
	from := gate.at.lo
	if gate.last {
		from = gate.out.lo
	}
	l.steps[m.after-1].In.(*accumulateSink).skip = m.at.lo - from
}

func (l *layout) sink(p *plan, m *move) transport.Sink {
	switch m.verb {
	case store:
		return l.storeSink(m)
	case combine:
		return l.combineSink(p, m)
	case accumulate:
		return l.accumulateSink(p, m)
	}
	if p.size == 2 {
		return l.combineSink(p, m)
	}
	return l.foldSink(p, m)
}

func (l *layout) storeSink(m *move) transport.Sink {
	s := storeSink{dst: l.at(m.at).HostBytes(), whole: m.whole}
	if m.after > 0 {
		s.behind = l.steps[m.after-1].In.(*storeSink)
	}
	l.stores = append(l.stores, s)
	return &l.stores[len(l.stores)-1]
}

// combineSink also serves a fold of two ranks.
func (l *layout) combineSink(p *plan, m *move) transport.Sink {
	s := combineSink{op: l.call.Reduce, dst: l.at(m.at), own: l.at(m.with)}
	if s.op == dtype.Mean && m.verb == combine {
		s.op = dtype.Sum
		if m.last {
			s.divide = p.size
		}
	}
	if sameMemory(s.dst, s.own) {
		if n := min(s.dst.Count(), l.pieceCount(s.dst.Type())); l.win.Count() < n {
			l.win = window{l.take(s.dst.Type(), n)}
		}
		s.win = l.win
	} else {
		s.landing = l.piece
	}
	l.combines = append(l.combines, s)
	return &l.combines[len(l.combines)-1]
}

func (l *layout) pieceCount(t dtype.Type) int { return max(1, l.piece/t.Size()) }

func (l *layout) accumulateSink(p *plan, m *move) transport.Sink {
	t := l.areas[inTmp].Type()
	n := min(m.at.count(), l.pieceCount(l.acc))
	s := accumulateSink{op: l.call.Reduce, size: p.size, at: l.at(m.at), own: l.at(m.with), inPlace: m.at == m.with}
	if m.wide || t == l.acc {
		s.win = window{l.take(l.acc, n)}
	} else {
		s.win, s.wide = window{l.take(t, n)}, l.take(l.acc, n)
	}
	if m.after > 0 {
		s.behind = l.steps[m.after-1].In.(*accumulateSink)
		s.ahead = m.with.lo - p.moves[m.after-1].at.lo
	}
	if m.last {
		s.out = l.at(m.out)
	}
	l.accumulates = append(l.accumulates, s)
	return &l.accumulates[len(l.accumulates)-1]
}

func (l *layout) foldSink(p *plan, m *move) transport.Sink {
	f := &l.folder
	if len(l.folds) == 0 {
		l.startFold(p, m)
	}
	f.stages[m.peer] = l.take(f.dst.Type(), min(2*f.block, f.dst.Count()))
	l.folds = append(l.folds, foldSink{folder: f, peer: m.peer})
	return &l.folds[len(l.folds)-1]
}

func (l *layout) startFold(p *plan, m *move) {
	f := &l.folder
	if len(f.got) != p.size {
		f.got, f.stages, f.srcs = make([]int, p.size), make([]dtype.Buffer, p.size), make([]dtype.Buffer, p.size)
	}
	clear(f.got)
	clear(f.stages)
	f.op, f.dst, f.own, f.rank, f.done = l.call.Reduce, l.at(m.at), l.at(m.with), p.rank, 0
	half := max(cacheLine, min(l.piece, l.stage/(2*(p.size-1)))) / cacheLine * cacheLine
	f.block = half / f.dst.Type().Size()
}
