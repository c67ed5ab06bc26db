package secret

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFromEnvironment(t *testing.T) {
	file := func(content string) string {
		path := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		env       map[string]string
		want, err string
	}{
		{nil, "", ""},
		{map[string]string{Variable: "s"}, "s", ""},
		{map[string]string{Variable: "", FileVariable: ""}, "", ""},
		{map[string]string{Variable: "s", FileVariable: file("from the file\n")}, "from the file", ""},
		{map[string]string{FileVariable: file("two\n\r\n\n")}, "two", ""},
		{map[string]string{FileVariable: file("\n in\nside \n")}, "\n in\nside ", ""},
		{map[string]string{FileVariable: file("windows\r\n")}, "windows", ""},
		{map[string]string{FileVariable: file(" \x00binary")}, " \x00binary", ""},
		{map[string]string{Variable: "hidden", FileVariable: file("\n\r\n\n\n")}, "", "secret is empty"},
		{map[string]string{Variable: "hidden", FileVariable: "/nonexistent/secret"}, "", "GOCCL_SECRET_FILE: open /nonexistent/secret: no such file"},
	} {
		got, err := FromEnvironment(func(name string) (string, bool) { v, ok := c.env[name]; return v, ok })
		if string(got) != c.want || (err == nil) != (c.err == "") {
			t.Errorf("%q: got %q, %v; want %q, error with %q", c.env, got, err, c.want, c.err)
		}
		if err != nil && (!strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), "hidden")) {
			t.Errorf("%q: %v, want an error with %q", c.env, err, c.err)
		}
	}
}
