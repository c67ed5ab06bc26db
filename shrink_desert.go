package goccl

import (
	"errors"
	"time"
)

// errDeserted is why the group breaks where nothing else is known of why another rank has called Shrink.
var errDeserted = errors.New("has called Shrink")

// deserted takes a rank's vote: it is in Shrink, where it waits for this rank, and will neither send nor take another message.
// So messages with it end after a while, that what is under way may arrive: who waited for one would wait for ever, and so
// would Shrink. The caller holds g.mu.
func (g *ProcessGroup) deserted(rank int) {
	if g.shrink.deserters[rank] {
		return
	}
	g.shrink.deserters[rank] = true
	time.AfterFunc(lostGrace, func() { g.endDeserted(rank) })
}

// endDeserted ends the messages with a rank, unless it has given Shrink up meanwhile.
func (g *ProcessGroup) endDeserted(rank int) {
	g.mu.Lock()
	g.shrink.deserters[rank] = false
	present := !g.closed && g.shrink.agreement.peers[rank].present
	if present && g.health.cause == nil {
		g.health.blame(rank, errDeserted)
	}
	cause := g.health.cause
	g.settle()
	if present {
		g.control.tell(&g.watch)
		g.p2p.desert(rank, broken(cause))
	}
}

// desert ends all messages with a rank that is there but takes no part in them any more.
func (p *p2p) desert(rank int, err error) {
	p.peers[rank].gone(err)
	p.peers[rank].deaf(err)
}
