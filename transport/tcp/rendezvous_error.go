package tcp

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/goccl/goccl/transport"
)

// A ConfigError is a Config that cannot work. Nothing was sent, and what was opened is closed again.
type ConfigError struct {
	Field  string // of Config
	Value  string // as found, "" when there is none or it is secret
	Reason string
	Err    error // the cause when something else said so; may be nil
}

func (e *ConfigError) Error() string {
	s := "tcp: config: " + e.Field
	if e.Value != "" {
		s += fmt.Sprintf(" %q", e.Value)
	}
	return s + ": " + e.Reason
}

func (e *ConfigError) Unwrap() error { return e.Err }

// A JoinError is a start that failed. Every rank that was registered by then gets the same reason; to that of a deadline a
// rank adds which connection it waited for.
type JoinError struct {
	Coordinator string // where the ranks met or tried to
	Missing     []int  // the ranks that had not come when a deadline passed
	Ranks       []int  // the ranks at fault otherwise, where known
	Reason      string // in words, with addresses
	Err         error  // context.DeadlineExceeded after a deadline, else what this rank met itself; may be nil
}

func (e *JoinError) Error() string { return "tcp: join at " + e.Coordinator + ": " + e.Reason }

func (e *JoinError) Unwrap() error { return e.Err }

// joinError turns a verdict into the caller's error; own is what this rank met itself.
func joinError(coordinator string, o *outcome, own error) *JoinError {
	e := &JoinError{Coordinator: coordinator, Ranks: o.ranks, Reason: o.text, Err: own}
	if o.code == outcomeMissing {
		e.Missing, e.Ranks = o.ranks, nil
	}
	if own == nil && (o.code == outcomeMissing || o.code == outcomeLate) {
		e.Err = context.DeadlineExceeded
	}
	// All that the coordinator knows of a deadline is which ranks were not ready.
	if o.code == outcomeLate && errors.As(own, new(*transport.PeerError)) && !strings.Contains(o.text, own.Error()) {
		e.Reason += "; this rank: " + own.Error()
	}
	return e
}
