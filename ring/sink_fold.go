package ring

import "github.com/goccl/goccl/dtype"

// A folder folds the contributions of all ranks in rank order, a block at a time. Each peer has a stage of two blocks: it
// may be up to two blocks ahead of the slowest, then its window is empty.
type folder struct {
	op     dtype.ReduceOp
	dst    dtype.Buffer
	own    dtype.Buffer
	rank   int
	block  int            // elements
	stages []dtype.Buffer // by rank; two blocks each, this rank's is empty
	got    []int          // by rank: bytes here
	srcs   []dtype.Buffer // by rank: the operands of a block
	done   int            // elements folded
}

// end is where the block that is due ends, in bytes.
func (f *folder) end() int { return min(f.done+f.block, f.dst.Count()) * f.dst.Type().Size() }

// advance folds as many blocks as are complete.
func (f *folder) advance() error {
	for f.done < f.dst.Count() {
		end := f.end()
		for peer, got := range f.got {
			if got < end && peer != f.rank {
				return nil
			}
		}
		if err := f.foldBlock(); err != nil {
			return err
		}
	}
	return nil
}

func (f *folder) foldBlock() error {
	lo, hi := f.done, min(f.done+f.block, f.dst.Count())
	half := lo / f.block % 2 * f.block
	for peer := range f.srcs {
		if peer == f.rank {
			f.srcs[peer] = f.own.Slice(lo, hi)
		} else {
			f.srcs[peer] = f.stages[peer].Slice(half, half+hi-lo)
		}
	}
	f.done = hi
	return dtype.Fold(f.op, f.dst.Slice(lo, hi), f.srcs...)
}

// foldSink is the stage of one peer.
type foldSink struct {
	*folder
	peer int
}

func (s *foldSink) Window() []byte {
	unit := s.dst.Type().Size()
	got, block := s.got[s.peer], s.block*unit
	ahead := got/block*block - s.done*unit // the block that is filled, relative to the one that is due
	if ahead >= 2*block {
		return nil
	}
	at := got/block%2*block + got%block
	left := min(block-got%block, s.dst.Nbytes()-got)
	return s.stages[s.peer].HostBytes()[at : at+left]
}

func (s *foldSink) Advance(n int) error {
	s.got[s.peer] += n
	if s.got[s.peer] < s.end() {
		return nil
	}
	return s.advance()
}

func (s *foldSink) Final() int64 { return int64(s.done) * int64(s.dst.Type().Size()) }
