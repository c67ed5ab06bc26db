package main

import (
	"slices"
	"time"
)

// stats are microseconds.
type stats struct {
	Median  float64 `json:"p50_us"`
	P90     float64 `json:"p90_us"`
	P99     float64 `json:"p99_us"`
	Max     float64 `json:"max_us"`
	Average float64 `json:"average_us"`
}

func newStats(times []time.Duration) stats {
	slices.Sort(times)
	at := func(p float64) float64 { return microseconds(times[int(float64(len(times)-1)*p)]) }
	var total time.Duration
	for _, t := range times {
		total += t
	}
	return stats{
		Median:  microseconds(times[len(times)/2]),
		P90:     at(0.9),
		P99:     at(0.99),
		Max:     at(1),
		Average: microseconds(total) / float64(len(times)),
	}
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// bandwidth is in units of 10⁹ bytes per second.
func bandwidth(nbytes int64, us float64) float64 {
	if us == 0 {
		return 0
	}
	return float64(nbytes) / us / 1e3
}
