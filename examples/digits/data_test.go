package main

import (
	"crypto/md5"
	"fmt"
	"testing"

	"github.com/goccl/goccl/testdata"
)

func TestDataAreAsDistributed(t *testing.T) {
	if sum := fmt.Sprintf("%x", md5.Sum(testdata.Digits)); sum != "ca09b38354112f159cd554f69e213828" {
		t.Errorf("MD5 is %s", sum)
	}
	train, test, err := load()
	if err != nil {
		t.Fatal(err)
	}
	if len(train) != 1438 || len(test) != 359 {
		t.Errorf("%d training and %d test samples", len(train), len(test))
	}
	if s := train[0]; s.digit != 0 || s.image[3] != 13.0/16 {
		t.Errorf("the first sample is a %d, its fourth pixel %v", s.digit, s.image[3])
	}
}

func TestParseSampleRefuses(t *testing.T) {
	good := make([]string, pixels+1)
	for i := range good {
		good[i] = "9"
	}
	if _, err := parseSample(good); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"17", "-1", "x", ""} {
		for _, at := range []int{0, pixels} {
			record := append([]string(nil), good...)
			record[at] = bad
			if s, err := parseSample(record); err == nil {
				t.Errorf("field %d %q is taken: %v", at, bad, s.digit)
			}
		}
	}
}

func TestShards(t *testing.T) {
	for size := 1; size <= 17; size++ {
		for _, n := range []int{0, 1, size - 1, size, 359, 1438} {
			next := 0
			for r := range size {
				from, to := shard(n, r, size)
				if from != next || to-from < n/size || to-from > n/size+1 {
					t.Fatalf("%d of %d in %d: [%d, %d), want from %d", r, n, size, from, to, next)
				}
				next = to
			}
			if next != n {
				t.Fatalf("%d in %d shards ends at %d", n, size, next)
			}
		}
	}
}

// In an epoch every sample is seen once, by whatever ranks there are, and in another order than in the epoch before.
func TestBatchesCoverTheSamples(t *testing.T) {
	for _, size := range []int{1, 3, 4, 17} {
		s := newSchedule(1438, size, 5)
		seen := make([]int, s.samples)
		for r := range size {
			batches := s.batches(r, 2)
			if len(batches) != s.steps {
				t.Fatalf("%d batches, want %d", len(batches), s.steps)
			}
			for _, b := range batches {
				for _, i := range b {
					seen[i]++
				}
			}
		}
		for i, n := range seen {
			if n != 1 {
				t.Fatalf("%d ranks: sample %d is seen %d times", size, i, n)
			}
		}
		if a, b := s.batches(0, 0)[0], s.batches(0, 1)[0]; fmt.Sprint(a) == fmt.Sprint(b) {
			t.Error("two epochs have the same order")
		}
	}
}
