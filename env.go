package goccl

import (
	"errors"
	"net"
	"strconv"
	"strings"

	"github.com/goccl/goccl/internal/secret"
	"github.com/goccl/goccl/transport/tcp"
)

const defaultPort = 29500 // of the coordinator, as torchrun and NCCL users expect

// lookup is os.LookupEnv, or a test's.
type lookup func(name string) (string, bool)

// rankVariables are the families that tell rank and size, in the order in which they are looked at.
var rankVariables = [...]struct{ rank, size string }{
	{"GOCCL_RANK", "GOCCL_WORLD_SIZE"},
	{"RANK", "WORLD_SIZE"},
	{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
	{"PMI_RANK", "PMI_SIZE"},
	{"SLURM_PROCID", "SLURM_NTASKS"},
	{"JOB_COMPLETION_INDEX", "GOCCL_WORLD_SIZE"},
}

var interfaceVariables = [...]string{"GOCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"}

// resolve fills what the caller left open from the environment and checks what must hold before anything is opened.
func (c *JoinConfig) resolve(env lookup) error {
	if c.Size == 0 {
		var err error
		if err = c.rankAndSize(env); err != nil {
			return err
		}
	}
	switch {
	case c.Size < 1:
		return argument("Size is %d, want at least 1", c.Size)
	case c.Rank < 0 || c.Rank >= c.Size:
		return argument("Rank is %d, Size %d: want 0 ≤ Rank < Size", c.Rank, c.Size)
	}
	if c.Coordinator == "" {
		addr, source, err := coordinator(env)
		if err != nil {
			return err
		}
		if c.Coordinator = addr; addr != "" {
			c.from("Coordinator", source)
			c.logger().Info("goccl: coordinator from the environment", "coordinator", addr, "source", source)
		}
	}
	if c.Coordinator == "" && c.Size > 1 && !(c.Rank == 0 && c.Listener != nil) {
		return argument("no coordinator: set JoinConfig.Coordinator, GOCCL_COORDINATOR or MASTER_ADDR")
	}
	for _, name := range interfaceVariables {
		if v, ok := env(name); ok && c.Interface == "" {
			c.Interface = v
			c.from("Interface", name)
		}
	}
	if v, ok := env("GOCCL_RUN_ID"); ok && c.RunID == "" {
		c.RunID = v
		c.from("RunID", "GOCCL_RUN_ID")
	}
	if v, ok := env("GOCCL_TRACE_DIR"); ok && c.TraceDir == "" {
		c.TraceDir = v
	}
	if c.Secret == nil && c.Size > 1 {
		var err error
		if c.Secret, err = secret.FromEnvironment(env); err != nil {
			return argument("environment: %v", err)
		}
	}
	return nil
}

// from notes that a field has its value from the environment, for an error about it.
func (c *JoinConfig) from(field, variables string) {
	if c.sources == nil {
		c.sources = make(map[string]string)
	}
	c.sources[field] = variables
}

// blame makes a refused setting an ErrArgument, and names the variable it came from.
func (c *JoinConfig) blame(err error) error {
	var bad *tcp.ConfigError
	switch {
	case !errors.As(err, &bad), errors.Is(err, errors.ErrUnsupported):
		return err
	case c.sources[bad.Field] == "":
		return argument("%w", err)
	}
	return argument("environment: %s: %w", c.sources[bad.Field], err)
}

func (c *JoinConfig) rankAndSize(env lookup) error {
	for i, f := range rankVariables {
		r, haveRank := env(f.rank)
		s, haveSize := env(f.size)
		if !haveRank && !haveSize {
			continue
		}
		if !haveRank || !haveSize {
			if i == 0 && !haveRank {
				if _, indexed := env("JOB_COMPLETION_INDEX"); indexed {
					continue // GOCCL_WORLD_SIZE is half of the last family
				}
			}
			missing, have := f.rank, f.size
			if haveRank {
				missing, have = f.size, f.rank
			}
			return argument("environment: %s is set but %s is not", have, missing)
		}
		var err error
		if c.Rank, err = number(f.rank, r); err != nil {
			return err
		}
		if c.Size, err = number(f.size, s); err != nil {
			return err
		}
		if c.Size < 1 {
			return argument("environment: %s is %d, want at least 1", f.size, c.Size)
		}
		if c.Rank < 0 || c.Rank >= c.Size {
			return argument("environment: %s is %d, %s %d: want 0 ≤ %[1]s < %[3]s", f.rank, c.Rank, f.size, c.Size)
		}
		c.from("Rank", f.rank)
		c.from("Size", f.size)
		return nil
	}
	return argument("no rank and size: set JoinConfig.Rank and Size, or GOCCL_RANK and GOCCL_WORLD_SIZE")
}

func number(name, value string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(value))
	if err != nil {
		return 0, argument("environment: %s is %q, not a number", name, value)
	}
	return n, nil
}

// coordinator returns the address and where it comes from, "" when the environment says nothing.
func coordinator(env lookup) (addr, source string, err error) {
	if v, ok := env("GOCCL_COORDINATOR"); ok && v != "" {
		return v, "GOCCL_COORDINATOR", nil
	}
	if host, ok := env("MASTER_ADDR"); ok && host != "" {
		port, source := defaultPort, "MASTER_ADDR and MASTER_PORT"
		if v, ok := env("MASTER_PORT"); ok {
			n, err := number("MASTER_PORT", v)
			if err != nil {
				return "", "", err
			}
			if n < 1 || n > 65535 {
				return "", "", argument("environment: MASTER_PORT is %d, want 1 to 65535", n)
			}
			port = n
		}
		if _, torchrun := env("TORCHELASTIC_RUN_ID"); torchrun {
			source = "MASTER_ADDR, and the port after MASTER_PORT, which torchrun's agent holds"
			if port++; port > 65535 {
				return "", "", argument("environment: MASTER_PORT is 65535, held by torchrun, and there is no port after it")
			}
		}
		return net.JoinHostPort(strings.Trim(host, "[]"), strconv.Itoa(port)), source, nil
	}
	if v, ok := env("SLURM_JOB_NODELIST"); ok && v != "" {
		host, err := firstHost(v)
		if err != nil {
			return "", "", err
		}
		return net.JoinHostPort(host, strconv.Itoa(defaultPort)), "SLURM_JOB_NODELIST", nil
	}
	return "", "", nil
}

// firstHost returns the first of Slurm's compressed list of hosts: "gpu[07-09,12],login1" begins with gpu07.
func firstHost(list string) (string, error) {
	bad := func() (string, error) {
		return "", argument("environment: SLURM_JOB_NODELIST is %q, not a list of hosts", list)
	}
	var host strings.Builder
	for rest := list; rest != ""; {
		i := strings.IndexAny(rest, ",[]")
		if i < 0 {
			host.WriteString(rest)
			break
		}
		host.WriteString(rest[:i])
		if rest[i] == ']' {
			return bad()
		}
		if rest[i] == ',' {
			break
		}
		inside, after, ok := strings.Cut(rest[i+1:], "]")
		if !ok {
			return bad()
		}
		first := inside
		if j := strings.IndexAny(inside, ",-"); j >= 0 {
			first = inside[:j]
		}
		if _, err := strconv.ParseUint(first, 10, 64); err != nil {
			return bad()
		}
		host.WriteString(first)
		rest = after
	}
	if host.Len() == 0 {
		return bad()
	}
	return host.String(), nil
}
