package main

import (
	"os"
	"strings"
	"testing"
)

// asDigits makes the test binary the digits program.
const asDigits = "GOCCL_TEST_DIGITS"

func TestMain(m *testing.M) {
	if os.Getenv(asDigits) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// withoutGoccl drops what would make the program a rank of somebody else's.
func withoutGoccl(env []string) (rest []string) {
	for _, v := range env {
		if !strings.HasPrefix(v, "GOCCL_") {
			rest = append(rest, v)
		}
	}
	return rest
}
