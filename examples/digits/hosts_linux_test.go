package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var twoHosts = flag.Bool("two-hosts", false, "run the test across two network namespaces: needs root and ip")

// A host is a network namespace with one address, a name and a directory of its own. ./app in it is this program.
type host struct{ space, name, dir string }

// TestTwoHosts does what README.md says about several hosts, word for word, on two hosts that know no route but that to each
// other.
func TestTwoHosts(t *testing.T) {
	if !*twoHosts {
		t.Skip("needs root: -two-hosts")
	}
	makeSecret, start := readmeCommands(t)
	hosts := cabled(t)
	hosts[0].makeSecret(t, makeSecret)
	hosts[1].copySecret(t, hosts[0])

	t.Run("as README says", func(t *testing.T) {
		out, errs := runOnBoth(t, hosts, start)
		if err := errors.Join(errs...); err != nil {
			t.Fatalf("%v\n%s%s", err, out[0], out[1])
		}
		for _, want := range []string{"2 ranks, ", "all 2 ranks hold bit-identical parameters", "‖a−b‖₂/‖b‖₂"} {
			if !strings.Contains(out[0], want) {
				t.Errorf("rank 0 printed\n%s\nwithout %q", out[0], want)
			}
		}
	})
	t.Run("without the secret", func(t *testing.T) {
		refused(t, hosts, replaced(start, "GOCCL_SECRET_FILE=job.secret", ""), "GOCCL_SECRET_FILE", "Insecure")
	})
	t.Run("with another secret on one", func(t *testing.T) {
		hosts[1].makeSecret(t, makeSecret)
		// Whoever has another secret must not end rank 0's wait for rank 1.
		refused(t, hosts, replaced(start, "./app ", "./app -wait 3s "), "the secrets differ", "rank 1", "10.0.0.")
	})
}

func replaced(commands [2]string, old, new string) [2]string {
	for i, c := range commands {
		commands[i] = strings.Replace(c, old, new, 1)
	}
	return commands
}

// refused wants both ranks to fail soon, with one line each that has certain words.
func refused(t *testing.T, hosts [2]host, commands [2]string, words ...string) {
	begun := time.Now()
	out, errs := runOnBoth(t, hosts, commands)
	for i := range hosts {
		if errs[i] == nil {
			t.Errorf("rank %d is content:\n%s", i, out[i])
		}
		if strings.Count(out[i], "\n") != 1 {
			t.Errorf("rank %d says more than one line", i)
		}
		t.Logf("rank %d: %s", i, out[i])
		for _, w := range words {
			if !strings.Contains(out[i], w) {
				t.Errorf("rank %d does not mention %s", i, w)
			}
		}
	}
	if d := time.Since(begun); d > 20*time.Second {
		t.Errorf("took %v", d)
	}
}

// readmeCommands returns the commands under "On several hosts": to make the secret, and to start each host's rank.
func readmeCommands(t *testing.T) (makeSecret string, start [2]string) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "**On several hosts**")
	_, rest, _ = strings.Cut(rest, "```\n")
	block, _, ok := strings.Cut(rest, "\n```")
	lines := strings.Split(block, "\n")
	if !ok || len(lines) != 4 {
		t.Fatalf("README.md has other commands for several hosts than this test can run:\n%s", block)
	}
	for i := range start {
		start[i] = lines[1] + "\n" + lines[2+i]
	}
	return lines[0], start
}

// cabled makes two hosts with a cable between them.
func cabled(t *testing.T) (hosts [2]host) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for i := range hosts {
		h := &hosts[i]
		h.name = fmt.Sprintf("host%d", i+1)
		h.space = fmt.Sprintf("goccl-%d-%s", os.Getpid(), h.name)
		h.dir = t.TempDir()
		ip(t, "netns", "add", h.space)
		t.Cleanup(func() { ip(t, "netns", "delete", h.space) })
		ip(t, "-n", h.space, "link", "set", "lo", "up")
		if err := os.Symlink(exe, filepath.Join(h.dir, "app")); err != nil {
			t.Fatal(err)
		}
		// A host's own name often leads to loopback. That must not matter.
		h.write(t, "hosts", fmt.Sprintf("127.0.0.1 localhost\n127.0.1.1 %s\n", h.name))
	}
	ip(t, "link", "add", "eth0", "netns", hosts[0].space, "type", "veth", "peer", "name", "eth0", "netns", hosts[1].space)
	for i, h := range hosts {
		ip(t, "-n", h.space, "address", "add", fmt.Sprintf("10.0.0.%d/24", i+1), "dev", "eth0")
		ip(t, "-n", h.space, "link", "set", "eth0", "up")
	}
	return hosts
}

func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func (h host) write(t *testing.T, name, text string) {
	if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (h host) makeSecret(t *testing.T, command string) {
	if out, err := h.run(t, command); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	if info, err := os.Stat(filepath.Join(h.dir, "job.secret")); err != nil || info.Mode().Perm() != 0o600 || info.Size() < 32 {
		t.Fatalf("the secret is %v (%v)", info, err)
	}
}

func (h host) copySecret(t *testing.T, from host) {
	secret, err := os.ReadFile(filepath.Join(from.dir, "job.secret"))
	if err != nil {
		t.Fatal(err)
	}
	h.write(t, "job.secret", string(secret))
}

// run runs a shell command on the host and returns what it prints.
func (h host) run(t *testing.T, command string) (string, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	const asHost = `mount --bind hosts /etc/hosts && echo "$1" >/proc/sys/kernel/hostname && eval "$2"`
	cmd := exec.CommandContext(ctx, "ip", "netns", "exec", h.space, "sh", "-c", asHost, "sh", h.name, command)
	cmd.Dir = h.dir
	cmd.Env = append(withoutGoccl(os.Environ()), asDigits+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUTS, Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func runOnBoth(t *testing.T, hosts [2]host, commands [2]string) (out []string, errs []error) {
	out, errs = make([]string, 2), make([]error, 2)
	var both sync.WaitGroup
	for i := range hosts {
		both.Go(func() { out[i], errs[i] = hosts[i].run(t, commands[i]) })
	}
	both.Wait()
	return out, errs
}
