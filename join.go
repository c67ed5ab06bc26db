package goccl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/mem"
	"github.com/goccl/goccl/transport/tcp"
)

// defaultJoinTimeout is JoinConfig.Timeout's.
const defaultJoinTimeout = 10 * time.Minute

// Join meets the other ranks of a job and returns the group of them all; either every rank gets it or every rank gets an
// error. The earliest of ctx and cfg.Timeout bounds it. A world of one rank opens no socket.
//
// Where a job with the same RunID, which is not empty, is running already, Join waits until its ranks admit this process, by
// [ProcessGroup.Admit], at any of the coordinator's addresses where one of them listens. The group's rank and size are other
// ones than cfg says then. A rank 0 with several addresses asks all of them before it begins a job at one.
//
// What cfg leaves open comes from the environment; the first complete line counts:
//
//	rank and size   GOCCL_RANK and GOCCL_WORLD_SIZE, RANK and WORLD_SIZE, OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE,
//	                PMI_RANK and PMI_SIZE, SLURM_PROCID and SLURM_NTASKS, JOB_COMPLETION_INDEX and GOCCL_WORLD_SIZE
//	coordinator     GOCCL_COORDINATOR, MASTER_ADDR and MASTER_PORT (29500 when unset; one more under torchrun, whose agent
//	                holds that port), the first host of SLURM_JOB_NODELIST and port 29500
//	interface       GOCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME
//	run id          GOCCL_RUN_ID
//	secret          GOCCL_SECRET_FILE, a path (newlines at the file's end do not count), GOCCL_SECRET
//	traces          GOCCL_TRACE_DIR, for Config.TraceDir
//
// Half a line is an error that names what is missing, and a bad value one that names the variable. A variable whose name begins
// with GOCCL_ and means nothing to goccl is logged as a warning: it may be a misspelt one.
func Join(ctx context.Context, cfg JoinConfig) (*ProcessGroup, error) {
	cfg.warnOfUnknown(os.Environ())
	if err := errors.Join(cfg.resolve(os.LookupEnv), cfg.Config.check()); err != nil {
		if cfg.Listener != nil {
			cfg.Listener.Close() // it is ours from the call on
		}
		return nil, err
	}
	ctx, cancel := cfg.bound(ctx)
	defer cancel()
	t, err := cfg.connect(ctx)
	if err != nil {
		return nil, cfg.blame(err)
	}
	cfg.runID = cfg.RunID
	g, err := New(t, cfg.Config)
	if err != nil {
		return nil, err
	}
	if err := g.arrive(ctx); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// arrive makes sure, where this process was admitted to a job that runs, that every rank has got the group. The first two calls
// of all of them are barriers: after the first all are connected, after the second all are agreed to go on (see Admit).
func (g *ProcessGroup) arrive(ctx context.Context) error {
	r, ok := g.Transport().(transport.Regrouper)
	if !ok || r.Epoch() == 0 {
		return nil
	}
	for range 2 {
		if err := g.Barrier(ctx); err != nil {
			return fmt.Errorf("join: admitted as rank %d of %d, but not all came: %w", g.Rank(), g.Size(), err)
		}
	}
	return nil
}

// bound is ctx with the time that joining may take.
func (c *JoinConfig) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	switch {
	case c.Timeout < 0:
		return ctx, func() {}
	case c.Timeout == 0:
		return context.WithTimeout(ctx, defaultJoinTimeout)
	}
	return context.WithTimeout(ctx, c.Timeout)
}

func (c *JoinConfig) connect(ctx context.Context) (transport.Transport, error) {
	if c.Size == 1 {
		if c.Listener != nil {
			c.Listener.Close()
		}
		return mem.Solo(), nil
	}
	return tcp.Connect(ctx, tcp.Config{
		Rank: c.Rank, Size: c.Size, Coordinator: c.Coordinator, Listen: c.Listen, Advertise: c.Advertise, Interface: c.Interface,
		RunID: c.RunID, Listener: c.Listener, Secret: c.Secret, TLS: c.TLS, Insecure: c.Insecure, Link: c.Link,
		Options: c.Options, Timeout: c.Timeout, Logger: c.Logger,
	})
}
