package tcp

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"time"
)

// RendezvousConfig is what a coordinator apart from the ranks knows of a run.
type RendezvousConfig struct {
	Size     int           // how many ranks are to come
	RunID    string        // as Config.RunID
	Secret   []byte        // as Config.Secret
	TLS      *tls.Config   // as Config.TLS
	Insecure bool          // as Config.Insecure
	Timeout  time.Duration // as Config.Timeout, of each start

	// Stay makes the coordinator go on after a start that went well: it sends processes that come later, and have a run id, to the
	// ranks that run, where they wait to be admitted. When one of them reports that none of those is there any more, it
	// coordinates another start.
	Stay bool

	Logger *slog.Logger // nil: nothing is logged
}

// Rendezvous coordinates one start on ln, apart from the ranks, and returns when all of them have their verdict: nil when
// every rank is connected to every other, else a *JoinError. With Stay it returns nil only when ctx ends. It closes ln.
func Rendezvous(ctx context.Context, ln net.Listener, cfg RendezvousConfig) error {
	cred, err := cfg.check(ln)
	if err != nil {
		ln.Close()
		return err
	}
	warnOfSecret(orDiscard(cfg.Logger), cfg.Secret)
	p := &meetingPoint{cfg: cfg, believes: cred.believes(), addr: ln.Addr().String(), again: make(chan struct{}, 1)}
	p.restart()
	p.srv = newServer(cred, roleApart, orDiscard(cfg.Logger), map[purpose]handler{purposeRegister: p})
	p.srv.serve(ln)
	defer p.srv.close()
	return p.run(ctx)
}

func (cfg *RendezvousConfig) check(ln net.Listener) (*credentials, error) {
	cred, err := newCredentials(cfg.Secret, cfg.TLS)
	at := addrPort(ln.Addr())
	switch {
	case err != nil:
		return nil, err
	case !at.IsValid():
		return nil, &ConfigError{Field: "Listener", Value: ln.Addr().String(), Reason: "not a TCP listener"}
	case cfg.Size < 1 || cfg.Size > MaxSize:
		return nil, badSize(cfg.Size)
	case len(cfg.RunID) > maxRunID:
		return nil, &ConfigError{Field: "RunID", Value: cfg.RunID, Reason: fmt.Sprintf("longer than %d bytes", maxRunID)}
	case !at.Addr().IsLoopback() && !cfg.Insecure && !cred.guarded():
		return nil, needInsecure("this coordinator", at.Addr().String())
	}
	return cred, nil
}

func withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	switch {
	case d < 0:
		return context.WithCancel(ctx)
	case d == 0:
		d = 10 * time.Minute
	}
	return context.WithTimeout(ctx, d)
}

func orDiscard(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return log
}
