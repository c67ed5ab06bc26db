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
	exits  chan exit // one per started process

	again   chan restart // for the starter; room for one per rank
	due     chan int     // ranks whose back-off has passed; room for one per rank
	waiting int          // ranks in their back-off, or being started again

	stop   chan struct{}    // closed when no more ranks shall be started
	ending bool             // the ranks have been asked to end, or killed
	sent   os.Signal        // with what
	settle <-chan time.Time // when to ask ranks to end after one has failed
	kill   <-chan time.Time // when to stop asking
	signal os.Signal        // to the launcher that made it ask, if one did
	cause  error            // first failure
}

type process struct {
	cmd      *exec.Cmd
	alive    bool
	restarts int         // how often the rank has been started again
	failure  *RankError  // of its last life, while it waits to be started again
	backoff  *time.Timer // ends the wait
}

type started struct {
	restart
	cmd *exec.Cmd
	err error
}

type exit struct {
	rank  int
	state *os.ProcessState
	err   error
}

func newJob(cfg *Config) *job {
	size := max(cfg.Size, 0)
	return &job{
		cfg: cfg, start: time.Now(), output: newOutput(cfg),
		exits: make(chan exit), again: make(chan restart, size), due: make(chan int, size), stop: make(chan struct{}),
	}
}

// run goes on until every started rank has ended for good. Ranks may fail, and signals come, while others are still being started.
func (j *job) run(ctx context.Context) error {
	starts, first, release := j.startAll()
	defer release()
	done, signals := ctx.Done(), j.cfg.Signals
	for alive := 0; first != nil || alive > 0 || j.waiting > 0; {
		select {
		case s := <-starts:
			if j.started(s) {
				alive++
			}
		case <-first:
			first = nil
		case r := <-j.due:
			j.backoffOver(r)
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
			j.failAndEnd(context.Cause(ctx))
		case <-j.settle:
			j.end()
		case <-j.kill:
			j.killAll()
		}
	}
	j.output.drain(drainLimit)
	return j.cause
}

// startAll starts the ranks, one after the other, and then those that are to be started again. They are set to die with the
// thread that started them (where the system can do that), so one goroutine keeps its thread until release. first is closed
// once no rank is left that was never started.
func (j *job) startAll() (starts <-chan started, first <-chan struct{}, release func()) {
	c, all, gone := make(chan started), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for r := 0; r < j.cfg.Size && !j.stopped(); r++ {
			cmd, err := j.startRank(r, 0)
			c <- started{restart{rank: r}, cmd, err}
			if err != nil {
				break
			}
		}
		close(all)
		for a := range j.again {
			cmd, err := j.startRank(a.rank, a.count)
			c <- started{a, cmd, err}
		}
	}()
	return c, all, func() { close(j.again); <-gone }
}

func (j *job) stopped() bool {
	select {
	case <-j.stop:
		return true
	default:
		return false
	}
}

// startRank starts a rank that has been started that many times before.
func (j *job) startRank(r, restart int) (*exec.Cmd, error) {
	cmd := exec.Command(j.cfg.Program, j.cfg.Args...)
	cmd.Env = j.cfg.environ(r, restart)
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
	switch {
	case s.count > 0:
		j.waiting--
		if s.err != nil {
			j.fail(fmt.Errorf("launch: start rank %d again: %w", s.rank, s.err))
			return false
		}
		j.procs[s.rank].cmd, j.procs[s.rank].alive, j.procs[s.rank].restarts = s.cmd, true, s.count
	case s.err != nil:
		j.failAndEnd(fmt.Errorf("launch: start rank %d: %w", s.rank, s.err))
		return false
	default:
		j.procs = append(j.procs, process{cmd: s.cmd, alive: true})
	}
	go func() {
		// The pipes are ours, so Wait returns as soon as the process ends: failures are seen in the order they happened.
		err := s.cmd.Wait()
		j.exits <- exit{s.rank, s.cmd.ProcessState, err}
	}()
	if j.cfg.Started != nil {
		j.cfg.Started(s.rank, s.cmd.Process.Pid)
	}
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
	switch {
	case j.ending:
		j.fail(failure)
	case j.mayRestart(e.rank):
		j.restartLater(e.rank, failure)
	default:
		j.failed(failure)
	}
}

// failed takes a rank's failure for good while nobody has been asked to end.
func (j *job) failed(failure *RankError) {
	if j.cause != nil { // it failed by itself too, and may be the one that explains the other
		j.say(failure.Error() + " too")
	}
	j.fail(failure)
	if j.settle == nil && !j.cfg.KeepGoing {
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
	j.dropRestarts()
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
func (j *job) fail(err error) { j.note(err, j.ending || !j.cfg.KeepGoing) }

// failAndEnd is for what no rank can go on after.
func (j *job) failAndEnd(err error) {
	j.note(err, true)
	j.end()
}

func (j *job) note(err error, ending bool) {
	if j.cause != nil {
		return
	}
	j.cause = err
	j.say(strings.TrimPrefix(err.Error(), "launch: ") + j.others(ending))
}

func (j *job) say(text string) {
	if j.cfg.Name != "" {
		j.output.say(fmt.Sprintf("%s: %s\n", j.cfg.Name, text))
	}
}

// others says what becomes of the other ranks.
func (j *job) others(ending bool) string {
	n := 0
	for _, p := range j.procs {
		if p.alive {
			n++
		}
	}
	switch {
	case n == 0:
		return ""
	case n == 1 && ending:
		return "; ending the other one"
	case n == 1:
		return "; the other one goes on"
	case ending:
		return fmt.Sprintf("; ending the other %d", n)
	}
	return fmt.Sprintf("; the other %d go on", n)
}
