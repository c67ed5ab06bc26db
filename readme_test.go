package goccl_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Go code in README.md that is no whole program stands in an example, where it is compiled and run.
func TestReadmeShowsExamples(t *testing.T) {
	files, err := filepath.Glob("example*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var examples strings.Builder
	for _, f := range append(files, "README.md") {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if f != "README.md" {
			examples.WriteString(withoutIndent(string(text)))
			continue
		}
		_, rest, ok := strings.Cut(string(text), "```go\n")
		for ; ok; _, rest, ok = strings.Cut(rest, "```go\n") {
			block, _, _ := strings.Cut(rest, "```")
			if !strings.HasPrefix(block, "package main") && !strings.Contains(examples.String(), withoutIndent(block)) {
				t.Errorf("in no example:\n%s", block)
			}
		}
	}
}

func withoutIndent(text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimSpace(l)
	}
	return strings.Join(lines, "\n")
}
