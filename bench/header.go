package main

import (
	"bytes"
	"context"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/goccl/goccl"
)

// A header says what was measured where.
type header struct {
	Version   string   `json:"version"` // of goccl
	Go        string   `json:"go"`
	Platform  string   `json:"platform"`
	CPUs      int      `json:"cpus"` // of rank 0's host, as its Go runtime sees them
	Ranks     int      `json:"ranks"`
	Hosts     []string `json:"hosts"` // by rank
	Transport string   `json:"transport"`
	Algorithm string   `json:"algorithm"` // asked for
	Statistic string   `json:"statistic"` // what the time is
}

const hostNameBytes = 64

func newHeader(ctx context.Context, g *goccl.ProcessGroup, cfg *config) (*header, error) {
	h := &header{
		Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.GOMAXPROCS(0),
		Ranks: g.Size(), Transport: cfg.transport, Algorithm: cfg.algorithm.String(), Statistic: "median",
	}
	if cfg.average {
		h.Statistic = "average"
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		h.Version = info.Main.Version
	}
	name, err := os.Hostname()
	if err != nil {
		name = "unknown"
	}
	own := make([]byte, hostNameBytes)
	copy(own, name)
	all := make([]byte, hostNameBytes*g.Size())
	if err := goccl.AllGather(ctx, g, all, own); err != nil {
		return nil, err
	}
	for r := range g.Size() {
		h.Hosts = append(h.Hosts, string(bytes.TrimRight(all[r*hostNameBytes:(r+1)*hostNameBytes], "\x00")))
	}
	return h, nil
}
