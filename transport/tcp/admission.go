package tcp

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// This is the side of a process that comes to a run which has begun: it waits in the lobby of one of its ranks until a Regroup
// admits it. Where that rank ends, or sends it on, it looks for another.

const (
	lobbyPatience = 10 * time.Second // with a rank where it waits and which gives no sign of life
	calledOff     = 2 * time.Second  // for that rank to say that an admission has come to nothing
)

// A fate is what has become of an admission.
type fate int

const (
	admitted fate = 1 + iota
	waiting       // it has come to nothing, and this process waits where it did
	astray        // it must look for another rank to wait at
)

func (s *start) heard(n *lobbyNote) {
	s.note, s.at, s.pause = n, s.conn.RemoteAddr().String(), backoff{}
}

// enter opens the connections of the epoch that this process is admitted to, and waits until the rank where it waited has
// its own.
func (s *start) enter(ctx context.Context, a *admission, open func(ctx context.Context, m *mesh) error) (fate, error) {
	if err := s.begin(&a.table, a.rank, a.epoch); err != nil {
		return s.notOpened(ctx, err, 0)
	}
	f, err := s.admission(ctx, open)
	if f == admitted {
		s.host.begin(s.reg.options, s.reg.info, s.Logger)
		return f, nil
	}
	if s.mesh.undo != nil {
		s.mesh.undo()
	}
	s.mesh.close()
	return f, err
}

func (s *start) admission(ctx context.Context, open func(ctx context.Context, m *mesh) error) (fate, error) {
	octx, stop := context.WithCancelCause(ctx)
	s.mesh.failing(stop)
	defer s.mesh.failing(nil)
	opened := make(chan error, 1)
	go func() { opened <- open(octx, s.mesh) }()
	inbox, own, theirs := s.inbox, false, fate(0)
	defer func() {
		if stop(errGivenUp); !own {
			<-opened
		}
	}()
	for !own || theirs != admitted {
		select {
		case err := <-opened:
			own = true
			if err != nil {
				return s.notOpened(ctx, err, theirs)
			}
			s.tell(&outcome{})
		case l := <-inbox:
			switch theirs = fateBy(l); theirs {
			case admitted:
				inbox = nil // nothing follows
			case waiting, astray:
				return theirs, nil
			}
		case <-ctx.Done():
			return 0, s.notAdmitted(context.Cause(ctx), nil)
		}
	}
	return admitted, nil
}

var errGivenUp = errors.New("the admission was given up")

// fateBy reads a letter of the rank where this process waited when it was admitted; 0: it says nothing.
func fateBy(l letter) fate {
	switch {
	case l.note != nil:
		return waiting
	case l.verdict != nil && l.verdict.code == outcomeFine:
		return admitted
	case l.err != nil || l.verdict != nil:
		return astray
	}
	return 0
}

// notOpened decides what follows when this process could not connect with all others: the ranks that lost one of theirs
// meanwhile may admit it later, but where it is this process's own trouble it must not spoil their next attempts.
func (s *start) notOpened(ctx context.Context, own error, theirs fate) (fate, error) {
	if ctx.Err() != nil {
		return 0, s.notAdmitted(context.Cause(ctx), nil)
	}
	s.tell(failed(nil, "%v", explain(own)))
	if !errors.As(own, new(toldError)) && !peerHungUp(own) && !errors.As(own, new(*rejection)) && !errors.Is(own, syscall.ECONNREFUSED) {
		return 0, &JoinError{Coordinator: s.at, Reason: fmt.Sprintf("admitted as rank %d of %d, but: %v", s.mesh.rank, s.mesh.size, explain(own)), Err: own}
	}
	if theirs == admitted { // the ranks find out
		return astray, nil
	}
	late := time.After(calledOff)
	for {
		select {
		case l := <-s.inbox:
			switch f := fateBy(l); f {
			case waiting:
				return f, nil
			case admitted, astray:
				return astray, nil
			}
		case <-late:
			return astray, nil
		case <-ctx.Done():
			return 0, s.notAdmitted(context.Cause(ctx), nil)
		}
	}
}

// tell reports to the rank where this process waits how its admission went. If that rank has gone, reading says so.
func (s *start) tell(o *outcome) {
	s.conn.SetWriteDeadline(time.Now().Add(verdictGrace))
	s.conn.Write(message(kindResult, o.payload()))
}

// notAdmitted is the end of a process whose time is over before a run that has begun takes it in. last is what kept it from
// waiting, if anything did.
func (s *start) notAdmitted(cause, last error) error {
	e := &JoinError{Coordinator: s.Coordinator, Err: cause}
	e.Reason = fmt.Sprintf("run %q is running", s.RunID)
	if s.note != nil {
		e.Coordinator = s.at
		e.Reason += fmt.Sprintf(" with %d ranks at %s", s.note.size, s.at)
	}
	e.Reason += " and did not admit this process within " + round(time.Since(s.began)).String()
	if !errors.Is(cause, context.DeadlineExceeded) {
		e.Reason += fmt.Sprintf(", when it gave up: %v", cause)
	}
	if last != nil && s.note == nil {
		e.Reason += fmt.Sprintf(" (%v)", last)
	}
	return e
}
