package goccl

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestUnknownVariables(t *testing.T) {
	for name, want := range map[string]string{
		"GOCCL_WORLDSIZE":      "GOCCL_WORLDSIZE (did you mean GOCCL_WORLD_SIZE?)",
		"GOCCL_SIZE":           "GOCCL_SIZE (did you mean GOCCL_WORLD_SIZE?)",
		"GOCCL_TRACEDIR":       "GOCCL_TRACEDIR (did you mean GOCCL_TRACE_DIR?)",
		"GOCCL_RNAK":           "GOCCL_RNAK (did you mean GOCCL_RANK?)",
		"GOCCL_COORDINATER":    "GOCCL_COORDINATER (did you mean GOCCL_COORDINATOR?)",
		"GOCCL_SECRETFILE":     "GOCCL_SECRETFILE (did you mean GOCCL_SECRET_FILE?)",
		"GOCCL_SECRET_PATH":    "GOCCL_SECRET_PATH (did you mean GOCCL_SECRET?)",
		"GOCCL_JOB":            "GOCCL_JOB",
		"GOCCL_":               "GOCCL_",
		"GOCCL_RANK":           "",
		"GOCCL_RESTART":        "",
		"GOCCL_TRACE_DIR":      "",
		"GOCCL_TEST_ROLE":      "",
		"GOCCL_FAULTS_PLAN":    "",
		"goccl_rank":           "",
		"MYGOCCL_RANKS":        "",
		"NCCL_SOCKET_IFNAME":   "",
		"GOCCL_SOCKET_IFNAMES": "GOCCL_SOCKET_IFNAMES (did you mean GOCCL_SOCKET_IFNAME?)",
	} {
		var list []string
		if want != "" {
			list = []string{want}
		}
		if got := unknownVariables([]string{"PATH=/bin", name + "=x=y", "HOME="}); !slices.Equal(got, list) {
			t.Errorf("%s: got %q, want %q", name, got, list)
		}
	}
}

// TestKnownVariables: what Join looks up is known.
func TestKnownVariables(t *testing.T) {
	asked := 0
	var c JoinConfig
	err := c.resolve(func(name string) (string, bool) {
		if strings.HasPrefix(name, "GOCCL_") {
			if asked++; !slices.Contains(ownVariables, name) {
				t.Errorf("%s is looked up and not known", name)
			}
		}
		v, ok := map[string]string{"JOB_COMPLETION_INDEX": "1", "GOCCL_WORLD_SIZE": "2", "MASTER_ADDR": "h"}[name]
		return v, ok
	})
	if err != nil || asked < len(ownVariables)-1 {
		t.Errorf("%d variables were looked up, %v", asked, err)
	}
}

// TestJoinWarnsOfUnknownVariables: once, all names, no value; nobody is stopped.
func TestJoinWarnsOfUnknownVariables(t *testing.T) {
	t.Setenv("GOCCL_WORLDSIZE", "hidden")
	t.Setenv("GOCCL_ELSE", "hidden")
	var log bytes.Buffer
	g, err := Join(t.Context(), JoinConfig{Size: 1, Config: Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}})
	if err != nil {
		t.Fatal(err)
	}
	g.Close()
	const want = "GOCCL_ELSE, GOCCL_WORLDSIZE (did you mean GOCCL_WORLD_SIZE?)"
	if said := log.String(); strings.Count(said, want) != 1 || strings.Count(said, "level=WARN") != 1 || strings.Contains(said, "hidden") {
		t.Errorf("logged %q, want %q once and no value", said, want)
	}
}

// TestJoinBlamesTheVariable: an error about a value says which variable it is from, and about a field where it is the caller's.
func TestJoinBlamesTheVariable(t *testing.T) {
	for _, c := range []struct {
		env, want string // the whole error
	}{
		{"GOCCL_COORDINATOR=127.0.0.1", `GOCCL_COORDINATOR: tcp: config: Coordinator "127.0.0.1": the port is missing: want host:port`},
		{"GOCCL_COORDINATOR=h:1,127.0.0.1", `GOCCL_COORDINATOR: tcp: config: Coordinator "h:1,127.0.0.1": "127.0.0.1": the port is missing: want host:port`},
		{"MASTER_ADDR=a b", `MASTER_ADDR and MASTER_PORT: tcp: config: Coordinator "a b:29500": "a b" is no host name: it contains ' '`},
		{"GLOO_SOCKET_IFNAME=,", `GLOO_SOCKET_IFNAME: tcp: config: Interface ",": the list contains an empty name`},
		{"GOCCL_RUN_ID=" + strings.Repeat("x", 200), `GOCCL_RUN_ID: tcp: config: RunID "` + strings.Repeat("x", 200) + `": longer than 128 bytes`},
	} {
		name, value, _ := strings.Cut(c.env, "=")
		t.Run(name, func(t *testing.T) {
			t.Setenv("MASTER_ADDR", "127.0.0.1")
			t.Setenv(name, value)
			_, err := Join(t.Context(), JoinConfig{Rank: 1, Size: 2, Timeout: time.Second})
			if !errors.Is(err, ErrArgument) || err.Error() != "goccl: "+ErrArgument.Error()+": environment: "+c.want {
				t.Errorf("got %v, want ErrArgument with %q", err, c.want)
			}
		})
	}
	_, err := Join(t.Context(), JoinConfig{Rank: 1, Size: 2, Coordinator: "127.0.0.1", Timeout: time.Second})
	if err == nil || strings.Contains(err.Error(), "environment") || strings.Count(err.Error(), "127.0.0.1") != 1 {
		t.Errorf("the caller's own value: %v", err)
	}
}
