package goccl

import (
	"context"
	"errors"
	"net"
	"testing"
)

// The caller's listener belongs to Join from the call on, also when Join refuses the rest.
func TestJoinClosesTheListenerItRefuses(t *testing.T) {
	for what, cfg := range map[string]JoinConfig{
		"rank":      {Rank: 2, Size: 2},
		"heartbeat": {Size: 2, Config: Config{Heartbeat: 1}},
		"secret":    {Size: 2, Secret: []byte{}},
		"one rank":  {Size: 1},
	} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		cfg.Listener = ln
		g, err := Join(context.Background(), cfg)
		if (err == nil) != (what == "one rank") {
			t.Errorf("%s: %v", what, err)
		}
		if err == nil {
			g.Close()
		}
		if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: the listener is still open: %v", what, err)
		}
	}
}
