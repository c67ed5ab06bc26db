package main

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/goccl/goccl/dtype"
	"github.com/goccl/goccl/ring"
)

func TestParseSize(t *testing.T) {
	for s, want := range map[string]int64{"0": 0, "4": 4, "1K": 1 << 10, "3k": 3 << 10, "16M": 16 << 20, "2g": 2 << 30, "1024G": 1 << 40} {
		if got, err := parseSize(s); err != nil || got != want {
			t.Errorf("%s is %d, %v, want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "K", "-1", "1KB", "1KK", "1.5M", "x", "1025G", "99999999999999999999"} {
		if got, err := parseSize(s); err == nil {
			t.Errorf("%q is taken for %d", s, got)
		}
	}
}

func TestParseSizes(t *testing.T) {
	for _, c := range []struct {
		b, e   string
		factor int
		step   string
		want   []int64
	}{
		{"4", "100", 0, "", []int64{4, 16, 64}},
		{"1K", "4K", 2, "", []int64{1024, 2048, 4096}},
		{"8", "40", 0, "16", []int64{8, 24, 40}},
		{"0", "4", 3, "", []int64{0, 1, 3}},
		{"7", "7", 0, "", []int64{7}},
		{"8", "4", 0, "", nil},
		{"4", "8", 1, "", nil},
		{"4", "8", 2, "4", nil},
		{"4", "8", 0, "0", nil},
		{"4", "x", 0, "", nil},
	} {
		got, err := parseSizes(c.b, c.e, c.factor, c.step)
		if !slices.Equal(got, c.want) || (err == nil) != (c.want != nil) {
			t.Errorf("-b %s -e %s -f %d -i %q: %v, %v", c.b, c.e, c.factor, c.step, got, err)
		}
	}
}

func TestParseFlags(t *testing.T) {
	c, err := parseFlags(strings.Fields("-ranks 3 -op AllReduce,all-gather,reduce_scatter -d bf16,i64 -o avg,max -algo OneShot -transport tcp -b 8 -e 8 -c 0 -n 7 -w 0 -r 2 -p"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if !c.asked || c.ranks != 3 || len(c.ops) != 3 || c.ops[2].name != "reduce_scatter" || c.algorithm != ring.OneShot || c.check ||
		!slices.Equal(c.types, []dtype.Type{dtype.BF16, dtype.I64}) || !slices.Equal(c.reductions, []dtype.ReduceOp{dtype.Mean, dtype.Max}) {
		t.Errorf("got %+v", c)
	}
	for _, bad := range []string{"-ranks 0", "-op sort", "-d f8", "-o median", "-algo tree", "-transport udp", "-c 2", "-n -1", "-r -1", "-b 2 -e 1", "-json -csv", "-budget 0s", "-x", "more"} {
		var said strings.Builder
		if _, err := parseFlags(strings.Fields(bad), &said); err == nil || said.Len() == 0 {
			t.Errorf("%s: error %v, said %q", bad, err, said.String())
		}
	}
}

func TestTasks(t *testing.T) {
	parse := func(args string) *config {
		c, err := parseFlags(strings.Fields(args), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for args, want := range map[string]int{
		"-b 4 -e 64":                       3,
		"-op all_gather -b 4 -e 64 -o all": 3,     // reduces nothing
		"-op barrier -d all":               1,     // moves nothing
		"-d f32,i32 -o all -b 4 -e 4":      5 + 8, // no bit operations on floats
		"-op all -d u8 -b 4 -e 4 -o sum":   len(operations),
	} {
		list, err := tasks(parse(args))
		if err != nil || len(list) != want {
			t.Errorf("%s: %d tasks, %v, want %d", args, len(list), err, want)
		}
	}
	if _, err := tasks(parse("-d f32 -o bitxor")); err == nil {
		t.Error("bitxor of f32 is not refused")
	}
}
