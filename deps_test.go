package goccl

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// imports is who may import whom inside the module, and which modules from outside. It is the layering of
// ARCHITECTURE.md; do not change it to make a build pass. A name stands for the package and the internal packages under it.
var imports = map[string][]string{
	"dtype":                   {"x448/float16", "x/sys"},
	"transport":               {},
	"transport/internal/link": {"transport"},
	"transport/mem":           {"transport", "transport/internal/link"},
	"transport/tcp":           {"transport", "transport/internal/link", "x/sys"},
	"transport/transporttest": {"transport"},
	"ring":                    {"dtype", "transport"},
	".":                       {"dtype", "transport", "transport/mem", "transport/tcp", "ring", "internal/secret", "internal/trace"},
	"internal/hostile":        {},
	"internal/secret":         {},
	"internal/trace":          {},
	"internal/testca":         {},
	"internal/launch":         {"transport/tcp", "internal/secret"},
	"cmd/goccl":               {".", "internal/launch", "internal/secret", "internal/trace", "transport/tcp"},
	"bench":                   {".", "dtype", "ring", "transport/mem", "internal/launch"},
	"examples/digits":         {".", "dtype", "internal/launch", "testdata"},
	"faults":                  {},
	"testdata":                {},
}

// outside maps the modules the library may use to their short names.
var outside = map[string]string{"github.com/x448/float16": "x448/float16", "golang.org/x/sys": "x/sys"}

type listed struct {
	ImportPath string
	Imports    []string
	CgoFiles   []string
	Dir        string
}

func list(t *testing.T, patterns ...string) []listed {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Imports,CgoFiles,Dir"}, patterns...)...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}
	var all []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func TestImports(t *testing.T) {
	const module = "github.com/goccl/goccl"
	short := func(path string) string {
		if path == module {
			return "."
		}
		if rest, ok := strings.CutPrefix(path, module+"/"); ok {
			return rest
		}
		for m, name := range outside {
			if path == m || strings.HasPrefix(path, m+"/") {
				return name
			}
		}
		return path
	}
	seen, used := map[string]bool{}, map[string]bool{}
	for _, p := range list(t, "./...") {
		name := short(p.ImportPath)
		seen[name] = true
		allowed, ok := imports[name]
		if !ok {
			t.Errorf("package %s has no line in the import table", name)
			continue
		}
		if len(p.CgoFiles) > 0 {
			t.Errorf("package %s uses cgo: %v", name, p.CgoFiles)
		}
		for _, path := range p.Imports {
			first, _, _ := strings.Cut(path, "/")
			if !strings.Contains(first, ".") {
				if path == "testing" && name != "transport/transporttest" || path == "C" {
					t.Errorf("package %s imports %s", name, path)
				}
				continue
			}
			s := short(path)
			if !slices.Contains(allowed, s) {
				t.Errorf("package %s imports %s, which its layer does not allow", name, s)
			}
			used[name+" "+s] = true
		}
	}
	for name, allowed := range imports {
		for _, s := range allowed {
			if !used[name+" "+s] && runtime.GOOS == "linux" { // elsewhere some files are left out
				t.Errorf("package %s is allowed to import %s and does not", name, s)
			}
		}
	}
	for name := range imports {
		if matches, _ := filepath.Glob(filepath.Join(name, "*.go")); len(matches) > 0 && !seen[name] && name != "testdata" {
			t.Errorf("package %s was not listed", name)
		}
	}
}
