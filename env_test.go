package goccl

import (
	"errors"
	"strings"
	"testing"
)

func lookupIn(pairs ...string) lookup {
	m := map[string]string{}
	for _, p := range pairs {
		k, v, _ := strings.Cut(p, "=")
		m[k] = v
	}
	return func(name string) (string, bool) { v, ok := m[name]; return v, ok }
}

func TestRankAndSizeFromEnvironment(t *testing.T) {
	for _, c := range []struct {
		env        []string
		rank, size int
		err        string
	}{
		{[]string{"GOCCL_RANK=1", "GOCCL_WORLD_SIZE=3", "RANK=0", "WORLD_SIZE=9"}, 1, 3, ""},
		{[]string{"RANK=2", "WORLD_SIZE=4"}, 2, 4, ""},
		{[]string{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1"}, 0, 1, ""},
		{[]string{"PMI_RANK=5", "PMI_SIZE=6", "SLURM_PROCID=1", "SLURM_NTASKS=2"}, 5, 6, ""},
		{[]string{"SLURM_PROCID=1", "SLURM_NTASKS=2"}, 1, 2, ""},
		{[]string{"JOB_COMPLETION_INDEX=3", "GOCCL_WORLD_SIZE=4"}, 3, 4, ""},
		{[]string{"GOCCL_RANK=1", "RANK=0", "WORLD_SIZE=2"}, 0, 0, "GOCCL_WORLD_SIZE is not"},
		{[]string{"GOCCL_WORLD_SIZE=2", "RANK=0", "WORLD_SIZE=2"}, 0, 0, "GOCCL_RANK is not"},
		{[]string{"RANK=1"}, 0, 0, "WORLD_SIZE is not"},
		{[]string{"JOB_COMPLETION_INDEX=3"}, 0, 0, "GOCCL_WORLD_SIZE is not"},
		{[]string{"RANK=x", "WORLD_SIZE=2"}, 0, 0, `RANK is "x"`},
		{[]string{"RANK=2", "WORLD_SIZE=2"}, 0, 0, "RANK is 2, WORLD_SIZE 2: want 0 ≤ RANK < WORLD_SIZE"},
		{[]string{"RANK=-1", "WORLD_SIZE=2"}, 0, 0, "RANK is -1"},
		{[]string{"RANK=0", "WORLD_SIZE=0"}, 0, 0, "WORLD_SIZE is 0, want at least 1"},
		{nil, 0, 0, "GOCCL_RANK"},
	} {
		var j JoinConfig
		err := j.rankAndSize(lookupIn(c.env...))
		rank, size := j.Rank, j.Size
		if c.err == "" && (err != nil || rank != c.rank || size != c.size) {
			t.Errorf("%v: got %d of %d, %v; want %d of %d", c.env, rank, size, err, c.rank, c.size)
		}
		if c.err != "" && (!errors.Is(err, ErrArgument) || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%v: got error %v, want ErrArgument with %q", c.env, err, c.err)
		}
	}
}

func TestCoordinatorFromEnvironment(t *testing.T) {
	for _, c := range []struct {
		env       []string
		want, err string
	}{
		{[]string{"GOCCL_COORDINATOR=a:1", "MASTER_ADDR=b"}, "a:1", ""},
		{[]string{"MASTER_ADDR=b"}, "b:29500", ""},
		{[]string{"MASTER_ADDR=::1", "MASTER_PORT=7"}, "[::1]:7", ""},
		{[]string{"MASTER_ADDR=[::1]", "MASTER_PORT=7"}, "[::1]:7", ""},
		{[]string{"MASTER_ADDR=b", "MASTER_PORT=29400", "TORCHELASTIC_RUN_ID=x"}, "b:29401", ""},
		{[]string{"MASTER_ADDR=b", "MASTER_PORT=65535", "TORCHELASTIC_RUN_ID=x"}, "", "MASTER_PORT is 65535"},
		{[]string{"MASTER_ADDR=b", "MASTER_PORT=70000"}, "", "MASTER_PORT is 70000, want 1 to 65535"},
		{[]string{"MASTER_ADDR=b", "MASTER_PORT=p"}, "", `MASTER_PORT is "p"`},
		{[]string{"SLURM_JOB_NODELIST=gpu[07-09,12],login1"}, "gpu07:29500", ""},
		{[]string{"SLURM_JOB_NODELIST=n1,n2"}, "n1:29500", ""},
		{[]string{"SLURM_JOB_NODELIST=r[1-2]n[03,04]"}, "r1n03:29500", ""},
		{[]string{"SLURM_JOB_NODELIST=gpu[x]"}, "", "SLURM_JOB_NODELIST"},
		{[]string{"SLURM_JOB_NODELIST=gpu[1"}, "", "SLURM_JOB_NODELIST"},
		{nil, "", ""},
	} {
		got, _, err := coordinator(lookupIn(c.env...))
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%v: got %q, %v; want %q, error with %q", c.env, got, err, c.want, c.err)
		}
	}
}

func TestResolve(t *testing.T) {
	c := JoinConfig{Rank: 1, Size: 2}
	env := lookupIn("MASTER_ADDR=h", "GLOO_SOCKET_IFNAME=eth", "NCCL_SOCKET_IFNAME=ib", "GOCCL_RUN_ID=run", "RANK=7", "WORLD_SIZE=9")
	if err := c.resolve(env); err != nil {
		t.Fatal(err)
	}
	if c.Rank != 1 || c.Size != 2 || c.Coordinator != "h:29500" || c.Interface != "eth" || c.RunID != "run" {
		t.Errorf("resolved to %+v", c)
	}
	for _, c := range []JoinConfig{{Size: -1}, {Rank: 2, Size: 2}, {Rank: -1, Size: 2}, {Rank: 1, Size: 2}} {
		if err := c.resolve(lookupIn()); !errors.Is(err, ErrArgument) {
			t.Errorf("%+v: got %v, want ErrArgument", c, err)
		}
	}
}

// TestSecretFromEnvironment: the configuration comes first, and no error shows a secret.
func TestSecretFromEnvironment(t *testing.T) {
	for _, c := range []struct {
		given     string
		env       []string
		want, err string
	}{
		{"", nil, "", ""},
		{"", []string{"GOCCL_SECRET=s"}, "s", ""},
		{"given", []string{"GOCCL_SECRET=s", "GOCCL_SECRET_FILE=/nonexistent/secret"}, "given", ""},
		{"", []string{"GOCCL_SECRET=hidden", "GOCCL_SECRET_FILE=/nonexistent/secret"}, "", "environment: GOCCL_SECRET_FILE: open /nonexistent/secret: no such file"},
	} {
		cfg := JoinConfig{Rank: 1, Size: 2, Coordinator: "h:1"}
		if c.given != "" {
			cfg.Secret = []byte(c.given)
		}
		err := cfg.resolve(lookupIn(c.env...))
		if c.err == "" && (err != nil || string(cfg.Secret) != c.want) {
			t.Errorf("%q: got %q, %v; want %q", c.env, cfg.Secret, err, c.want)
		}
		if c.err != "" && (!errors.Is(err, ErrArgument) || !strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), "hidden")) {
			t.Errorf("%q: got %v, want ErrArgument with %q", c.env, err, c.err)
		}
	}
}
