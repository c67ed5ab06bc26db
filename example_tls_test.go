package goccl_test

import (
	"context"

	"github.com/goccl/goccl"
)

// joinEncrypted needs no secret: whoever has a certificate of this authority is a rank of the job.
func joinEncrypted(ctx context.Context) (*goccl.ProcessGroup, error) {
	cfg, err := goccl.LoadTLS("rank.pem", "rank.key", "ca.pem") // TLS 1.3, both ends verify each other
	if err != nil {
		return nil, err
	}
	cfg.ServerName = "ranks.job" // all certificates are for it, whoever calls; without it, the dialled host
	return goccl.Join(ctx, goccl.JoinConfig{TLS: cfg})
}

func ExampleLoadTLS() {
	g, err := joinEncrypted(context.Background())
	if err != nil {
		return
	}
	defer g.Close()
}
