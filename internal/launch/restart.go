package launch

import (
	"fmt"
	"time"
)

// The wait before a rank is started again doubles each time: a program that fails at once shall not keep the machine busy.
const (
	restartAfter  = 200 * time.Millisecond
	restartAtMost = 5 * time.Second
)

// restartEnv tells a rank how often it has been started before. The first life does not have it.
const restartEnv = "GOCCL_RESTART"

// A restart is a rank to be started, and how often it has been started before.
type restart struct {
	rank, count int
}

// restartDelay is the wait before a rank is started again that has been started again n times. first is that of the first time.
func restartDelay(first time.Duration, n int) time.Duration {
	d := first
	for range n {
		if d *= 2; d >= restartAtMost {
			return restartAtMost
		}
	}
	return d
}

func (j *job) mayRestart(rank int) bool { return j.procs[rank].restarts < j.cfg.Restarts }

// restartLater keeps a rank's failure, which does not count unless the run ends before the rank has been started again.
func (j *job) restartLater(rank int, failure *RankError) {
	p := &j.procs[rank]
	j.say(fmt.Sprintf("%v; starting it again (%d of %d)", failure, p.restarts+1, j.cfg.Restarts))
	p.failure = failure
	p.backoff = time.AfterFunc(restartDelay(j.cfg.backoff, p.restarts), func() { j.due <- rank })
	j.waiting++
}

func (j *job) backoffOver(rank int) {
	if j.ending {
		j.dropRestart(rank)
		return
	}
	p := &j.procs[rank]
	p.failure, p.backoff = nil, nil
	j.again <- restart{rank, p.restarts + 1}
}

// dropRestarts is for a run that ends. A timer that has just fired is met by backoffOver.
func (j *job) dropRestarts() {
	for rank, p := range j.procs {
		if p.backoff != nil && p.backoff.Stop() {
			j.dropRestart(rank)
		}
	}
}

func (j *job) dropRestart(rank int) {
	p := &j.procs[rank]
	j.waiting--
	j.fail(p.failure)
	p.failure, p.backoff = nil, nil
}
