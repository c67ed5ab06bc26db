package main

import (
	"fmt"
	"io"

	"github.com/goccl/goccl/internal/trace"
)

const traceMergeAbout = `
It prints, for each group: up to which call the ranks agree; from there on what each rank was in, or had completed, and for
how long; what every rank holds for the first cause of the failure; and, of the ranks of one host, who entered calls last.
The exit code is 1 when a file cannot be read; the others are compared all the same.
`

func traceMergeMain(args []string, stdout, stderr io.Writer) int {
	fs := flags("trace-merge", "file…\nThe files are those that ranks wrote to Config.TraceDir or GOCCL_TRACE_DIR, or with ProcessGroup.WriteTrace.", stderr)
	if ok, code := parse(fs, args, stdout); !ok {
		return code
	}
	if fs.NArg() == 0 {
		return misused(fs, "no file to read")
	}
	code := 0
	var dumps []*trace.Dump
	for _, name := range fs.Args() {
		d, err := trace.ReadFile(name)
		if err != nil { // the others may still tell what happened
			fmt.Fprintf(stderr, "%s: %v\n", fs.Name(), err)
			code = 1
			continue
		}
		dumps = append(dumps, d)
	}
	io.WriteString(stdout, trace.Merge(dumps))
	return code
}
