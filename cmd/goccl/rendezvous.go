package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"time"

	"github.com/goccl/goccl"
	"github.com/goccl/goccl/internal/launch"
	"github.com/goccl/goccl/internal/secret"
	"github.com/goccl/goccl/transport/tcp"
)

const rendezvousAbout = `
Start it before or after the ranks, and give them its address in GOCCL_COORDINATOR. It prints where it listens, and ends once
all ranks have met, with 0, or when -timeout has passed, with 1 and the ranks that are missing. With -stay it shows ranks that are
started again, with a run id, the way to those that run, until a signal ends it.
`

func rendezvousMain(args []string, stdout, stderr io.Writer) int {
	fs := flags("rendezvous", "-listen addr -size N [flags]", stderr)
	listen := fs.String("listen", "", "`host:port` to listen on; port 0 takes a free one")
	size := fs.Int("size", 0, "number of `ranks` to wait for")
	runID := fs.String("run-id", "", "`id` of the run; ranks of other runs are refused (default: $GOCCL_RUN_ID)")
	stay := fs.Bool("stay", false, "go on after the ranks have met, for those that come back")
	timeout := fs.Duration("timeout", 10*time.Minute, "`time` within which all ranks must have come")
	secretFile := fs.String("secret-file", "", "`path` of the secret that ranks must have (default: $GOCCL_SECRET_FILE, then the value of $GOCCL_SECRET)")
	cert := fs.String("cert", "", "`path` of a certificate: ranks must speak TLS; with -key and -ca")
	key := fs.String("key", "", "`path` of the certificate's key")
	ca := fs.String("ca", "", "`path` of the CAs whose certificates ranks must have")
	serverName := fs.String("server-name", "", "`name` that the certificates of all ranks are for (default: any certificate of the CAs will do)")
	insecure := fs.Bool("insecure", false, "listen beyond loopback although nothing proves who connects")
	if ok, code := parse(fs, args, stdout); !ok {
		return code
	}
	switch {
	case *listen == "":
		return misused(fs, "-listen is missing")
	case *size < 1:
		return misused(fs, "-size %d: need at least one rank", *size)
	case *timeout <= 0:
		return misused(fs, "-timeout %v: must be positive", *timeout)
	case (*cert == "") != (*key == "") || (*cert == "") != (*ca == ""):
		return misused(fs, "-cert, -key and -ca go together")
	case *serverName != "" && *cert == "":
		return misused(fs, "-server-name is for certificates: -cert is missing")
	case fs.NArg() > 0:
		return misused(fs, "unexpected argument %q", fs.Arg(0))
	}
	if *runID == "" {
		*runID = os.Getenv("GOCCL_RUN_ID")
	}
	shared, err := sharedSecret(*secretFile)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", fs.Name(), err)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), launch.Forwarded...)
	defer stop()
	cfg := tcp.RendezvousConfig{Size: *size, RunID: *runID, Secret: shared, Timeout: *timeout, Insecure: *insecure, Stay: *stay}
	if *cert != "" {
		if cfg.TLS, err = goccl.LoadTLS(*cert, *key, *ca); err != nil {
			fmt.Fprintf(stderr, "%s: %v\n", fs.Name(), err)
			return 1
		}
		cfg.TLS.ServerName = *serverName
	}
	if err := rendezvous(ctx, stdout, stderr, *listen, cfg); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", fs.Name(), err)
		return 1
	}
	return 0
}

// sharedSecret reads the secret where the user says it is; nil: nowhere.
func sharedSecret(path string) ([]byte, error) {
	if path == "" {
		return secret.FromEnvironment(os.LookupEnv)
	}
	s, err := secret.FromFile(path)
	if err != nil {
		return nil, fmt.Errorf("-secret-file: %w", err)
	}
	return s, nil
}

func rendezvous(ctx context.Context, stdout, stderr io.Writer, listen string, cfg tcp.RendezvousConfig) error {
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	if ip := ln.Addr().(*net.TCPAddr).IP; cfg.Secret == nil && cfg.TLS == nil && !cfg.Insecure && !ip.IsLoopback() {
		ln.Close()
		return fmt.Errorf("listen on %s: not a loopback address: whoever reaches it could join: give -secret-file, -cert, or -insecure", ln.Addr())
	}
	cfg.Logger = slog.New(slog.NewTextHandler(stderr, nil))
	fmt.Fprintf(stdout, "listening on %s\n", ln.Addr())
	if err := tcp.Rendezvous(ctx, ln, cfg); err != nil {
		return err
	}
	if !cfg.Stay { // which ends otherwise when it is told to
		fmt.Fprintf(stdout, "all %d ranks have met\n", cfg.Size)
	}
	return nil
}
