package main

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// A printer shows a sweep.
type printer interface {
	header(h *header)
	progress(done, all int, t task)
	row(r row)
	end() error // the first error of all
}

type discard struct{}

func (discard) header(*header)          {}
func (discard) progress(int, int, task) {}
func (discard) row(row)                 {}
func (discard) end() error              { return nil }

func newPrinter(stdout io.Writer, stderr *os.File, cfg *config) printer {
	p := progressLine{}
	if isTerminal(stderr) {
		p.w = stderr
	}
	out := bufio.NewWriter(stdout)
	switch cfg.format {
	case "json":
		return &jsonPrinter{progressLine: p, out: out}
	case "csv":
		return &csvPrinter{progressLine: p, out: csv.NewWriter(out), buf: out}
	}
	return &textPrinter{progressLine: p, out: out, percentiles: cfg.percentiles}
}

// progressLine shows on a terminal what is being measured.
type progressLine struct {
	w io.Writer // nil: no terminal
}

const eraseLine = "\r\x1b[K"

func (p progressLine) progress(done, all int, t task) {
	if p.w != nil {
		fmt.Fprintf(p.w, "%s%d of %d: %s %v %d bytes ", eraseLine, done+1, all, t.op.name, t.typ, t.size)
	}
}

// erase makes room for a row, or leaves the terminal clean.
func (p progressLine) erase() {
	if p.w != nil {
		_, _ = io.WriteString(p.w, eraseLine)
	}
}

// isTerminal reports whether f is a character device other than the null device.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

// textPrinter prints nccl-tests' columns. Lines that begin with # are remarks, as there.
type textPrinter struct {
	progressLine
	out         *bufio.Writer
	percentiles bool
	about       string // the last remark on the rows below it
	rows        int
	busbw       float64
	wrong       int64
	checked     bool
}

func (p *textPrinter) header(h *header) {
	fmt.Fprintf(p.out, "# goccl %s, %s %s, %d CPUs\n", h.Version, h.Go, h.Platform, h.CPUs)
	fmt.Fprintf(p.out, "# %d ranks on %s, transport %s, algorithm %s\n", h.Ranks, strings.Join(slices.Compact(slices.Clone(h.Hosts)), ", "), h.Transport, h.Algorithm)
	fmt.Fprintf(p.out, "# time: %s over the iterations, each as long as on its slowest rank; in place for all_reduce and broadcast\n#\n", h.Statistic)
	p.line("#", "size", "count", "type", "redop", "time", "algbw", "busbw", "#wrong", "p50", "p90", "p99", "max")
	p.line("#", "(B)", "(elements)", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(us)", "(us)", "(us)")
	p.out.Flush()
}

func (p *textPrinter) line(mark string, f ...string) {
	fmt.Fprintf(p.out, "%s%12s  %12s  %6s  %6s  %10s  %7s  %7s  %6s", mark, f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7])
	if p.percentiles {
		fmt.Fprintf(p.out, "  %10s  %10s  %10s  %10s", f[8], f[9], f[10], f[11])
	}
	p.out.WriteByte('\n')
}

func (p *textPrinter) row(r row) {
	p.erase()
	if about := r.about(); about != p.about {
		fmt.Fprintf(p.out, "# %s\n", about)
		p.about = about
	}
	wrong := "N/A"
	if r.Wrong != nil {
		p.checked = true
		p.wrong += *r.Wrong
		wrong = strconv.FormatInt(*r.Wrong, 10)
	}
	p.rows++
	p.busbw += r.Busbw
	us := func(v float64) string { return fmt.Sprintf("%.2f", v) }
	p.line(" ", strconv.FormatInt(r.Size, 10), strconv.Itoa(r.Count), r.Type, r.Redop, us(r.Time),
		fmt.Sprintf("%.3f", r.Algbw), fmt.Sprintf("%.3f", r.Busbw), wrong, us(r.Median), us(r.P90), us(r.P99), us(r.Max))
	p.out.Flush()
}

// about tells rows apart that have equal columns, and how they were computed: "reduce, root 2: chain (…)".
func (r row) about() string {
	s := r.Op
	if r.Root >= 0 {
		s += fmt.Sprintf(", root %d", r.Root)
	}
	_, choice, ok := strings.Cut(r.Algorithm, ": ")
	if !ok {
		choice = r.Algorithm
	}
	return s + ": " + choice
}

func (p *textPrinter) end() error {
	p.erase()
	switch {
	case !p.checked:
		fmt.Fprintf(p.out, "# Wrong values: not checked\n")
	case p.wrong == 0:
		fmt.Fprintf(p.out, "# Wrong values: 0 OK\n")
	default:
		fmt.Fprintf(p.out, "# Wrong values: %d FAILED\n", p.wrong)
	}
	if p.rows > 0 {
		fmt.Fprintf(p.out, "# Avg bus bandwidth: %.4f GB/s\n", p.busbw/float64(p.rows))
	}
	return p.out.Flush()
}

// csvPrinter prints a line of names, then a line for each row. The fields are those of the JSON document.
type csvPrinter struct {
	progressLine
	out *csv.Writer
	buf *bufio.Writer
	h   *header
}

func (p *csvPrinter) header(h *header) {
	p.h = h
	p.write("op", "size", "count", "type", "redop", "root", "time_us", "algbw_GBps", "busbw_GBps", "wrong",
		"iterations", "average_us", "p50_us", "p90_us", "p99_us", "max_us", "ranks", "transport", "algorithm")
}

func (p *csvPrinter) row(r row) {
	p.erase()
	wrong := ""
	if r.Wrong != nil {
		wrong = strconv.FormatInt(*r.Wrong, 10)
	}
	f := func(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
	p.write(r.Op, strconv.FormatInt(r.Size, 10), strconv.Itoa(r.Count), r.Type, r.Redop, strconv.Itoa(r.Root),
		f(r.Time), f(r.Algbw), f(r.Busbw), wrong, strconv.Itoa(r.Iters),
		f(r.Average), f(r.Median), f(r.P90), f(r.P99), f(r.Max), strconv.Itoa(p.h.Ranks), p.h.Transport, r.Algorithm)
}

func (p *csvPrinter) write(fields ...string) {
	_ = p.out.Write(fields) // the writer keeps its first error for end
	p.out.Flush()
	p.buf.Flush()
}

func (p *csvPrinter) end() error {
	p.erase()
	p.out.Flush()
	if err := p.out.Error(); err != nil {
		return err
	}
	return p.buf.Flush()
}

// jsonPrinter prints one document at the end: the header's fields and the rows as "results".
type jsonPrinter struct {
	progressLine
	out *bufio.Writer
	doc struct {
		*header
		Results []row `json:"results"`
	}
}

func (p *jsonPrinter) header(h *header) { p.doc.header, p.doc.Results = h, []row{} }
func (p *jsonPrinter) row(r row)        { p.doc.Results = append(p.doc.Results, r) }

func (p *jsonPrinter) end() error {
	p.erase()
	e := json.NewEncoder(p.out)
	e.SetIndent("", "  ")
	if err := e.Encode(&p.doc); err != nil {
		return err
	}
	return p.out.Flush()
}
