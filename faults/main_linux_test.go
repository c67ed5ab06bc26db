package faults

import (
	"flag"
	"os"
	"testing"
)

var trials = flag.Int("trials", 0, "how often a scenario with a random moment runs; 0: a few times")

// planEnv makes the test binary a rank: it holds a plan.
const planEnv = "GOCCL_FAULTS_PLAN"

func TestMain(m *testing.M) {
	if text := os.Getenv(planEnv); text != "" {
		runRank(text)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// times is how often a scenario runs that takes a few rounds when nothing is asked for.
func times(few int) int {
	switch {
	case *trials > 0:
		return *trials
	case testing.Short():
		return 1
	}
	return few
}
