package ring

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/goccl/goccl/dtype"
	"github.com/goccl/goccl/transport"
)

// TestMismatch: two ranks that do not agree both hear what each of them does.
func TestMismatch(t *testing.T) {
	allReduce := func(typ dtype.Type, count int, op dtype.ReduceOp) Call {
		b := newBuffer(typ, count)
		return Call{Op: OpAllReduce, Dst: b, Src: b, Reduce: op}
	}
	good := allReduce(dtype.F32, 100, dtype.Sum)
	for name, c := range map[string]struct {
		calls [2]Call
		seq   uint64 // of the second rank
		words [2]string
	}{
		"count":           {[2]Call{good, allReduce(dtype.F32, 99, dtype.Sum)}, 0, [2]string{"f32 x 100", "f32 x 99"}},
		"large counts":    {[2]Call{allReduce(dtype.F32, 409600, dtype.Sum), allReduce(dtype.F32, 409598, dtype.Sum)}, 0, [2]string{"x 409600", "x 409598"}},
		"type":            {[2]Call{good, allReduce(dtype.I32, 100, dtype.Sum)}, 0, [2]string{"f32 x 100", "i32 x 100"}},
		"same bytes":      {[2]Call{allReduce(dtype.F32, 8, dtype.Sum), allReduce(dtype.F16, 16, dtype.Sum)}, 0, [2]string{"f32 x 8", "f16 x 16"}},
		"reduce op":       {[2]Call{good, allReduce(dtype.F32, 100, dtype.Max)}, 0, [2]string{"sum", "max"}},
		"operation":       {[2]Call{good, {Op: OpBarrier}}, 0, [2]string{"all-reduce f32 x 100 sum", "barrier"}},
		"order":           {[2]Call{good, good}, 1, [2]string{"#0", "#1"}},
		"empty against 1": {[2]Call{allReduce(dtype.F32, 0, dtype.Sum), allReduce(dtype.F32, 1, dtype.Sum)}, 0, [2]string{"x 0", "x 1"}},
		"counts vector": {[2]Call{
			{Op: OpAllGather, Dst: f32s(8), Src: f32s(3), RecvCounts: []int{3, 5}},
			{Op: OpAllGather, Dst: f32s(8), Src: f32s(4), RecvCounts: []int{4, 4}}}, 0, [2]string{"(counts ", "(counts "}},
		"all-to-all V": {[2]Call{
			{Op: OpAllToAll, Dst: f32s(2), Src: f32s(4), SendCounts: []int{1, 3}, RecvCounts: []int{1, 1}},
			{Op: OpAllToAll, Dst: f32s(5), Src: f32s(3), SendCounts: []int{2, 1}, RecvCounts: []int{4, 1}}}, 0, [2]string{"bytes", "bytes"}},
	} {
		for _, w := range []network{roomy, plainly} {
			errs := make([]error, 2)
			w.errs(t, 2, Options{}, func(ctx context.Context, x *Executor) error {
				rank := x.plan.rank
				call := c.calls[rank]
				errs[rank] = x.Run(ctx, uint64(rank)*c.seq, &call)
				if w.name == roomy.name {
					return nil // leave the connections to the other, who is about to notice too
				}
				return errs[rank]
			})
			found := 0
			for rank, err := range errs {
				var m *MismatchError
				if !errors.As(err, &m) {
					continue
				}
				found++
				if m.Rank != 1-rank || !strings.Contains(m.Want, c.words[rank]) || !strings.Contains(m.Got, c.words[1-rank]) || m.Want == m.Got {
					t.Errorf("%s over %s: rank %d: %v", name, w.name, rank, err)
				}
			}
			// Over Send and Recv the first to notice may stop before the other has heard what it does.
			if found == 0 || found < 2 && w.name == roomy.name {
				t.Errorf("%s over %s: %v", name, w.name, errs)
			}
		}
	}
}

// TestRootsDiffer: ranks that disagree on the root fail, and those who hear the others name both roots.
func TestRootsDiffer(t *testing.T) {
	errs := roomy.errs(t, 3, Options{Algorithm: Direct}, func(ctx context.Context, x *Executor) error {
		root := 0
		if x.plan.rank == 1 {
			root = 2
		}
		return x.Run(ctx, 4, &Call{Op: OpReduce, Dst: f32s(9), Src: f32s(9), Reduce: dtype.Sum, Root: root})
	})
	found := 0
	for rank, err := range errs {
		var m *MismatchError
		switch {
		case err == nil:
			t.Errorf("rank %d noticed nothing", rank)
		case errors.As(err, &m) && strings.Contains(m.Want+m.Got, "to root 0") && strings.Contains(m.Want+m.Got, "to root 2"):
			found++
		}
	}
	if found == 0 {
		t.Error(errs)
	}
}

// failing is a transport whose exchanges fail.
type failing struct {
	transport.Transport
	err error
}

func (f failing) Exchange(context.Context, transport.Tag, []transport.Step) error { return f.err }

// TestErrors: what a transport reports is put into the words of the call; the causes stay in reach.
func TestErrors(t *testing.T) {
	cause := errors.New("connection reset")
	shared := &transport.PeerError{Rank: 1, Addr: "host:1", Err: cause}
	run := func(err error) error {
		tr := failing{roomy.make(t, 2)[0], err}
		defer tr.Close()
		return NewExecutor(tr, 0, Options{}).Run(t.Context(), 12, &Call{Op: OpBroadcast, Dst: f32s(1)})
	}
	err := run(fmt.Errorf("over some transport: %w", shared))
	var peer *transport.PeerError
	if !errors.As(err, &peer) || peer.Op != "broadcast" || peer.Seq != 12 || peer.Addr != "host:1" || !errors.Is(err, cause) {
		t.Error(err)
	}
	if shared.Op != "" {
		t.Error("the transport's error was changed")
	}
	if err := run(net.ErrClosed); !errors.Is(err, net.ErrClosed) || !strings.Contains(err.Error(), "ring: broadcast #12: ") {
		t.Error(err)
	}
}

// TestPeerDies: a rank that leaves ends the call of all who wait for it, and of those who wait for them.
func TestPeerDies(t *testing.T) {
	gone := errors.New("gone")
	for _, w := range []network{roomy, plainly} {
		for _, a := range reductions[OpAllReduce] {
			errs := w.errs(t, 4, Options{Algorithm: a}, func(ctx context.Context, x *Executor) error {
				if x.plan.rank == 2 {
					return gone
				}
				b := f32s(1000)
				return x.Run(ctx, 3, &Call{Op: OpAllReduce, Dst: b, Src: b, Reduce: dtype.Sum})
			})
			for rank, err := range errs {
				var peer *transport.PeerError
				if rank != 2 && (!errors.As(err, &peer) || peer.Op != "all-reduce" || peer.Seq != 3) {
					t.Errorf("%s %v: rank %d: %v", w.name, a, rank, err)
				}
			}
		}
	}
}

// TestCancel: an ended context ends the call of a rank whose peer never comes, with its cause.
func TestCancel(t *testing.T) {
	cause := errors.New("enough")
	for _, w := range []network{roomy, plainly} {
		began := make(chan struct{})
		errs := w.errs(t, 2, Options{Algorithm: Ring}, func(ctx context.Context, x *Executor) error {
			b := f32s(1 << 20) // more than the pipes hold
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			if x.plan.rank == 1 {
				tag := Tag(&Call{Op: OpAllReduce, Src: b, Reduce: dtype.Sum}, 0, 0, Ring)
				defer close(began)
				return x.t.Send(ctx, 0, tag, b.HostBytes()[:b.Nbytes()/2]) // the first frame; then nothing
			}
			go func() {
				<-began
				cancel(cause)
			}()
			return x.Run(ctx, 0, &Call{Op: OpAllReduce, Dst: b, Src: b, Reduce: dtype.Sum})
		})
		if !errors.Is(errs[0], cause) || errs[1] != nil {
			t.Errorf("%s: %v", w.name, errs)
		}
	}
}
