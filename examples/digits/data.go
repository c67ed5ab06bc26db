package main

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"

	"github.com/goccl/goccl/testdata"
)

const (
	pixels  = 64
	classes = 10
)

// A sample is one image, its pixels from 0 to 1, and the digit it shows.
type sample struct {
	image [pixels]float64
	digit int
}

// load returns the training samples and every fifth one, held out for the test.
func load() (train, test []sample, err error) {
	z, err := gzip.NewReader(bytes.NewReader(testdata.Digits))
	if err != nil {
		return nil, nil, fmt.Errorf("digits: %w", err)
	}
	r := csv.NewReader(z)
	r.FieldsPerRecord = pixels + 1
	r.ReuseRecord = true
	for i := 0; ; i++ {
		record, err := r.Read()
		if err == io.EOF {
			return train, test, nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("digits: %w", err)
		}
		s, err := parseSample(record)
		if err != nil {
			return nil, nil, fmt.Errorf("digits: line %d: %w", i+1, err)
		}
		if i%5 == 4 {
			test = append(test, s)
		} else {
			train = append(train, s)
		}
	}
}

func parseSample(record []string) (s sample, err error) {
	for i, field := range record {
		v, err := strconv.Atoi(field)
		if err != nil {
			return s, err
		}
		switch {
		case i < pixels && 0 <= v && v <= 16:
			s.image[i] = float64(v) / 16
		case i == pixels && 0 <= v && v < classes:
			s.digit = v
		default:
			return s, fmt.Errorf("field %d is %d", i+1, v)
		}
	}
	return s, nil
}

// shard returns the part of n things that belongs to a rank; what is left over goes to the first ranks.
func shard(n, rank, size int) (from, to int) {
	part := func(r int) int { return r*(n/size) + min(r, n%size) }
	return part(rank), part(rank + 1)
}

// A schedule says which samples a rank works on, when. It depends on nothing but its fields, so that one process can
// later go through the same batches as all ranks together.
type schedule struct {
	samples, size int
	seed          uint64
	steps         int // per epoch
}

// batches returns, for one epoch, the indices of the samples of each step: the rank's own shard in a random order. Shards
// may be unequal, and so may batches.
func (s schedule) batches(rank, epoch int) [][]int {
	from, to := shard(s.samples, rank, s.size)
	order := rand.New(rand.NewPCG(s.seed, uint64(epoch)<<32|uint64(rank))).Perm(to - from)
	for i := range order {
		order[i] += from
	}
	batches := make([][]int, s.steps)
	for k := range batches {
		a, b := shard(len(order), k, s.steps)
		batches[k] = order[a:b]
	}
	return batches
}
