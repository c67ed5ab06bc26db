package main

import (
	"bytes"
	"errors"
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/goccl/goccl/dtype"
)

func TestFlags(t *testing.T) {
	o, err := parseFlags(nil, new(bytes.Buffer))
	if want := (options{ranks: 4, wait: time.Minute, wire: dtype.F64, epochs: defaultEpochs, seed: 1, kill: kill{-1, 50}}); err != nil || o != want {
		t.Errorf("%+v, %v", o, err)
	}
	o, err = parseFlags([]string{"-ranks", "5", "-dtype", "bf16", "-kill-rank", "0", "-at-step", "7"}, new(bytes.Buffer))
	want := options{ranks: 5, asked: true, restart: true, wait: time.Minute, wire: dtype.BF16, epochs: defaultEpochs, seed: 1, kill: kill{0, 7}}
	if err != nil || o != want {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err := parseFlags([]string{"-kill-rank", "0", "-restart=false"}, new(bytes.Buffer)); err != nil || o.restart {
		t.Errorf("%+v, %v", o, err)
	}
}

// A mistake gets one line, which names it.
func TestFlagMistakes(t *testing.T) {
	for args, want := range map[string]string{
		"-epochs x":                `"x" for flag -epochs`,
		"-epochs 0":                "-epochs 0: need at least one",
		"-wait 0s":                 "-wait 0s: must be positive",
		"-ranks 0":                 "-ranks 0: need at least one",
		"-dtype i32":               "-dtype i32: want f64, f32, f16 or bf16",
		"-dtype f8":                "-dtype f8: want f64, f32, f16 or bf16",
		"-kill-rank -1":            "-kill-rank -1: ranks are counted from 0",
		"-kill-rank 1 -at-step -1": "-at-step -1: steps are counted from 0",
		"-at-step 3":               "-at-step needs -kill-rank",
		"-resart":                  "-resart",
		"more":                     `unexpected argument "more"`,
	} {
		var out bytes.Buffer
		if _, err := parseFlags(strings.Fields(args), &out); err == nil {
			t.Errorf("%s is taken", args)
		}
		if got := out.String(); strings.Count(got, "\n") != 1 || !strings.HasPrefix(got, "digits: ") || !strings.Contains(got, want) {
			t.Errorf("%s: printed %q, want one line with %q", args, got, want)
		}
	}
}

func TestHelp(t *testing.T) {
	var out bytes.Buffer
	if _, err := parseFlags([]string{"-h"}, &out); !errors.Is(err, flag.ErrHelp) {
		t.Error(err)
	}
	for _, want := range []string{"-ranks", "-dtype", "-epochs", "-seed", "-kill-rank", "-at-step", "-restart", "-wait"} {
		if !strings.Contains(out.String(), "  "+want) {
			t.Errorf("the usage lacks %s: %s", want, out.String())
		}
	}
}

func TestKillCheck(t *testing.T) {
	for k, good := range map[kill]bool{
		{-1, 1000}: true, {0, 0}: true, {3, 299}: true, {4, 0}: false, {0, 300}: false,
	} {
		if err := k.check(4, 300); (err == nil) != good {
			t.Errorf("%+v of 4 ranks and 300 steps: %v", k, err)
		}
	}
}
