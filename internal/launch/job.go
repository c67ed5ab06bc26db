package launch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// A job is one run: its processes and what is known of them. Only the goroutine in run touches it, but for output and cfg.
type job struct {
	cfg    *Config
	start  time.Time
	output *output
	procs  []process // by rank, those that have been started
	exits  chan exit // one per started rank

	stop   chan struct{}    // closed when no more ranks shall be started
	ending bool             // the ranks have been asked to end, or killed
	sent   os.Signal        // with what
	settle <-chan time.Time // when to ask ranks to end after one has failed
	kill   <-chan time.Time // when to stop asking
	signal os.Signal        // to the launcher that made it ask, if one did
	cause  error            // first failure
}

type process struct {
	cmd   *exec.Cmd
	alive bool
}

type started struct {
	rank int
	cmd  *exec.Cmd
	err  error
}

type exit struct {
	rank  int
	state *os.ProcessState
	err   error
}

func newJob(cfg *Config) *job {
	return &job{cfg: cfg, start: time.Now(), output: newOutput(cfg), exits: make(chan exit), stop: make(chan struct{})}
}

// run goes on until every started rank has ended. Ranks may fail, and signals come, while others are still being started.
func (j *job) run(ctx context.Context) error {
	starts, release := j.startAll()
	defer release()
	done, signals := ctx.Done(), j.cfg.Signals
	for alive := 0; starts != nil || alive > 0; {
		select {
		case s, ok := <-starts:
			if !ok {
				starts = nil
			} else if j.started(s) {
				alive++
			}
		case e := <-j.exits:
			alive--
			j.exited(e)
		case s, ok := <-signals:
			if ok {
				j.signalled(s)
			} else {
				signals = nil
			}
		case <-done:
			done = nil
			j.fail(context.Cause(ctx))
			j.end()
		case <-j.settle:
			j.end()
		case <-j.kill:
			j.killAll()
		}
	}
	j.output.drain(drainLimit)
	return j.cause
}

// startAll starts the ranks, one after the other. They are set to die with the thread that started them (where the system can
// do that), so one goroutine keeps its thread until release.
func (j *job) startAll() (starts <-chan started, release func()) {
	c, hold, gone := make(chan started), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for r := 0; r < j.cfg.Size && !j.stopped(); r++ {
			cmd, err := j.startRank(r)
			c <- started{r, cmd, err}
			if err != nil {
				break
			}
		}
		close(c)
		<-hold
	}()
	return c, func() { close(hold); <-gone }
}

func (j *job) stopped() bool {
	select {
	case <-j.stop:
		return true
	default:
		return false
	}
}

func (j *job) startRank(r int) (*exec.Cmd, error) {
	cmd := exec.Command(j.cfg.Program, j.cfg.Args...)
	cmd.Env = j.cfg.environ(r)
	isolate(cmd)
	if err := j.output.attach(cmd, r); err != nil {
		return nil, err
	}
	err := cmd.Start()
	j.output.started(err == nil)
	return cmd, err
}

// started takes note of a rank. It reports whether the rank lives.
func (j *job) started(s started) bool {
	if s.err != nil {
		j.fail(fmt.Errorf("launch: start rank %d: %w", s.rank, s.err))
		j.end()
		return false
	}
	j.procs = append(j.procs, process{s.cmd, true})
	go func() {
		// The pipes are ours, so Wait returns as soon as the process ends: failures are seen in the order they happened.
		err := s.cmd.Wait()
		j.exits <- exit{s.rank, s.cmd.ProcessState, err}
	}()
	if j.ending { // it was being started when the others were asked
		signalGroup(s.cmd, j.sent)
	}
	return true
}

func (j *job) exited(e exit) {
	cmd := j.procs[e.rank].cmd
	j.procs[e.rank].alive = false
	killGroup(cmd) // what the rank itself left running
	if e.err == nil {
		return
	}
	code, text := exitStatus(e.state, e.err)
	if j.signal != nil && e.state != nil && !e.state.Exited() {
		j.fail(&SignalError{j.signal})
	}
	failure := &RankError{Rank: e.rank, Pid: cmd.Process.Pid, Code: code, Text: text, After: time.Since(j.start)}
	if j.cause != nil && !j.ending { // it failed by itself too, and may be the one that explains the other
		j.say(failure.Error() + " too")
	}
	j.fail(failure)
	if j.settle == nil {
		j.stopStarting()
		j.settle = time.After(settleTime)
	}
}

func (j *job) stopStarting() {
	if !j.stopped() {
		close(j.stop)
	}
}

func (j *job) signalled(s os.Signal) {
	switch {
	case !endsRun(s):
		j.signalAll(s)
	case j.ending:
		j.killAll()
	default:
		j.signal = s
		j.endWith(s)
	}
}

// end asks the ranks that are left to end, once.
func (j *job) end() {
	if !j.ending {
		j.endWith(terminate)
	}
}

func (j *job) endWith(s os.Signal) {
	j.ending = true
	j.stopStarting()
	j.sent = s
	j.kill = time.After(j.cfg.Grace)
	j.signalAll(s)
}

func (j *job) killAll() {
	j.sent = os.Kill
	j.signalAll(os.Kill)
}

func (j *job) signalAll(s os.Signal) {
	for _, p := range j.procs {
		if p.alive {
			signalGroup(p.cmd, s)
		}
	}
}

// fail notes the first failure, and says it at once: ending the other ranks can take a while.
func (j *job) fail(err error) {
	if j.cause != nil {
		return
	}
	j.cause = err
	j.say(strings.TrimPrefix(err.Error(), "launch: ") + j.others())
}

func (j *job) say(text string) {
	if j.cfg.Name != "" {
		j.output.say(fmt.Sprintf("%s: %s\n", j.cfg.Name, text))
	}
}

func (j *job) others() string {
	n := 0
	for _, p := range j.procs {
		if p.alive {
			n++
		}
	}
	switch n {
	case 0:
		return ""
	case 1:
		return "; ending the other one"
	}
	return fmt.Sprintf("; ending the other %d", n)
}
