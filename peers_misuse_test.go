package goccl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/goccl/goccl/dtype"
)

// Scenario 68: different collectives meet (pytorch#22071, #78022, gloo PR#456). TestPeers68_DifferentCalls goes through them;
// here the ranks were configured to carry out the same call in different ways.
func TestPeers68_DifferentAlgorithms(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w world) {
		ts := w(t, 3)
		gs := make([]*ProcessGroup, 3)
		for r, a := range []Algorithm{AlgorithmDirect, AlgorithmDirect, AlgorithmRing} {
			g, err := New(ts[r], Config{Algorithm: a})
			if err != nil {
				t.Fatal(err)
			}
			gs[r] = g
		}
		call := func(g *ProcessGroup) error { return AllReduce(t.Context(), g, make([]float32, 3000), Sum) }
		disagree(t, gs, 2, [2]string{"f32 x 3000 sum, direct, #1", "f32 x 3000 sum, ring, #1"}, call, call)
		each(gs, func(g *ProcessGroup) error { return g.Close() })
	})
}

// Scenario 71: "not supported" is thrown where nobody hears it (mlx#4285). It is typed, comes from the call itself on every
// rank alike, before any byte, and costs the group nothing.
func TestPeers71_UnsupportedIsSaidAtOnce(t *testing.T) {
	overWorlds(t, func(t *testing.T, w world) {
		runRanks(t, w, 3, func(ctx context.Context, g *ProcessGroup) error {
			host, device := dtype.Of(make([]float32, 6)), dtype.Device(dtype.F32, 4096, 6, 0)
			part := host.Slice(0, 2)
			for what, err := range map[string]error{
				"bits of floats":          g.AllReduce(ctx, host, BitAnd),
				"bits of floats, later":   g.AllReduceAsync(ctx, host, BitXor).Wait(ctx),
				"bits of floats, parts":   g.ReduceScatter(ctx, part, host, BitOr),
				"bits of floats, to root": g.Reduce(ctx, host, host, BitOr, 1),
				"device all-reduce":       g.AllReduce(ctx, device, Sum),
				"device reduce-scatter":   g.ReduceScatter(ctx, part, device, Sum),
				"device all-gather":       g.AllGather(ctx, device, part),
				"device broadcast":        g.Broadcast(ctx, device, 0),
				"device scatter":          g.Scatter(ctx, part, device, g.Rank()),
				"device gather":           g.Gather(ctx, device, part, g.Rank()),
				"device all-to-all":       g.AllToAll(ctx, device, host),
				"device send":             g.Send(ctx, 0, 0, device),
			} {
				if !errors.Is(err, errors.ErrUnsupported) {
					return fmt.Errorf("%s: %v, want ErrUnsupported", what, err)
				}
			}
			if g.seq != 0 {
				return fmt.Errorf("%d calls were counted", g.seq)
			}
			return AllReduce(ctx, g, make([]float32, 6), Sum)
		})
	})
}

// Scenario 72: a checking mode breaks valid programs (pytorch#148976). Checks are always on, so every test is one of this;
// here groups, sub-groups and sub-groups of those make different calls in turn, with asynchronous ones under way.
func TestPeers72_ChecksRaiseNoFalseAlarm(t *testing.T) {
	overWorlds(t, func(t *testing.T, w world) {
		runRanks(t, w, 4, func(ctx context.Context, g *ProcessGroup) error {
			half, err := g.Split(ctx, g.Rank()%2, -g.Rank())
			if err != nil {
				return err
			}
			var odd *ProcessGroup
			if g.Rank() != 2 {
				if odd, err = g.Subgroup(ctx, []int{3, 0, 1}); err != nil {
					return err
				}
			}
			inner, err := half.Split(ctx, 0, half.Rank())
			if err != nil {
				return err
			}
			for range 3 {
				long := make([]float32, 50_000)
				under := AllReduceAsync(ctx, g, long, Sum)
				for _, each := range []*ProcessGroup{half, odd, inner} {
					if each == nil {
						continue
					}
					for range 1 + each.Size() { // as many calls as suits the group
						if err := everyCollective(ctx, each); err != nil {
							return fmt.Errorf("a group of %d: %w", each.Size(), err)
						}
					}
				}
				if err := errors.Join(under.Wait(ctx), everyCollective(ctx, g)); err != nil {
					return err
				}
			}
			if odd != nil {
				err = odd.Close()
			}
			return errors.Join(err, inner.Close(), half.Close(), g.Close()) // which compare what was called
		})
	})
}

// afterwards makes every kind of call on a group that is no longer good, and returns what each says.
func afterwards(ctx context.Context, g *ProcessGroup) map[string]error {
	said := make(map[string]error)
	for name, call := range collectives {
		said[name] = call(ctx, g, 3)
	}
	x, all := []float32{1}, make([]float32, g.Size())
	said["AllReduceAsync"] = AllReduceAsync(ctx, g, x, Sum).Wait(ctx)
	said["ReduceScatterAsync"] = ReduceScatterAsync(ctx, g, x, all, Sum).Wait(ctx)
	said["AllGatherAsync"] = AllGatherAsync(ctx, g, all, x).Wait(ctx)
	said["BroadcastAsync"] = BroadcastAsync(ctx, g, x, 0).Wait(ctx)
	_, said["Subgroup"] = g.Subgroup(ctx, []int{0, 1, 2})
	return said
}

func messages(ctx context.Context, g *ProcessGroup, peer int) map[string]error {
	said := map[string]error{"Send": Send(ctx, g, peer, 0, []int8{1})}
	_, said["Recv"] = Recv[int8](ctx, g, peer, 0)
	_, said["RecvInto"] = RecvInto(ctx, g, peer, 0, make([]int8, 1))
	return said
}

// harmless is what must work on any group, good or not.
func harmless(g *ProcessGroup) {
	g.Rank()
	g.Size()
	g.IsLeader()
	g.ParentRanks()
	g.Transport()
	g.Plan("all-reduce", dtype.F32, 10)
	g.Err()
	g.Abort(errors.New("once more"))
	g.Abort(nil)
	g.Close()
	g.Close()
}

// wantAll checks what each call said.
func wantAll(t *testing.T, said map[string]error, is func(error) bool) {
	t.Helper()
	for name, err := range said {
		if err == nil || !is(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Scenario 75: a call on a group that was aborted uses a dead handle (pytorch PR#192105). Every method after Close, after Abort
// and after a peer's failure says so.
func TestPeers75_CallsAfterClose(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w world) {
		gs := groups(t, w, 3, Config{})
		each(gs, func(g *ProcessGroup) error { return g.Close() })
		closed := func(err error) bool { return errors.Is(err, net.ErrClosed) }
		for r, g := range gs {
			wantAll(t, afterwards(t.Context(), g), closed)
			wantAll(t, messages(t.Context(), g, r), closed)
			wantAll(t, messages(t.Context(), g, (r+1)%3), closed)
		}
		each(gs, func(g *ProcessGroup) error { harmless(g); return nil })
	})
}

func TestPeers75_CallsAfterAbort(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w world) {
		gs := groups(t, w, 3, Config{})
		why := errors.New("enough")
		gs[1].Abort(why)
		for r, g := range gs {
			verdict(g)
			aborted := func(err error) bool {
				var e *AbortError
				return errors.As(err, &e) && e.Rank == 1 && e.Text == "enough" && (r != 1 || errors.Is(err, why))
			}
			wantAll(t, afterwards(t.Context(), g), func(err error) bool { return aborted(err) && errors.Is(err, ErrBroken) })
			wantAll(t, messages(t.Context(), g, (r+1)%3), aborted)
		}
		each(gs, func(g *ProcessGroup) error { harmless(g); return nil })
	})
}

func TestPeers75_CallsAfterAFailure(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w world) {
		gs := groups(t, w, 3, Config{})
		gs[2].t.Close()
		for _, g := range gs[:2] {
			verdict(g)
			dead := func(err error) bool {
				var e *PeerError
				return errors.As(err, &e) && e.Rank == 2
			}
			wantAll(t, afterwards(t.Context(), g), func(err error) bool { return dead(err) && errors.Is(err, ErrBroken) && errors.Is(err, g.Err()) })
			wantAll(t, messages(t.Context(), g, 2), dead)
		}
		each(gs, func(g *ProcessGroup) error { harmless(g); return nil })
	})
}
