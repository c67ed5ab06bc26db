package goccl

import (
	"slices"
	"time"

	"github.com/goccl/goccl/transport"
)

// recorded is how many calls the flight recorder keeps.
const recorded = 256

// A record is what is kept of one collective.
type record struct {
	call, count uint64 // of its tag
	bytes       int    // of the larger of this rank's buffers
	start, took time.Duration
	running     bool
	err         error // as the transport put it
}

// recorder keeps a group's last calls, at the cost of a few words written for each. The group's mu guards it.
type recorder struct {
	born  time.Time // what starts are counted from
	made  uint64    // number of the newest call
	calls [recorded]record
}

func (r *recorder) begin(now time.Time, tag *transport.Tag, bytes int) {
	r.made = tag.Match
	r.calls[r.made%recorded] = record{call: tag.Call, count: tag.Count, bytes: bytes, start: now.Sub(r.born), running: true}
}

// end closes the newest call.
func (r *recorder) end(now time.Time, err error) {
	c := &r.calls[r.made%recorded]
	c.running, c.took, c.err = false, now.Sub(r.born)-c.start, err
}

// A snapshot is all that a dump tells, taken at one moment under the group's mu and put into words later.
type snapshot struct {
	recorder
	now     time.Time
	waiting int
	mine    callReport
	peers   []peerHealth
	pulses  []pulse
	cause   error
	causeAt time.Time
}

// snapshot looks at the group. The caller holds g.mu.
func (g *ProcessGroup) snapshot(now time.Time) *snapshot {
	return &snapshot{
		recorder: g.recorder, now: now, waiting: g.order.waiting(), mine: g.health.mine,
		peers: slices.Clone(g.health.peers), pulses: slices.Clone(g.health.life.peers), cause: g.health.cause, causeAt: g.dumps.causeAt,
	}
}
