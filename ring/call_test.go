package ring

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/goccl/goccl/dtype"
	"github.com/goccl/goccl/transport"
)

func f32s(n int) dtype.Buffer { return dtype.Of(make([]float32, n)) }

// TestCheck: wrong arguments are named before any byte is sent.
func TestCheck(t *testing.T) {
	mem := f32s(24)
	const size, rank = 4, 1
	for _, c := range []struct {
		want string
		call Call
	}{
		{"no such operation", Call{}},
		{"no such operation", Call{Op: 99}},
		{"buffer of invalid type", Call{Op: OpAllReduce}},
		{"invalid reduce op", Call{Op: OpAllReduce, Dst: mem, Src: mem}},
		{"dst is f64, src f32", Call{Op: OpAllReduce, Dst: dtype.Of(make([]float64, 3)), Src: f32s(3), Reduce: dtype.Sum}},
		{"dst has 3 elements, src 4", Call{Op: OpAllReduce, Dst: f32s(3), Src: f32s(4), Reduce: dtype.Sum}},
		{"overlap", Call{Op: OpAllReduce, Dst: mem.Slice(0, 8), Src: mem.Slice(1, 9), Reduce: dtype.Sum}},
		{"src has 9 elements, want 4 ranks × 2 of dst", Call{Op: OpReduceScatter, Dst: f32s(2), Src: f32s(9), Reduce: dtype.Sum}},
		{"src has 9 elements, counts add up to 10", Call{Op: OpReduceScatter, Dst: f32s(2), Src: f32s(9), RecvCounts: []int{1, 2, 3, 4}, Reduce: dtype.Sum}},
		{"dst has 3 elements, count of rank 1 is 2", Call{Op: OpReduceScatter, Dst: f32s(3), Src: f32s(10), RecvCounts: []int{1, 2, 3, 4}, Reduce: dtype.Sum}},
		{"overlap", Call{Op: OpReduceScatter, Dst: mem.Slice(4, 10), Src: mem, Reduce: dtype.Sum}},
		{"3 recv counts for 4 ranks", Call{Op: OpAllGather, Dst: f32s(9), Src: f32s(3), RecvCounts: []int{3, 3, 3}}},
		{"recv count of rank 2 is -1", Call{Op: OpAllGather, Dst: f32s(8), Src: f32s(3), RecvCounts: []int{3, 3, -1, 3}}},
		{"recv counts add up to more", Call{Op: OpAllGather, Dst: f32s(8), Src: f32s(3), RecvCounts: []int{math.MaxInt, 3, 3, 3}}},
		{"recv counts add up to more", Call{Op: OpGather, Src: f32s(3), RecvCounts: []int{math.MaxInt / 2, 3, math.MaxInt / 2, math.MaxInt}}},
		{"dst has 13 elements, want 4 ranks × 3 of src", Call{Op: OpAllGather, Dst: f32s(13), Src: f32s(3)}},
		{"overlap", Call{Op: OpAllGather, Dst: mem, Src: mem.Slice(0, 6)}},
		{"root 4 of 4 ranks", Call{Op: OpBroadcast, Dst: mem, Root: 4}},
		{"root -1 of 4 ranks", Call{Op: OpReduce, Dst: mem, Src: mem, Root: -1, Reduce: dtype.Sum}},
		{"dst has 3 elements, src 4", Call{Op: OpReduce, Dst: f32s(3), Src: f32s(4), Reduce: dtype.Sum, Root: rank}},
		{"src has 4 elements, want 4 ranks × 2 of dst", Call{Op: OpScatter, Dst: f32s(2), Src: f32s(4), Root: rank}},
		{"overlap", Call{Op: OpScatter, Dst: mem.Slice(5, 11), Src: mem, Root: rank}},
		{"src has 6 elements, not a multiple of 4 ranks", Call{Op: OpAllToAll, Dst: f32s(6), Src: f32s(6)}},
		{"dst has 8 elements, src 4", Call{Op: OpAllToAll, Dst: f32s(8), Src: f32s(4)}},
		{"must be given together", Call{Op: OpAllToAll, Dst: f32s(8), Src: f32s(8), SendCounts: []int{2, 2, 2, 2}}},
		{"dst has 8 elements, recv counts add up to 7", Call{Op: OpAllToAll, Dst: f32s(8), Src: f32s(8), SendCounts: []int{2, 2, 2, 2}, RecvCounts: []int{1, 2, 2, 2}}},
		{"overlap", Call{Op: OpAllToAll, Dst: mem, Src: mem}},
	} {
		err := c.call.Check(rank, size)
		if !errors.Is(err, ErrArgument) || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "ring: ") {
			t.Errorf("%+v: %v, want %q", c.call, err, c.want)
		}
	}
}

func TestCheckUnsupported(t *testing.T) {
	device := dtype.Device(dtype.F32, 0x1000, 8, 0)
	for _, c := range []Call{
		{Op: OpAllReduce, Dst: device, Src: device, Reduce: dtype.Sum},
		{Op: OpAllGather, Dst: device, Src: f32s(2)},
		{Op: OpAllReduce, Dst: f32s(2), Src: f32s(2), Reduce: dtype.BitXor},
	} {
		if err := c.Check(0, 4); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestCheckTakes: what the documentation allows is no error.
func TestCheckTakes(t *testing.T) {
	mem := f32s(8)
	for _, c := range []Call{
		{Op: OpBarrier},
		{Op: OpBarrier, Dst: dtype.Device(dtype.F32, 0, 1, 0), Root: -1},
		{Op: OpAllReduce, Dst: f32s(0), Src: f32s(0), Reduce: dtype.Mean},
		{Op: OpAllReduce, Dst: mem.Slice(0, 4), Src: mem.Slice(4, 8), Reduce: dtype.Mean},
		{Op: OpReduce, Src: mem, Reduce: dtype.Sum, Root: 2},
		{Op: OpReduce, Dst: f32s(1), Src: mem, Reduce: dtype.Sum, Root: 2},
		{Op: OpReduceScatter, Dst: mem.Slice(2, 4), Src: mem, Reduce: dtype.Sum},
		{Op: OpReduceScatter, Dst: mem.Slice(1, 4), Src: mem, Reduce: dtype.Sum, RecvCounts: []int{1, 3, 4, 0}},
		{Op: OpAllGather, Dst: mem, Src: mem.Slice(2, 4)},
		{Op: OpGather, Dst: mem, Src: mem.Slice(2, 4), Root: 1},
		{Op: OpGather, Src: mem, Root: 0},
		{Op: OpScatter, Dst: mem.Slice(2, 4), Src: mem, Root: 1},
		{Op: OpScatter, Dst: mem, Root: 0},
		{Op: OpAllToAll, Dst: f32s(8), Src: mem},
	} {
		if err := c.Check(1, 4); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestPeers10_SizeArithmetic has worlds and counts whose products do not fit into 32 bits: right, or too large, never wrapped
// (mpich#2317, ucc PR#944, ompi PR#9942).
func TestPeers10_SizeArithmetic(t *testing.T) {
	const size, each = 3000, 2 << 20
	counts := make([]int, size)
	for i := range counts {
		counts[i] = each
	}
	part := dtype.Of(make([]uint8, each))
	for _, c := range []Call{{Op: OpGather, Src: part, Root: 1}, {Op: OpGather, Src: part, Root: 1, RecvCounts: counts}} {
		err := c.Check(0, size)
		if fits := uint64(size)*each <= math.MaxInt; fits != (err == nil) || !fits && !errors.Is(err, ErrArgument) {
			t.Errorf("%d ranks of %d elements: %v", size, each, err)
		}
	}
	for _, count := range []int{0, 1, 2999, 3001, math.MaxInt - 1, math.MaxInt} {
		last := 0
		for i := range size {
			c := chunkOf(chunk{0, count}, size, i)
			if d := c.count() - count/size; c.lo != last || d != 0 && d != 1 || d == 1 && i >= count%size {
				t.Fatalf("chunk %d of %d: %v", i, count, c)
			}
			last = c.hi
		}
		if last != count {
			t.Fatalf("chunks of %d end at %d", count, last)
		}
	}
}

// TestNothingSent: a call that Check refuses reaches no peer, and the next one works.
func TestNothingSent(t *testing.T) {
	roomy.run(t, 2, Options{}, func(ctx context.Context, x *Executor) error {
		c := &counting{Transport: x.t}
		x.ex = c
		if err := x.Run(ctx, 0, &Call{Op: OpAllReduce, Dst: f32s(1), Src: f32s(2), Reduce: dtype.Sum}); !errors.Is(err, ErrArgument) {
			return err
		}
		if c.calls > 0 {
			return errors.New("something was exchanged")
		}
		return x.Run(ctx, 0, &Call{Op: OpBarrier})
	})
}

func TestNames(t *testing.T) {
	for o := OpAllReduce; o <= OpBarrier; o++ {
		if got, err := ParseOp(strings.ToUpper(strings.ReplaceAll(o.String(), "-", ""))); got != o || err != nil {
			t.Errorf("%v: %v, %v", o, got, err)
		}
	}
	for a := Auto; a <= Chain; a++ {
		if got, err := ParseAlgorithm(a.String()); got != a || err != nil {
			t.Errorf("%v: %v, %v", a, got, err)
		}
	}
	if _, err := ParseOp("all-reduced"); err == nil || !strings.Contains(err.Error(), "reduce-scatter") {
		t.Error(err)
	}
	if _, err := ParseAlgorithm(""); err == nil || !strings.Contains(err.Error(), "one-shot") {
		t.Error(err)
	}
	if s := Op(77).String() + Algorithm(77).String(); s != "invalid op 77invalid algorithm 77" {
		t.Error(s)
	}
}

func TestDescribe(t *testing.T) {
	b := f32s(1024)
	for want, c := range map[string]Call{
		"all-reduce f32 x 1024 sum, ring, #7":           {Op: OpAllReduce, Src: b, Reduce: dtype.Sum, Root: 3},
		"broadcast f32 x 1024 from root 2, ring, #7":    {Op: OpBroadcast, Dst: b, Root: 2, Reduce: dtype.Sum},
		"reduce f32 x 1024 max to root 2, ring, #7":     {Op: OpReduce, Src: b, Root: 2, Reduce: dtype.Max},
		"gather f32 x 1024 to root 0, ring, #7":         {Op: OpGather, Src: b},
		"barrier, ring, #7":                             {Op: OpBarrier, Src: b, Root: 1},
		"all-to-all f32 x 0, ring, #7":                  {Op: OpAllToAll, Src: b, SendCounts: []int{1}},
		"all-gather f32 x 1024 (counts beaf), ring, #7": {Op: OpAllGather, Dst: b, RecvCounts: []int{1000, 24}},
	} {
		if got := Describe(Tag(&c, 5, 7, Ring)); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := Describe(transport.Tag{Call: math.MaxUint64, Count: math.MaxUint64}); !strings.HasPrefix(got, "invalid op 255") {
		t.Error(got)
	}
}

// TestDigest: counts vectors of equal sums have different digests, and none is that of the plain form.
func TestDigest(t *testing.T) {
	seen := make(map[uint64][]int)
	for _, v := range [][]int{{1, 2, 3}, {2, 1, 3}, {3, 2, 1}, {0, 0, 6}, {6, 0, 0}, {2, 2, 2}, {0, 6, 0}, {5, 1, 0}, {4, 1, 1}} {
		d := digest(v)
		if other, ok := seen[d]; ok || d == 0 || d > 0xffff {
			t.Errorf("%v and %v: %x", v, other, d)
		}
		seen[d] = v
	}
}
