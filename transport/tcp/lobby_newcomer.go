package tcp

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// A newcomer is a process that waits in this rank's lobby.
type newcomer struct {
	lobby  *lobby
	conn   net.Conn
	nonce  [ticketSize]byte
	ticket []byte
	left   chan struct{} // closed when it has hung up

	writing sync.Mutex // one message at a time, and its state does not change between the look at it and the message

	invited  func(error) // tells the Regroup that admits it that it will not come; nil: it waits. Guarded by lobby.mu
	admitted bool        // guarded by lobby.mu, like the next two
	failures int         // attempts to admit it that came to nothing
	notAgain time.Time   // it is not shown as waiting before
}

const (
	retryAfter  = 2 * time.Second // how long a newcomer is passed over after its second failure; twice as long after each further one
	retryAtMost = 2 * time.Minute
)

var errHungUp = errors.New("it hung up while it was admitted")

// serve talks with the newcomer until it hangs up.
func (n *newcomer) serve() {
	var reminding sync.WaitGroup
	reminding.Go(n.remind)
	err := n.listen()
	n.conn.Close()
	close(n.left)
	n.fail(fmt.Errorf("%w: %w", errHungUp, err))
	n.lobby.remove(n)
	reminding.Wait()
}

// listen reads what the newcomer reports of its admissions.
func (n *newcomer) listen() error {
	for {
		p, err := expect(n.conn, kindResult)
		if err != nil {
			return err
		}
		o, err := decodeOutcome(p)
		if err != nil {
			return err
		}
		if o.code != outcomeFine {
			n.fail(fmt.Errorf("it could not be admitted: %s", o.text))
		}
	}
}

// fail ends the Regroup that admits it, if there is one.
func (n *newcomer) fail(err error) {
	n.lobby.mu.Lock()
	fail := n.invited
	n.lobby.mu.Unlock()
	if fail != nil {
		fail(err)
	}
}

// remind tells the newcomer now and then that somebody is there.
func (n *newcomer) remind() {
	tick := time.NewTicker(waitingInterval)
	defer tick.Stop()
	for {
		n.writing.Lock()
		n.lobby.mu.Lock()
		invited, admitted := n.invited != nil, n.admitted
		n.lobby.mu.Unlock()
		switch {
		case admitted:
		case invited:
			n.write(message(kindWaiting, waitingPayload(nil)))
		default:
			n.write(n.lobby.note())
		}
		n.writing.Unlock()
		select {
		case <-tick.C:
		case <-n.left:
			return
		}
	}
}

// write sends a message; n.writing is held. A newcomer that does not take it is dropped.
func (n *newcomer) write(m []byte) {
	n.conn.SetWriteDeadline(time.Now().Add(lobbyWrite))
	if _, err := n.conn.Write(m); err != nil {
		n.conn.Close()
	}
}

// invite sends the newcomer its place; fail hears when it will not come. False: it is on its way already.
func (n *newcomer) invite(a *admission, fail func(error)) bool {
	n.writing.Lock()
	defer n.writing.Unlock()
	n.lobby.mu.Lock()
	free := n.invited == nil && !n.admitted
	if free {
		n.invited = fail
	}
	n.lobby.mu.Unlock()
	if !free {
		return false
	}
	n.write(message(kindAdmit, a.payload()))
	select {
	case <-n.left: // before it could be told whom to tell
		fail(errHungUp)
	default:
	}
	return true
}

// conclude tells an invited newcomer that it is in, or that it waits again.
func (n *newcomer) conclude(in bool) {
	n.writing.Lock()
	defer n.writing.Unlock()
	n.lobby.mu.Lock()
	n.invited, n.admitted = nil, in
	if !in {
		n.passOver(time.Now())
	}
	n.lobby.mu.Unlock()
	if in {
		n.write(message(kindVerdict, (&outcome{}).payload()))
	} else {
		n.write(n.lobby.note())
	}
}

// passOver is for a newcomer that was not admitted; lobby.mu is held. Once may be bad luck. One that is stopped, or that some
// ranks cannot reach, would cost them their patience in each attempt.
func (n *newcomer) passOver(now time.Time) {
	if n.failures++; n.failures > 1 {
		n.notAgain = now.Add(min(retryAfter<<min(n.failures-2, 10), retryAtMost))
	}
}
