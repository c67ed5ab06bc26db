package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/goccl/goccl"
	"github.com/goccl/goccl/dtype"
)

// A row is one line of the table. Names and units are part of the output formats.
type row struct {
	Op        string  `json:"op"`
	Size      int64   `json:"size"`
	Count     int     `json:"count"`
	Type      string  `json:"type"`
	Redop     string  `json:"redop"` // "none": nothing is reduced
	Root      int     `json:"root"`  // -1: no rank is special
	Algorithm string  `json:"algorithm"`
	Iters     int     `json:"iterations"`
	Time      float64 `json:"time_us"`
	stats
	Algbw float64 `json:"algbw_GBps"`
	Busbw float64 `json:"busbw_GBps"`
	Wrong *int64  `json:"wrong"` // nil: not checked
}

// A task is a row to be.
type task struct {
	op        *operation
	typ       dtype.Type
	reduction dtype.ReduceOp
	size      int64
}

// tasks lists what cfg asks for: each size once for operations that move data, each reduction for those that reduce.
func tasks(cfg *config) (list []task, err error) {
	for _, op := range cfg.ops {
		if op.noData {
			list = append(list, task{op, dtype.U8, dtype.Sum, 0})
			continue
		}
		for _, t := range cfg.types {
			reductions := cfg.reductions
			if !op.reduces {
				reductions = []dtype.ReduceOp{dtype.Sum}
			}
			for _, r := range reductions {
				if err := dtype.Supports(r, t); err != nil {
					if cfg.allReductions {
						continue
					}
					return nil, fmt.Errorf("bench: %w", err)
				}
				for _, size := range cfg.sizes {
					list = append(list, task{op, t, r, size})
				}
			}
		}
	}
	return list, nil
}

// sweep measures all tasks. Rank 0 prints. The error is errWrong when all went well but for wrong results.
func sweep(ctx context.Context, g *goccl.ProcessGroup, cfg *config, stdout io.Writer) error {
	list, err := tasks(cfg)
	if err != nil {
		return err
	}
	if cfg.root >= g.Size() {
		return fmt.Errorf("bench: -r %d: there are %d ranks", cfg.root, g.Size())
	}
	if cfg.asked && cfg.ranks != g.Size() {
		return fmt.Errorf("bench: -ranks %d, but the launcher has started %d", cfg.ranks, g.Size())
	}
	h, err := newHeader(ctx, g, cfg)
	if err != nil {
		return err
	}
	var p printer = discard{}
	if g.IsLeader() {
		p = newPrinter(stdout, os.Stderr, cfg)
	}
	p.header(h)
	wrong, err := runTasks(ctx, g, cfg, list, p)
	if err != nil {
		return err
	}
	if err := p.end(); err != nil {
		return err
	}
	if wrong > 0 {
		return errWrong
	}
	return nil
}

func runTasks(ctx context.Context, g *goccl.ProcessGroup, cfg *config, list []task, p printer) (wrong int64, err error) {
	for i, t := range list {
		p.progress(i, len(list), t)
		c, err := newCell(g, t.op, t.typ, t.reduction, cfg.root, t.size)
		if err != nil {
			return wrong, err
		}
		m, err := measure(ctx, cfg, c)
		if err != nil {
			return wrong, fmt.Errorf("bench: %s %v of %d bytes: %w", t.op.name, t.typ, t.size, err)
		}
		wrong += m.wrong
		if g.IsLeader() {
			p.row(newRow(cfg, c, m))
		}
	}
	return wrong, nil
}

func newRow(cfg *config, c *cell, m measurement) row {
	r := row{
		Op: c.op.name, Size: c.nbytes(), Count: c.count, Type: c.typ.String(), Redop: "none", Root: -1,
		Algorithm: c.algorithm(), Iters: len(m.times), stats: newStats(m.times),
	}
	if c.op.reduces {
		r.Redop = c.reduction.String()
	}
	if c.op.rooted {
		r.Root = c.root
	}
	if r.Time = r.Median; cfg.average {
		r.Time = r.Average
	}
	r.Algbw = bandwidth(r.Size, r.Time)
	r.Busbw = r.Algbw * c.op.bus(float64(c.size))
	if cfg.check {
		r.Wrong = &m.wrong
	}
	return r
}

// algorithm is what the group says it takes.
func (c *cell) algorithm() string {
	if c.op.plan == "" {
		return "point to point"
	}
	name := c.op.plan
	if c.op.reduces {
		name += " " + c.reduction.String()
	}
	return c.group.Plan(name, c.typ, int(c.nbytes())/c.typ.Size())
}
