// Package launch runs the ranks of a program as processes of this machine: it gives them their environment, shows their
// output, passes signals on, and ends all of them when one fails.
package launch

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccl/goccl/internal/secret"
	"github.com/goccl/goccl/transport/tcp"
)

const (
	// DefaultGrace is the time between asking ranks to end and killing them.
	DefaultGrace = 10 * time.Second
	// settleTime is how long the other ranks may go on after one has failed. The first to exit is often not the first to fail:
	// a rank that panics closes its group on the way out, which makes the others fail before its own message is printed.
	settleTime = time.Second
	// drainLimit bounds how long the output of ended ranks is waited for. Only a process that left its rank's process
	// group can still hold the pipes open.
	drainLimit = time.Second
)

// A Config says what to run. Size and Program are required.
type Config struct {
	Name        string // of the launching program: Run then says on Stderr, in its name, what failed; "": silent
	Size        int
	Program     string
	Args        []string
	Env         []string // of every rank, besides what Run sets; nil: this process's own. A secret in it counts for Run too
	Coordinator string   // host:port where rank 0 shall listen; "": Run meets the ranks itself, on a loopback port it holds
	RunID       string   // "": a fresh one
	Stdout      io.Writer
	Stderr      io.Writer
	Prefix      bool                // mark each line of output with its rank; the ranks then write to pipes, never to a terminal
	KeepGoing   bool                // a rank that fails does not end the others
	Restarts    int                 // how often a rank that fails is started again, with the same environment, after 0.2 s to 5 s; > 0 implies KeepGoing
	Grace       time.Duration       // from asking the ranks to end to killing them; 0: DefaultGrace
	Signals     <-chan os.Signal    // passed on to all ranks; those that mean end start the grace period, a second one ends it
	Started     func(rank, pid int) // unless nil, called by Run itself for each process it has started; must not block

	backoff time.Duration // before a rank is first started again; 0: restartAfter. Tests set it

	secret []byte // what the ranks and this process prove themselves by; nil: none
}

// A RankError is how a rank failed.
type RankError struct {
	Rank, Pid int
	Code      int // as a shell shows it: the exit code, or 128 + the signal that killed the rank
	Text      string
	After     time.Duration
}

func (e *RankError) Error() string {
	return fmt.Sprintf("rank %d (pid %d) %s after %v", e.Rank, e.Pid, e.Text, e.After.Round(time.Millisecond))
}

// A SignalError says that ranks died because a signal to the launcher was passed on to them.
type SignalError struct{ Signal os.Signal }

func (e *SignalError) Error() string { return fmt.Sprintf("ended by a signal: %v", e.Signal) }

// Run starts the ranks and waits for all of them. It returns nil when every rank exited with code 0, else the first
// failure: a *RankError, a *SignalError when ranks died of a signal passed on to them, context.Cause(ctx), or what kept
// the ranks from starting. A failure after which the rank was started again does not count: a rank's last life does. No
// rank, and nothing in a rank's process group, outlives Run.
func Run(ctx context.Context, cfg Config) error {
	j := newJob(&cfg)
	if err := cfg.complete(); err != nil {
		j.fail(err)
		return j.cause
	}
	stop, err := cfg.meet(ctx)
	if err != nil {
		j.fail(err)
		return j.cause
	}
	defer stop()
	return j.run(ctx)
}

// complete checks what is required and fills in the defaults.
func (cfg *Config) complete() error {
	if cfg.Size < 1 {
		return fmt.Errorf("launch: size %d: need at least one rank", cfg.Size)
	}
	if cfg.Size > tcp.MaxSize {
		return fmt.Errorf("launch: size %d: a world has at most %d ranks", cfg.Size, tcp.MaxSize)
	}
	if cfg.Restarts < 0 {
		return fmt.Errorf("launch: restarts %d: must not be negative", cfg.Restarts)
	}
	cfg.KeepGoing = cfg.KeepGoing || cfg.Restarts > 0
	path, err := exec.LookPath(cfg.Program)
	if err != nil {
		return fmt.Errorf("launch: %w", err)
	}
	cfg.Program = path
	if cfg.Grace == 0 {
		cfg.Grace = DefaultGrace
	}
	if cfg.backoff == 0 {
		cfg.backoff = restartAfter
	}
	if cfg.RunID == "" {
		cfg.RunID = rand.Text()
	}
	if cfg.Env == nil {
		cfg.Env = os.Environ()
	}
	return cfg.agree()
}

// agree gives the ranks a secret of their own, unless the user has given them one, or has them meet others who do not know
// it. Every user of this machine can call a loopback port.
func (cfg *Config) agree() error {
	var err error
	if cfg.secret, err = secret.FromEnvironment(cfg.lookup); err != nil {
		return fmt.Errorf("launch: environment: %w", err)
	}
	if cfg.secret == nil && cfg.Coordinator == "" && cfg.Size > 1 {
		fresh := rand.Text()
		cfg.secret = []byte(fresh)
		cfg.Env = append(slices.Clip(cfg.Env), secret.Variable+"="+fresh)
	}
	return nil
}

// lookup is os.LookupEnv in the ranks' environment, where the last value of a name counts.
func (cfg *Config) lookup(name string) (string, bool) {
	for _, e := range slices.Backward(cfg.Env) {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v, true
		}
	}
	return "", false
}

// meet makes sure that the ranks find each other. Unless the caller chose an address, this process keeps the listener
// and answers the ranks itself: a port that was only picked for rank 0 could be taken by somebody else before rank 0
// listens on it.
func (cfg *Config) meet(ctx context.Context) (stop func(), err error) {
	if cfg.Coordinator != "" || cfg.Size == 1 {
		return func() {}, nil
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		if ln, err = net.Listen("tcp", "[::1]:0"); err != nil {
			return nil, fmt.Errorf("launch: rendezvous: %w", err)
		}
	}
	cfg.Coordinator = ln.Addr().String()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		serve(ctx, ln.(*net.TCPListener), tcp.RendezvousConfig{Size: cfg.Size, RunID: cfg.RunID, Secret: cfg.secret, Timeout: -1, Stay: true})
	}()
	return func() { cancel(); ln.Close(); <-done }, nil
}

// environ is what rank r gets that has been started again that many times. The last value of a name counts.
func (cfg *Config) environ(r, restarts int) []string {
	// A launcher may itself be a rank that was started again.
	env := slices.DeleteFunc(slices.Clone(cfg.Env), func(v string) bool { return strings.HasPrefix(v, restartEnv+"=") })
	if restarts > 0 {
		env = append(env, restartEnv+"="+strconv.Itoa(restarts))
	}
	env = append(env,
		"GOCCL_RANK="+strconv.Itoa(r),
		"GOCCL_WORLD_SIZE="+strconv.Itoa(cfg.Size),
		"GOCCL_RUN_ID="+cfg.RunID)
	if cfg.Coordinator != "" {
		env = append(env, "GOCCL_COORDINATOR="+cfg.Coordinator)
	}
	return env
}

// ExitCode is what a launcher should exit with for an error of Run: the failed rank's code, 128 + the signal that ended
// the run, 127 for a program that was not found, 126 for one that could not be started, else 1.
func ExitCode(err error) int {
	var rank *RankError
	var sig *SignalError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &rank):
		return rank.Code
	case errors.As(err, &sig):
		return signalCode(sig.Signal)
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist):
		return 127
	case errors.Is(err, os.ErrPermission), errors.As(err, new(*os.PathError)):
		return 126
	}
	return 1
}
