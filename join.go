package goccl

import (
	"context"
	"errors"
	"os"

	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/mem"
	"github.com/goccl/goccl/transport/tcp"
)

// Join meets the other ranks of a job and returns the group of them all; either every rank gets it or every rank gets an
// error. The earliest of ctx and cfg.Timeout bounds it. A world of one rank opens no socket.
//
// What cfg leaves open comes from the environment; the first complete line counts:
//
//	rank and size   GOCCL_RANK and GOCCL_WORLD_SIZE, RANK and WORLD_SIZE, OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE,
//	                PMI_RANK and PMI_SIZE, SLURM_PROCID and SLURM_NTASKS, JOB_COMPLETION_INDEX and GOCCL_WORLD_SIZE
//	coordinator     GOCCL_COORDINATOR, MASTER_ADDR and MASTER_PORT (29500 when unset; one more under torchrun, whose agent
//	                holds that port), the first host of SLURM_JOB_NODELIST and port 29500
//	interface       GOCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME
//	run id          GOCCL_RUN_ID
//	secret          GOCCL_SECRET_FILE, a path (the newline at the file's end does not count), GOCCL_SECRET
//	traces          GOCCL_TRACE_DIR, for Config.TraceDir
//
// Half a line is an error that names what is missing, and a bad value one that names the variable.
func Join(ctx context.Context, cfg JoinConfig) (*ProcessGroup, error) {
	if err := errors.Join(cfg.resolve(os.LookupEnv), cfg.Config.check()); err != nil {
		if cfg.Listener != nil {
			cfg.Listener.Close() // it is ours from the call on
		}
		return nil, err
	}
	t, err := cfg.connect(ctx)
	if err != nil {
		return nil, err
	}
	cfg.runID = cfg.RunID
	return New(t, cfg.Config)
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
