// Package mem connects ranks that are goroutines of one process, through bounded pipes in memory. It is the transport of
// tests, and of a world of one.
package mem

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/internal/link"
)

const defaultBuffer = 64 << 10

// Options shape the pipes of a world, so that tests reach what a network rarely does.
type Options struct {
	Buffer int    // bytes that a pipe holds before its writer must wait; 0: 64 KiB
	Jitter uint64 // not 0: every read and write moves a random part of what it could, by this seed
	// Checksum makes every frame carry a CRC-32C of its payload, as transports over a network can.
	Checksum bool
}

// NewWorld returns the transports of n ranks that are connected with each other. Each must be closed by its user.
func NewWorld(n int) []transport.Transport { return NewWorldWith(n, Options{}) }

// Solo returns the only rank of a world of one.
func Solo() transport.Transport { return NewWorld(1)[0] }

// NewWorldWith is NewWorld with pipes of a certain shape.
func NewWorldWith(n int, o Options) []transport.Transport {
	if o.Buffer == 0 {
		o.Buffer = defaultBuffer
	}
	if n < 1 || o.Buffer < 1 {
		panic(fmt.Sprintf("mem: a world of %d ranks with buffers of %d bytes", n, o.Buffer))
	}
	w := &world{options: o, spaces: make(map[uint64]*space), turnouts: make(map[turnoutKey]*turnout)}
	ranks := make([]int, n)
	for i := range ranks {
		ranks[i] = i
	}
	s := newSpace(nil, ranks)
	ts := make([]transport.Transport, n)
	for i := range ts {
		ts[i] = newRank(w, s, i)
	}
	return ts
}

// A world is what its ranks share.
type world struct {
	options Options
	epoch   uint64
	seeds   atomic.Uint64 // pipes made with jitter so far

	mu       sync.Mutex              // taken before any space's or turnout's
	spaces   map[uint64]*space       // sub-groups that some members have yet to enter, by id
	turnouts map[turnoutKey]*turnout // next epochs that some members have yet to enter
}

// A space holds the pipes among the members of one group.
type space struct {
	parent  *space
	ranks   []int // of the parent's group, by rank in this one
	names   []int // ranks of the first epoch's world, for messages
	signals []signal
	entered []bool // guarded by the world's mu

	mu    sync.Mutex
	pipes map[pipeKey]*pipe // guarded by mu
	gone  []bool            // members that have closed; guarded by mu
}

type pipeKey struct {
	from, to int
	class    transport.Class
	group    uint64
}

func newSpace(parent *space, ranks []int) *space {
	s := &space{parent: parent, ranks: slices.Clone(ranks), pipes: make(map[pipeKey]*pipe)}
	s.names = slices.Clone(ranks)
	if parent != nil {
		for i, r := range ranks {
			s.names[i] = parent.names[r]
		}
	}
	s.signals = make([]signal, len(ranks))
	s.entered = make([]bool, len(ranks))
	s.gone = make([]bool, len(ranks))
	for i := range s.signals {
		s.signals[i] = make(signal, 1)
	}
	return s
}

func (w *world) newJitter() *rand.Rand {
	if w.options.Jitter == 0 {
		return nil
	}
	return rand.New(rand.NewPCG(w.options.Jitter, w.seeds.Add(1)))
}

// enter returns the space of a sub-group of parent; the first member to come makes it.
func (w *world) enter(parent *space, id uint64, ranks []int, self int) (*space, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.spaces[id]
	if s == nil {
		s = newSpace(parent, ranks)
		for i, p := range ranks {
			if parent.hasLeft(p) {
				s.leave(i)
			}
		}
		w.spaces[id] = s
	}
	i := slices.Index(ranks, self)
	if s.parent != parent || !slices.Equal(s.ranks, ranks) || s.entered[i] {
		return nil, fmt.Errorf("mem: sub-group %#x is in use with ranks %v", id, s.ranks)
	}
	s.entered[i] = true
	if !slices.Contains(s.entered, false) {
		delete(w.spaces, id)
	}
	return s, nil
}

// forgo makes a rank that has closed a member that has left, in the sub-groups and next epochs which wait for it.
func (w *world) forgo(parent *space, self int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.spaces {
		if i := slices.Index(s.ranks, self); s.parent == parent && i >= 0 && !s.entered[i] {
			s.leave(i)
		}
	}
	for key, t := range w.turnouts {
		if i := slices.Index(t.ranks, self); key.from == parent && i >= 0 {
			if t.forgo(i); t.complete() {
				delete(w.turnouts, key)
			}
		}
	}
}

// pipe returns the pipe of a key; whichever end asks first makes it. One whose other end has closed is made closed.
func (s *space) pipe(w *world, key pipeKey) *pipe {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pipes[key]
	if p == nil {
		p = newPipe(w.options.Buffer, w.newJitter(), s.signals[key.to], s.signals[key.from])
		s.pipes[key] = p
		if s.gone[key.from] {
			p.end()
		}
		if s.gone[key.to] {
			p.breakOff()
		}
	}
	return p
}

// leave closes every pipe of a member, and those yet to be made. The member no longer uses them.
func (s *space) leave(rank int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone[rank] = true
	for key, p := range s.pipes {
		if key.from == rank {
			p.end()
		}
		if key.to == rank {
			p.breakOff()
		}
	}
}

func (s *space) hasLeft(rank int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone[rank]
}

// conn returns rank's end of the pipes with peer.
func (s *space) conn(w *world, rank, peer int, class transport.Class) link.Conn {
	return &conn{
		in:  s.pipe(w, pipeKey{peer, rank, class, 0}),
		out: s.pipe(w, pipeKey{rank, peer, class, 0}),
	}
}
