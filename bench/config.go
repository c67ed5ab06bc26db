package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/goccl/goccl/dtype"
	"github.com/goccl/goccl/ring"
)

// A config is the command line.
type config struct {
	ranks     int
	asked     bool // for that number of ranks
	transport string
	algorithm ring.Algorithm
	timeout   time.Duration

	ops           []*operation
	types         []dtype.Type
	reductions    []dtype.ReduceOp
	allReductions bool // those that a type cannot take are left out, instead of refused
	sizes         []int64
	root          int

	iterations  int // 0: by size and budget
	warmups     int
	budget      time.Duration
	check       bool
	average     bool
	format      string // text, csv, json
	percentiles bool
}

func parseFlags(args []string, stderr io.Writer) (*config, error) {
	c := &config{}
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.IntVar(&c.ranks, "ranks", 4, "number of `ranks` to start")
	op := fs.String("op", "all_reduce", "`operation`, several separated by commas, or all: "+operationNames())
	minSize := fs.String("b", "4", "`size` to begin with")
	maxSize := fs.String("e", "16M", "`size` to end with")
	factor := fs.Int("f", 0, "`factor` from one size to the next (default 4 if -i is not given)")
	step := fs.String("i", "", "`bytes` from one size to the next")
	fs.IntVar(&c.iterations, "n", 0, "`number` of iterations (default by size and -budget)")
	fs.IntVar(&c.warmups, "w", 2, "`number` of calls before the measured ones")
	types := fs.String("d", "f32", "`type` of elements, several separated by commas, or all")
	reductions := fs.String("o", "sum", "`reduction`, several separated by commas, or all: sum, mean, prod, min, max, bitand, bitor, bitxor")
	check := fs.Int("c", 1, "check results: `0 or 1`")
	fs.IntVar(&c.root, "r", 0, "root `rank`")
	algorithm := fs.String("algo", "auto", "`algorithm`: auto, ring, direct, one-shot, doubling, chain")
	fs.StringVar(&c.transport, "transport", "auto", "`link` between ranks: auto, tcp, unix, or mem for ranks in one process")
	asJSON := fs.Bool("json", false, "print one JSON document")
	asCSV := fs.Bool("csv", false, "print comma-separated values")
	fs.BoolVar(&c.percentiles, "p", false, "also print percentiles of the iterations' times")
	fs.BoolVar(&c.average, "average", false, "show the mean time of the iterations instead of the median")
	fs.DurationVar(&c.budget, "budget", 600*time.Millisecond, "`time` to spend on one row, about")
	fs.DurationVar(&c.timeout, "timeout", time.Minute, "`time` after which a call has failed")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	fs.Visit(func(f *flag.Flag) { c.asked = c.asked || f.Name == "ranks" })

	var errs [6]error
	c.ops, errs[0] = parseOperations(*op)
	c.types, errs[1] = parseTypes(*types)
	c.allReductions = *reductions == "all"
	c.reductions, errs[2] = parseReductions(*reductions)
	c.sizes, errs[3] = parseSizes(*minSize, *maxSize, *factor, *step)
	c.algorithm, errs[4] = ring.ParseAlgorithm(*algorithm)
	c.check = *check != 0
	c.format = "text"
	switch {
	case *asJSON && *asCSV:
		errs[5] = errors.New("-json and -csv exclude each other")
	case *asJSON:
		c.format = "json"
	case *asCSV:
		c.format = "csv"
	}
	err := errors.Join(append(errs[:], c.verify(fs, *check))...)
	if err != nil {
		fmt.Fprintf(stderr, "bench: %v\n", err)
	}
	return c, err
}

// verify checks what needs no parsing.
func (c *config) verify(fs *flag.FlagSet, check int) error {
	switch {
	case c.ranks < 1:
		return fmt.Errorf("-ranks %d: need at least one", c.ranks)
	case c.root < 0:
		return fmt.Errorf("-r %d: not a rank", c.root)
	case c.iterations < 0 || c.warmups < 0:
		return errors.New("-n and -w cannot be negative")
	case check != 0 && check != 1:
		return fmt.Errorf("-c %d: want 0 or 1", check)
	case c.budget <= 0 || c.timeout <= 0:
		return errors.New("-budget and -timeout must be positive")
	case fs.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	switch c.transport {
	case "auto", "tcp", "unix", "mem":
		return nil
	}
	return fmt.Errorf("-transport %s: want auto, tcp, unix or mem", c.transport)
}

// key is equal on two ranks when they would do the same.
func (c *config) key() string {
	names := make([]string, len(c.ops))
	for i, op := range c.ops {
		names[i] = op.name
	}
	sizes := ""
	if n := len(c.sizes); n > 0 {
		sizes = fmt.Sprintf("%d of %d to %d", n, c.sizes[0], c.sizes[n-1])
	}
	return fmt.Sprint(names, c.types, c.reductions, sizes, " bytes, root ", c.root, ", ", c.algorithm, ", ", c.transport,
		", n ", c.iterations, ", w ", c.warmups, ", check ", c.check, ", ", c.budget)
}

func parseTypes(s string) (types []dtype.Type, err error) {
	if s == "all" {
		for t := dtype.Type(1); t.Valid(); t++ {
			types = append(types, t)
		}
		return types, nil
	}
	for name := range strings.SplitSeq(s, ",") {
		t, err := dtype.ParseType(name)
		if err != nil {
			return nil, fmt.Errorf("-d: %w", err)
		}
		types = append(types, t)
	}
	return types, nil
}

func parseReductions(s string) (ops []dtype.ReduceOp, err error) {
	if s == "all" {
		for op := dtype.Sum; op.Valid(); op++ {
			ops = append(ops, op)
		}
		return ops, nil
	}
	for name := range strings.SplitSeq(s, ",") {
		op, err := dtype.ParseReduceOp(name)
		if err != nil {
			return nil, fmt.Errorf("-o: %w", err)
		}
		ops = append(ops, op)
	}
	return ops, nil
}

// parseSizes lists the sizes from min to max, each factor times the one before, or step bytes more.
func parseSizes(minSize, maxSize string, factor int, step string) ([]int64, error) {
	from, err := parseSize(minSize)
	if err != nil {
		return nil, fmt.Errorf("-b: %w", err)
	}
	to, err := parseSize(maxSize)
	if err != nil {
		return nil, fmt.Errorf("-e: %w", err)
	}
	var add int64
	switch {
	case step != "" && factor != 0:
		return nil, errors.New("-f and -i exclude each other")
	case step != "":
		if add, err = parseSize(step); err != nil || add == 0 {
			return nil, fmt.Errorf("-i %s: want a number of bytes above 0", step)
		}
	case factor == 0:
		factor = 4
	case factor < 2:
		return nil, fmt.Errorf("-f %d: want at least 2", factor)
	}
	if from > to {
		return nil, fmt.Errorf("-b %s is larger than -e %s", minSize, maxSize)
	}
	var sizes []int64
	for size := from; size <= to; {
		sizes = append(sizes, size)
		if add > 0 {
			size += add
		} else {
			size = max(size*int64(factor), 1)
		}
	}
	return sizes, nil
}

const maxSizeBytes = 1 << 40

// parseSize reads a number of bytes with an optional suffix K, M or G (of 1024, 1024², 1024³).
func parseSize(s string) (int64, error) {
	digits := strings.TrimRight(strings.ToUpper(s), "KMG")
	unit := int64(1)
	switch suffix := strings.ToUpper(s)[len(digits):]; suffix {
	case "":
	case "K":
		unit = 1 << 10
	case "M":
		unit = 1 << 20
	case "G":
		unit = 1 << 30
	default:
		return 0, fmt.Errorf("size %q: want a number, then K, M, G or nothing", s)
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > maxSizeBytes/unit {
		return 0, fmt.Errorf("size %q: want a number, then K, M, G or nothing, up to 1024G", s)
	}
	return n * unit, nil
}
