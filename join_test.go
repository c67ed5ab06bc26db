package goccl

import (
	"context"
	"errors"
	"net"
	"strings"
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

// A setting that cannot work is refused as every bad argument is, and names the field.
func TestJoinRefusesBadSettings(t *testing.T) {
	for field, cfg := range map[string]JoinConfig{
		"Link":        {Link: "infiniband", Coordinator: "127.0.0.1:1"},
		"Listen":      {Listen: "127.0.0.1:70000", Coordinator: "127.0.0.1:1"},
		"Coordinator": {Coordinator: "127.0.0.1"},
		"Insecure":    {Coordinator: "192.0.2.1:1"},
	} {
		cfg.Size, cfg.Rank = 2, 1
		if _, err := Join(t.Context(), cfg); !errors.Is(err, ErrArgument) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
