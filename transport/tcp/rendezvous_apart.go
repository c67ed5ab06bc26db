package tcp

import (
	"context"
	"net"
	"slices"
	"sync"
)

// A meetingPoint is a coordinator that is no rank: it runs a start, and stays afterwards if it is told to.
type meetingPoint struct {
	cfg      RendezvousConfig
	believes bool
	addr     string
	srv      *server
	again    chan struct{} // holds a token when another start is to be run

	mu    sync.Mutex
	start *coordinator // guarded by mu, like the rest
	guide *guide       // nil: a start runs, or ran and failed
	over  bool         // no other start will be run
}

// run coordinates starts until one fails or there is none to follow.
func (p *meetingPoint) run(ctx context.Context) error {
	for {
		c, _ := p.now()
		sctx, cancel := withTimeout(ctx, p.cfg.Timeout)
		o := c.run(sctx)
		cause := context.Cause(sctx)
		cancel()
		switch {
		case o.code != outcomeFine:
			return joinError(c.addr, o, cause)
		case !p.cfg.Stay:
			return nil
		}
		p.stay(c)
		select {
		case <-p.again:
		case <-ctx.Done():
			p.end()
			return nil
		}
	}
}

// end is for a coordinator that has stayed and goes now: a start that has just been begun, and that nobody will run, is over.
func (p *meetingPoint) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	select {
	case <-p.again:
		p.start.finish(failed(nil, "the coordinator gave up"))
	default:
	}
}

func (p *meetingPoint) now() (*coordinator, *guide) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.start, p.guide
}

// restart makes a fresh coordinator; p.mu is held, or nobody else knows of p.
func (p *meetingPoint) restart() {
	p.start, p.guide = newCoordinator(p.cfg.Size, p.cfg.RunID, p.addr, "the coordinator"), nil
	p.start.believes = p.believes
}

// stay begins to send processes to the ranks of a start that went well.
func (p *meetingPoint) stay(c *coordinator) {
	g := &guide{}
	for _, m := range c.roster.members {
		g.add(m.reg.info.tcp)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.guide = g
	p.srv.become(roleRunning)
}

// check implements handler.
func (p *meetingPoint) check(ctx context.Context, h *hello, conn net.Conn) *rejection {
	c, g := p.now()
	switch {
	case h.runID == p.cfg.RunID && h.runID != "" && g != nil:
		return nil
	case h.runID == p.cfg.RunID && h.runID != "" && p.cfg.Stay && c.begun():
		return &rejection{rejectBusy, "this run begins right now"}
	}
	return c.check(ctx, h, conn)
}

// take implements handler.
func (p *meetingPoint) take(conn net.Conn, h *hello, settled func()) error {
	defer conn.Close()
	reg, err := readRegistration(conn)
	if err != nil {
		return err
	}
	settled()
	c, g := p.now()
	if g != nil && reg.alone {
		c, g = p.startOver(g), nil
	}
	switch {
	case g != nil:
		sendOff(conn, kindRedirect, redirectPayload(g.send(reg.info.tcp)))
	case !c.enlist(conn, h, reg):
		sendOff(conn, kindVerdict, failed(nil, "%s", c.over(h)).payload())
	}
	return nil
}

// startOver begins another start because the ranks that old knows have gone, unless that has happened already or this
// coordinator is going itself.
func (p *meetingPoint) startOver(old *guide) *coordinator {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.guide == old && !p.over {
		p.restart()
		p.srv.become(roleApart)
		p.again <- struct{}{} // there is room: run has taken what brought it to the guide
	}
	return p.start
}

// refused implements handler.
func (p *meetingPoint) refused(h *hello, why error, from string) {
	c, _ := p.now()
	c.refused(h, why, from)
}

// A guide knows where ranks of a run listen, or did: those that started it, and those it has sent there since.
type guide struct {
	mu    sync.Mutex
	known []string
}

func (g *guide) add(address string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !slices.Contains(g.known, address) {
		g.known = append(g.known, address)
	}
}

// send returns where a process shall ask, and keeps its own address for those that follow.
func (g *guide) send(address string) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.known = slices.DeleteFunc(g.known, func(a string) bool { return a == address }) // one that died may have listened there
	g.known = g.known[max(0, len(g.known)-maxRedirect):]
	to := slices.Clone(g.known)
	g.known = append(g.known, address)
	return to
}
