package launch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"
)

// A job is one run: its processes and what is known of them. Only the goroutine in run touches it.
type job struct {
	cfg    *Config
	start  time.Time
	procs  []*exec.Cmd
	alive  []bool
	output *output

	exits  chan exit        // one per started rank
	ending bool             // the ranks have been asked to end
	kill   <-chan time.Time // when to stop asking; nil: not ending
	signal os.Signal        // that asked them, if one did
	cause  error            // first failure
}

type exit struct {
	rank  int
	state *os.ProcessState
	err   error
}

func newJob(cfg *Config) *job {
	return &job{cfg: cfg, start: time.Now(), output: newOutput(cfg)}
}

func (j *job) run(ctx context.Context) error {
	j.alive = make([]bool, j.cfg.Size)
	j.exits = make(chan exit, j.cfg.Size)
	release := j.startAll()
	defer release()
	left := len(j.procs)
	if j.cause != nil {
		j.end()
	}
	done, signals := ctx.Done(), j.cfg.Signals
	for left > 0 {
		select {
		case e := <-j.exits:
			left--
			j.exited(e)
		case s, ok := <-signals:
			if !ok {
				signals = nil
				continue
			}
			j.signalled(s)
		case <-done:
			done = nil
			j.fail(context.Cause(ctx))
			j.end()
		case <-j.kill:
			j.kill = nil
			j.signalAll(os.Kill)
		}
	}
	j.output.drain(drainLimit)
	return j.cause
}

// startAll starts the ranks. They are set to die with the thread that started them (where the system can do that), so
// one goroutine keeps its thread until release.
func (j *job) startAll() (release func()) {
	started, hold, gone := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for r := range j.cfg.Size {
			if err := j.startRank(r); err != nil {
				j.fail(fmt.Errorf("launch: start rank %d: %w", r, err))
				break
			}
		}
		close(started)
		<-hold
	}()
	<-started
	return sync.OnceFunc(func() { close(hold); <-gone })
}

func (j *job) startRank(r int) error {
	cmd := exec.Command(j.cfg.Program, j.cfg.Args...)
	cmd.Env = j.cfg.environ(r)
	isolate(cmd)
	if err := j.output.attach(cmd, r); err != nil {
		return err
	}
	err := cmd.Start()
	j.output.started(err == nil)
	if err != nil {
		return err
	}
	j.procs = append(j.procs, cmd)
	j.alive[r] = true
	go func() {
		// The pipes are ours, so Wait returns as soon as the process ends: failures are seen in the order they happened.
		err := cmd.Wait()
		j.exits <- exit{r, cmd.ProcessState, err}
	}()
	return nil
}

func (j *job) exited(e exit) {
	cmd := j.procs[e.rank]
	j.alive[e.rank] = false
	killGroup(cmd) // what the rank itself left running
	if e.err == nil {
		return
	}
	code, text := exitStatus(e.state, e.err)
	if j.signal != nil && e.state != nil && !e.state.Exited() {
		j.fail(&SignalError{j.signal})
	}
	j.fail(&RankError{Rank: e.rank, Pid: cmd.Process.Pid, Code: code, Text: text, After: time.Since(j.start)})
	j.end()
}

func (j *job) signalled(s os.Signal) {
	j.signalAll(s)
	if !endsRun(s) {
		return
	}
	if j.ending {
		j.signalAll(os.Kill)
		return
	}
	j.signal = s
	j.ending = true
	j.kill = time.After(j.cfg.Grace)
}

// fail notes the first failure, and says it at once: ending the other ranks can take a while.
func (j *job) fail(err error) {
	if j.cause != nil {
		return
	}
	j.cause = err
	if j.cfg.Name != "" {
		j.output.say(fmt.Sprintf("%s: %s%s\n", j.cfg.Name, strings.TrimPrefix(err.Error(), "launch: "), j.others()))
	}
}

func (j *job) others() string {
	n := 0
	for _, alive := range j.alive {
		if alive {
			n++
		}
	}
	switch {
	case n == 0:
		return ""
	case n == 1:
		return "; ending the other one"
	}
	return fmt.Sprintf("; ending the other %d", n)
}

// end asks the ranks that are left to end, once.
func (j *job) end() {
	if j.ending {
		return
	}
	j.ending = true
	j.signalAll(terminate)
	j.kill = time.After(j.cfg.Grace)
}

func (j *job) signalAll(s os.Signal) {
	for r, cmd := range j.procs {
		if j.alive[r] {
			signalGroup(cmd, s)
		}
	}
}
