package ring

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/goccl/goccl/dtype"
)

// A movement is one call of an operation that combines nothing.
type movement struct {
	op      Op
	t       dtype.Type
	counts  []int // by rank; of all-to-all, rank i sends counts[(i+j)%n] to rank j
	v       bool  // by the V form
	root    int
	inPlace bool
}

func (m movement) sendCounts(rank int) []int {
	n := len(m.counts)
	s := make([]int, n)
	for j := range s {
		s[j] = m.counts[(rank+j)%n]
	}
	return s
}

func (m movement) recvCounts(rank int) []int { return m.sendCounts(rank) } // i+j is j+i

// stamp marks the elements of b as the ones from a rank to a rank, numbered.
func stamp(b dtype.Buffer, from, to int) {
	for i := range b.Count() {
		var e [8]byte
		binary.LittleEndian.PutUint64(e[:], uint64(from+1)*0x0101+uint64(to)*0x1f1f1f1f+uint64(i)*0x37)
		copy(b.Slice(i, i+1).HostBytes(), e[:])
	}
}

func concat(t dtype.Type, parts []dtype.Buffer) dtype.Buffer {
	n := 0
	for _, p := range parts {
		n += p.Count()
	}
	all := newBuffer(t, n)
	n = 0
	for _, p := range parts {
		copy(all.Slice(n, n+p.Count()).HostBytes(), p.HostBytes())
		n += p.Count()
	}
	return all
}

func stamped(t dtype.Type, count, from, to int) dtype.Buffer {
	b := newBuffer(t, count)
	stamp(b, from, to)
	return b
}

// buffers returns what a rank passes as src and dst, and what dst must be afterwards.
func (m movement) buffers(rank int) (src, dst, want dtype.Buffer) {
	n := len(m.counts)
	parts := make([]dtype.Buffer, n)
	switch m.op {
	case OpBroadcast:
		dst, want = newBuffer(m.t, m.counts[0]), stamped(m.t, m.counts[0], m.root, 0)
		if rank == m.root {
			stamp(dst, m.root, 0)
		}
	case OpScatter:
		want = stamped(m.t, m.counts[rank], m.root, rank)
		dst = newBuffer(m.t, m.counts[rank])
		if rank == m.root {
			for j := range parts {
				parts[j] = stamped(m.t, m.counts[j], m.root, j)
			}
			src = concat(m.t, parts)
			if m.inPlace {
				lo := sum(m.counts[:rank])
				dst = src.Slice(lo, lo+m.counts[rank])
			}
		}
	case OpGather, OpAllGather:
		for i := range parts {
			parts[i] = stamped(m.t, m.counts[i], i, 0)
		}
		src = parts[rank]
		if m.op == OpAllGather || rank == m.root {
			want = concat(m.t, parts)
			dst = newBuffer(m.t, want.Count())
			if m.inPlace {
				lo := sum(m.counts[:rank])
				own := dst.Slice(lo, lo+m.counts[rank])
				copy(own.HostBytes(), src.HostBytes())
				src = own
			}
		}
	case OpAllToAll:
		for j, count := range m.sendCounts(rank) {
			parts[j] = stamped(m.t, count, rank, j)
		}
		src = concat(m.t, parts)
		for i, count := range m.recvCounts(rank) {
			parts[i] = stamped(m.t, count, i, rank)
		}
		want = concat(m.t, parts)
		dst = newBuffer(m.t, want.Count())
	}
	return src, dst, want
}

func (m movement) run(ctx context.Context, x *Executor, seq uint64) error {
	rank := x.plan.rank
	src, dst, want := m.buffers(rank)
	before := string(src.HostBytes())
	c := Call{Op: m.op, Dst: dst, Src: src, Root: m.root}
	if m.v {
		switch m.op {
		case OpGather, OpAllGather:
			c.RecvCounts = m.counts
		case OpScatter:
			c.SendCounts = m.counts
		case OpAllToAll:
			c.SendCounts, c.RecvCounts = m.sendCounts(rank), m.recvCounts(rank)
		}
	}
	if err := x.Run(ctx, seq, &c); err != nil {
		return fmt.Errorf("%+v: %w", m, err)
	}
	if string(dst.HostBytes()) != string(want.HostBytes()) {
		return fmt.Errorf("%+v: got %x, want %x", m, dst.HostBytes(), want.HostBytes())
	}
	if !m.inPlace && before != string(src.HostBytes()) {
		return fmt.Errorf("%+v: src was written", m)
	}
	return nil
}

// movements are the algorithms of each.
var movements = map[Op][]Algorithm{
	OpAllGather: {Ring, Direct, Doubling},
	OpBroadcast: {Chain, Direct, Doubling},
	OpGather:    {Direct},
	OpScatter:   {Direct},
	OpAllToAll:  {Direct},
}

// movementScript is equal and V forms, types and roots, in place where that is allowed.
func movementScript(op Op, n int) []movement {
	var s []movement
	add := func(counts []int, v bool) {
		for root := range n {
			m := movement{op: op, t: allTypes[len(s)%len(allTypes)], counts: counts, v: v, root: root}
			m.inPlace = len(s)%2 == 1 && op != OpAllToAll && op != OpBroadcast
			if s = append(s, m); !op.rooted() && root == 2 {
				break
			}
		}
	}
	for _, count := range []int{0, 1, n, 257} {
		add(evenParts(n, count), false)
	}
	if op != OpBroadcast {
		add(unevenParts(n), true)
		add(unequal(3*n+1, n), true)
		add(evenParts(n, 3), true)
	}
	return s
}

// TestMovements covers the operations that combine nothing, every root among them.
func TestMovements(t *testing.T) {
	for op, algorithms := range movements {
		for _, a := range algorithms {
			for _, w := range []network{roomy, cramped, plainly, mixed, sockets} {
				t.Run(fmt.Sprintf("%v/%v/%s", op, a, w.name), func(t *testing.T) {
					t.Parallel()
					for n := 1; n <= 17; n++ {
						if w.name != roomy.name && n > 4 && n != 8 || testing.Short() && n > 5 && n != 8 {
							continue
						}
						w.run(t, n, Options{Algorithm: a}, func(ctx context.Context, x *Executor) error {
							for seq, m := range movementScript(op, n) {
								if err := m.run(ctx, x, uint64(seq)); err != nil {
									return err
								}
							}
							return nil
						})
					}
				})
			}
		}
	}
}

// TestBarrier: nobody leaves before all have entered.
func TestBarrier(t *testing.T) {
	for _, w := range []network{roomy, cramped, plainly} {
		for n := 1; n <= 9; n++ {
			entered := make([]int, n) // written before, read behind a barrier: -race checks it too
			w.run(t, n, Options{}, func(ctx context.Context, x *Executor) error {
				for round := range 10 {
					entered[x.plan.rank] = round + 1
					if err := x.Run(ctx, uint64(2*round), &Call{Op: OpBarrier}); err != nil {
						return err
					}
					for rank, r := range entered {
						if r != round+1 {
							return fmt.Errorf("left barrier %d before rank %d entered", round, rank)
						}
					}
					if err := x.Run(ctx, uint64(2*round+1), &Call{Op: OpBarrier}); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
}
