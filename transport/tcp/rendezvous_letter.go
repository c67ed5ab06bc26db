package tcp

import (
	"context"
	"fmt"
	"net"
	"time"
)

// A letter is a message from the other end; one without any of these is a sign of life.
type letter struct {
	missing  []int
	table    *table
	verdict  *outcome
	note     *lobbyNote
	admit    *admission
	redirect []string
	err      error // the connection ended
}

// read turns the other end's messages into letters until the connection ends. A rank of a run that has begun gives a sign of
// life every second.
func (s *start) read(conn net.Conn, inbox chan<- letter, running bool) {
	defer close(inbox)
	for {
		if running {
			conn.SetReadDeadline(time.Now().Add(lobbyPatience))
		}
		l := s.next(conn)
		if running && l.startsAnew() {
			running = false
			conn.SetReadDeadline(time.Time{})
		}
		inbox <- l
		if l.err != nil || l.verdict != nil || l.redirect != nil {
			return
		}
	}
}

// startsAnew tells whether a letter comes from a coordinator that starts the run once more, as its ranks have gone.
func (l *letter) startsAnew() bool { return len(l.missing) > 0 || l.table != nil }

func (s *start) next(conn net.Conn) (l letter) {
	h, p, err := readMessage(conn)
	if err != nil {
		return letter{err: err}
	}
	switch h.kind {
	case kindWaiting:
		l.missing, l.err = decodeWaiting(p)
	case kindTable:
		l.table, l.err = decodeTable(p, s.Size)
	case kindVerdict:
		l.verdict, l.err = decodeOutcome(p)
	case kindLobby:
		l.note, l.err = decodeLobbyNote(p)
	case kindAdmit:
		l.admit, l.err = decodeAdmission(p)
	case kindRedirect:
		if l.redirect, l.err = decodeRedirect(p); l.redirect == nil {
			l.redirect = []string{}
		}
	default:
		l.err = fmt.Errorf("message kind %d came where none was expected", h.kind)
	}
	return l
}

// await waits for the table or an admission; a letter without either means that nothing will come on this connection.
func (s *start) await(ctx context.Context) (letter, error) {
	for {
		select {
		case l := <-s.inbox:
			if s.role == roleRunning && l.startsAnew() {
				s.role = roleApart
			}
			switch {
			case l.redirect != nil:
				s.redirected = l.redirect
				return letter{}, nil
			case l.err != nil && s.role == roleRunning:
				return letter{}, nil
			case l.err != nil:
				return letter{}, s.gone(l.err)
			case l.verdict != nil:
				return letter{}, joinError(s.Coordinator, l.verdict, nil)
			case l.table != nil || l.admit != nil:
				return l, nil
			case l.note != nil:
				s.heard(l.note)
			}
			s.missing = l.missing
		case <-ctx.Done():
			if s.role == roleRunning {
				return letter{}, s.notAdmitted(context.Cause(ctx), nil)
			}
			return letter{}, s.giveUp(ctx)
		}
	}
}
