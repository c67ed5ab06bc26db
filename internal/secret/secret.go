// Package secret finds the shared secret of a job. No error of it shows any of the secret.
package secret

import (
	"bytes"
	"fmt"
	"os"
)

// The variables that hold a secret, the one that counts first.
const (
	FileVariable = "GOCCL_SECRET_FILE" // a path
	Variable     = "GOCCL_SECRET"      // the secret itself
)

// FromEnvironment returns the secret that the environment names, nil when it names none. lookup is as os.LookupEnv.
func FromEnvironment(lookup func(name string) (string, bool)) ([]byte, error) {
	if path, ok := lookup(FileVariable); ok && path != "" {
		s, err := FromFile(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", FileVariable, err)
		}
		return s, nil
	}
	if s, ok := lookup(Variable); ok && s != "" {
		return []byte(s), nil
	}
	return nil, nil
}

// FromFile reads a secret. The newlines with which editors and shells end a file do not belong to it.
func FromFile(path string) ([]byte, error) {
	s, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s = bytes.TrimRight(s, "\r\n")
	if len(s) == 0 {
		return nil, fmt.Errorf("%s is empty", path)
	}
	return s, nil
}
