//go:build race

package goccl

const raceEnabled = true
