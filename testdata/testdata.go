// Package testdata holds data sets that are built into programs. README.md tells their origin.
package testdata

import _ "embed"

// Digits is digits.csv.gz: 1,797 handwritten digits, compressed.
//
//go:embed digits.csv.gz
var Digits []byte
