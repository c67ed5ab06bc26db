package tcp

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"
)

// A host is what the worlds that one process goes through have in common: its listeners, and what it proves itself by. Its
// name is what other ranks see of it, one process, however often they number themselves anew. It lives as long as one of
// its worlds.
type host struct {
	runID    string
	link     string
	cred     *credentials
	net      *network
	dialling chan struct{} // limits how many connections are being opened
	srv      *server
	front    *reception
	met      string // the host at which this process has dialled the coordinator; "": it has not

	mu      sync.Mutex
	held    bool   // it stays although no world is left: guarded by mu, like the rest
	lobby   *lobby // nil until the run has begun
	worlds  map[[16]byte]*mesh
	ended   []endedWorld  // the last ones: a connection for them comes too late
	begun   bool          // there has been a world
	changed chan struct{} // closed, and replaced, when a world comes or goes
}

// An endedWorld is one that this rank has left, or has heard that it comes to nothing.
type endedWorld struct {
	world [16]byte
	why   *callOff // nil: this rank has left it
}

// endedWorlds is how many ended worlds are remembered.
const endedWorlds = 256

func newHost(p *plan) *host {
	h := &host{
		runID: p.RunID, link: p.Link, cred: p.cred, net: p.net,
		dialling: make(chan struct{}, maxDialling),
		worlds:   make(map[[16]byte]*mesh),
		changed:  make(chan struct{}),
		front:    &reception{runID: p.RunID},
		held:     true,
	}
	h.srv = newServer(p.cred, roleRank, p.Logger, map[purpose]handler{purposeLink: h, purposeRegister: h.front, purposeCallOff: callOffs{h}})
	return h
}

// serve begins to accept on the coordinator's listener, if this rank has one. fail hears when accepting does not work.
func (h *host) serve(c *coordinator, ln net.Listener, fail func(error)) {
	h.srv.hear(fail)
	if c != nil {
		h.front.coordinate(c)
		h.srv.serve(ln)
	}
}

// begin is the end of a start that went well: processes that come now may wait to be admitted.
func (h *host) begin(options []option, own peerInfo, log *slog.Logger) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lobby = &lobby{host: h, options: options, own: own, log: log}
	h.front.open(h.lobby)
	if h.runID != "" {
		h.srv.become(roleRunning)
	}
}

// hold keeps the host although it has no world, or lets it end with the last.
func (h *host) hold(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = on
}

// enter makes m one of the worlds; connections of other ranks for it are looked at from now on.
func (h *host) enter(m *mesh) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.hasEnded(m.world)
	switch {
	case e != nil && e.why != nil:
		return e.why.of(m)
	case e != nil || h.worlds[m.world] != nil:
		return fmt.Errorf("epoch %d with these ranks was tried before", m.epoch)
	}
	h.worlds[m.world], h.begun = m, true
	h.change()
	return nil
}

// leave ends a world, and with the last one the listeners. It waits for their goroutines, and may be called twice.
func (h *host) leave(m *mesh) {
	h.mu.Lock()
	if h.worlds[m.world] == m {
		delete(h.worlds, m.world)
		h.note(endedWorld{world: m.world})
	}
	last := len(h.worlds) == 0 && !h.held
	h.mu.Unlock()
	if last {
		h.shut()
	}
}

// note remembers the end of a world; h.mu is held.
func (h *host) note(e endedWorld) {
	h.ended = append(h.ended, e)
	h.ended = h.ended[max(0, len(h.ended)-endedWorlds):]
	h.change()
}

// hasEnded returns what is remembered of a world; h.mu is held.
func (h *host) hasEnded(world [16]byte) *endedWorld {
	for i := range h.ended {
		if h.ended[i].world == world {
			return &h.ended[i]
		}
	}
	return nil
}

// shut ends the listeners and what waits there.
func (h *host) shut() {
	h.mu.Lock()
	l := h.lobby
	h.mu.Unlock()
	if l != nil {
		l.close()
	}
	h.srv.close()
}

// latest returns a world of the highest epoch; nil: there is none any more.
func (h *host) latest() (last *mesh) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.worlds {
		if last == nil || m.epoch > last.epoch {
			last = m
		}
	}
	return last
}

// change wakes those who wait for a world; h.mu is held.
func (h *host) change() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// close ends all worlds and the listeners.
func (h *host) close() {
	h.mu.Lock()
	var worlds []*mesh
	for _, m := range h.worlds {
		worlds = append(worlds, m)
	}
	h.mu.Unlock()
	for _, m := range worlds {
		m.close()
	}
	h.shut()
}

// check implements handler for connections of other ranks.
func (h *host) check(ctx context.Context, hi *hello, conn net.Conn) *rejection {
	m, r := h.find(ctx, hi, conn)
	if r != nil {
		return r
	}
	return m.check(hi)
}

// take implements handler.
func (h *host) take(conn net.Conn, hi *hello, settled func()) error {
	h.mu.Lock()
	m := h.worlds[hi.world]
	h.mu.Unlock()
	settled()
	if m == nil { // it has ended since
		return conn.Close()
	}
	m.park(conn, hi)
	return nil
}

// refused implements handler: there is no use for it.
func (h *host) refused(*hello, error, string) {}

// find returns the world that a connection is for. One that is not there yet may be about to come: a peer has its table, or
// knows of the next epoch, a moment earlier.
func (h *host) find(ctx context.Context, hi *hello, conn net.Conn) (*mesh, *rejection) {
	if hi.runID != h.runID {
		return nil, refuse("run id differs: you belong to %q, this rank to %q", hi.runID, h.runID)
	}
	if m, r, _ := h.lookup(hi); m != nil || r != nil {
		return m, r
	}
	ctx, stop := whileSilent(ctx, conn)
	defer stop()
	for {
		m, r, changed := h.lookup(hi)
		if m != nil || r != nil {
			return m, r
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, &rejection{rejectBusy, fmt.Sprintf("this rank does not know its peers in epoch %d yet", hi.epoch)}
		}
	}
}

// lookup returns the world that a connection is for, or why it will not come, or what to wait for.
func (h *host) lookup(hi *hello) (*mesh, *rejection, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch m := h.worlds[hi.world]; {
	case m != nil:
		return m, nil, nil
	case h.hasEnded(hi.world) != nil:
		return nil, &rejection{rejectLeft, fmt.Sprintf("this rank has left epoch %d", hi.epoch)}, nil
	case h.begun && hi.epoch == 0:
		return nil, refuse("you belong to another start of this run than this rank"), nil
	}
	return nil, nil, h.changed
}

// whileSilent returns a context that ends also when the other end of conn hangs up, or speaks although it is not its turn.
// stop must be called before conn is read again.
func whileSilent(ctx context.Context, conn net.Conn) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		var b [1]byte
		conn.Read(b[:])
		cancel()
	}()
	return ctx, func() {
		cancel()
		conn.SetReadDeadline(time.Unix(1, 0))
		<-done
		conn.SetReadDeadline(time.Time{})
	}
}

// despiteStrangers does what needs descriptors, again and again while strangers hold those that it lacks.
func (h *host) despiteStrangers(ctx context.Context, do func() error) error {
	var wait backoff
	for {
		err := do()
		if !outOfDescriptors(err) || !h.srv.shed() || wait.sleep(ctx) != nil {
			return explain(err)
		}
	}
}
