package faults

import (
	"context"
	"flag"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/goccl/goccl/internal/hostile"
	"github.com/goccl/goccl/internal/launch"
	"github.com/goccl/goccl/transport/tcp"
)

var strangers = flag.Int("strangers", 1500, "hostile connections in an attack on a job")

func init() { roles["target"] = target }

const (
	perSecond     = 300              // hostile connections
	attackWindow  = time.Second      // attacks on the job and on the bystander take turns
	hostileSlow   = 1.5              // how much longer a step may take while the job is attacked
	hostileMemory = 16 << 20         // how much more memory a rank may have then
	hostileAfter  = 12 * time.Second // how long the last silent strangers may stay, and what they leave behind
)

// target waits to be told to join and then all-reduces, in windows that the test begins and ends: what it says at the end of
// one is how long a step took there.
func target(s *self) {
	<-s.orders
	ctx := context.Background()
	g := s.join(ctx)
	w := &work{count: s.plan.Count}
	w.reset(g.Rank())
	var steps []time.Duration
	for {
		began := time.Now()
		last, err := w.step(ctx, g, s.finish.Load())
		steps = append(steps, time.Since(began))
		switch {
		case err != nil:
			s.say("failed", func(r *report) { r.Failure = describe(err) })
			return
		case last:
			s.done(g.Close(), w.wrong)
			return
		}
		s.stepped(s.steps.Load() == 0, func(r *report) {
			r.Addr = g.Transport().(*tcp.Transport).Addr(g.Rank())
		})
		select {
		case <-s.orders: // a window ends
			slices.Sort(steps)
			s.say("window", func(r *report) { r.Step, r.Now, r.Wrong = steps[len(steps)/2], takeTally(), w.wrong })
			steps = nil
		default:
		}
	}
}

// An attack on the ports of a job does not harm it: not its start, not its speed, not its memory. What the machine itself pays
// for an attack is known from the same attack on somebody else's port, in turns with the other.
func TestHostile(t *testing.T) {
	t.Parallel()
	const n = 4
	secret := []byte("only the ranks know")
	coordinator := loopbackAddrs(1)[0]
	job := &storm{target: hostile.Target{RunID: "the job", Size: n, Secret: secret}, addrs: []string{coordinator}}
	other := &storm{target: job.target, addrs: []string{startBystander(t)}}
	j := startWithin(t, 10*time.Minute, n, plan{Role: "target", Count: 1 << 16, Secret: secret}, func(cfg *launch.Config) {
		cfg.Coordinator, cfg.RunID = coordinator, job.target.RunID
	})
	job.addrs = j.startUnderAttack(job)

	// Windows in which the job is attacked, and windows in which the other is.
	time.Sleep(attackWindow)
	calm := j.window(upTo(n))
	var attacked, spared []time.Duration
	for job.begun < *strangers {
		job.strike(j.ctx, int(perSecond*attackWindow/time.Second))
		time.Sleep(attackWindow)
		attacked = append(attacked, j.stepsAndMemory(calm)...)
		other.strike(j.ctx, int(perSecond*attackWindow/time.Second))
		time.Sleep(attackWindow)
		spared = append(spared, j.stepsAndMemory(calm)...)
	}
	job.check(t)
	other.check(t)
	slices.Sort(attacked)
	slices.Sort(spared)
	a, s := attacked[len(attacked)/2], spared[len(spared)/2]
	t.Logf("a step took %v while the job was attacked, %v while somebody else was: %.2f times", a, s, float64(a)/float64(s))
	if float64(a) > hostileSlow*float64(s) {
		t.Errorf("an attack makes a step %.2f times as long", float64(a)/float64(s))
	}
	j.nothingLeft(calm)
	j.finish(upTo(n))
}

// startUnderAttack lets the last rank come only when the others, which wait for it, have been attacked for a while, and
// returns where the ranks listen.
func (j *job) startUnderAttack(job *storm) (addrs []string) {
	j.t.Helper()
	for _, l := range j.ranks[:len(j.ranks)-1] {
		l.tell("join", 0)
	}
	count := *strangers / 3
	job.strike(j.ctx, count)
	time.Sleep(time.Duration(count) * time.Second / perSecond / 2)
	j.ranks[len(j.ranks)-1].tell("join", 0)
	for _, r := range j.expectAll(upTo(len(j.ranks)), "running") {
		addrs = append(addrs, r.Addr)
	}
	return addrs
}

// window ends a window and returns what the ranks say of it.
func (j *job) window(ranks []int) []report {
	j.t.Helper()
	for _, r := range ranks {
		j.ranks[r].tell("window", 0)
	}
	return j.expectAll(ranks, "window")
}

func (j *job) stepsAndMemory(calm []report) (steps []time.Duration) {
	j.t.Helper()
	for i, r := range j.window(upTo(len(calm))) {
		steps = append(steps, r.Step)
		if grown := r.Now.Resident - calm[i].Now.Resident; grown > hostileMemory {
			j.t.Errorf("rank %d has %d KiB more than before the attack", i, grown>>10)
		}
	}
	return steps
}

// nothingLeft waits until the ranks hold as little as before the attack.
func (j *job) nothingLeft(calm []report) {
	j.t.Helper()
	for end := time.Now().Add(hostileAfter); ; time.Sleep(100 * time.Millisecond) {
		now, well := j.window(upTo(len(calm))), true
		for i := range now {
			well = well && now[i].Now.within(calm[i].Now)
		}
		if well {
			return
		}
		if time.Now().After(end) {
			j.t.Errorf("the attack has left something behind: %v, before %v", now, calm)
			return
		}
	}
}

// A storm is attacks on some ports.
type storm struct {
	target  hostile.Target
	addrs   []string
	begun   int // strangers
	running sync.WaitGroup
	mu      sync.Mutex
	reports []hostile.Report
}

// strike begins an attack and does not wait for its end.
func (s *storm) strike(ctx context.Context, count int) {
	s.begun += count
	for i, addr := range s.addrs {
		target, share := s.target, (count+i)/len(s.addrs)
		target.Addr = addr
		s.running.Go(func() {
			r := target.Attack(ctx, perSecond/len(s.addrs), share)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.reports = append(s.reports, r)
		})
	}
}

// check waits for the end of all attacks. No stranger may have been let stay.
func (s *storm) check(t *testing.T) {
	t.Helper()
	s.running.Wait()
	sent, refused := 0, 0
	for _, r := range s.reports {
		if sent, refused = sent+r.Sent, refused+r.Refused; r.Kept > 0 {
			t.Errorf("%v", r)
		}
	}
	t.Logf("%d strangers at %v, %d refused", sent, s.addrs, refused)
	if sent == 0 || refused > sent/10 {
		t.Errorf("%d of %d strangers were refused at once: this was no attack", refused, sent+refused)
	}
}

// startBystander waits for the ranks of a job that never comes.
func startBystander(t *testing.T) (addr string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		_ = tcp.Rendezvous(ctx, ln, tcp.RendezvousConfig{Size: 2, RunID: "another", Secret: []byte("another")})
	})
	t.Cleanup(func() { cancel(); serving.Wait() })
	return ln.Addr().String()
}
