package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
)

func versionMain(args []string, stdout, stderr io.Writer) int {
	fs := flags("version", "", stderr)
	if ok, code := parse(fs, args, stdout); !ok {
		return code
	}
	if fs.NArg() > 0 {
		return misused(fs, "unexpected argument %q", fs.Arg(0))
	}
	version := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	fmt.Fprintf(stdout, "goccl %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return 0
}
