package goccl

import (
	"slices"
	"strings"
)

// ownVariables are those that goccl and its programs look at.
var ownVariables = []string{
	"GOCCL_RANK", "GOCCL_WORLD_SIZE", "GOCCL_COORDINATOR", "GOCCL_SOCKET_IFNAME", "GOCCL_RUN_ID", "GOCCL_SECRET", "GOCCL_SECRET_FILE",
	"GOCCL_TRACE_DIR",
	"GOCCL_RESTART", // for the program that "goccl launch" has started
}

// internalPrefixes are of variables by which goccl's own tests and tools speak to their children.
var internalPrefixes = []string{"GOCCL_TEST_", "GOCCL_FAULTS_"}

// warnOfUnknown logs the variables that look as if they were for goccl and are not. Their values are nobody's business.
func (c *JoinConfig) warnOfUnknown(environ []string) {
	if list := unknownVariables(environ); len(list) > 0 {
		c.logger().Warn("goccl: environment variables that mean nothing to goccl", "variables", strings.Join(list, ", "))
	}
}

// unknownVariables lists what begins with GOCCL_ and is not known, each with the known name that it comes near to.
func unknownVariables(environ []string) []string {
	var list []string
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		internal := slices.ContainsFunc(internalPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
		if !strings.HasPrefix(name, "GOCCL_") || internal || slices.Contains(ownVariables, name) {
			continue
		}
		if near := nearest(name); near != "" {
			name += " (did you mean " + near + "?)"
		}
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

// nearest returns the known variable that name is most likely meant to be, "" when none comes near.
func nearest(name string) string {
	letters := func(s string) string { return strings.ReplaceAll(strings.TrimPrefix(s, "GOCCL_"), "_", "") }
	n := letters(name)
	best, least := "", len(n)/3+1 // so many letters may differ
	for _, known := range ownVariables {
		k := letters(known)
		d := editDistance(n, k)
		if len(n) >= 4 && strings.Contains(k, n) || strings.Contains(n, k) {
			d = min(d, 1) // GOCCL_SIZE, GOCCL_RANK_ID
		}
		if d < least || d == least && best == "" {
			best, least = known, d
		}
	}
	return best
}

// editDistance counts the letters to insert, drop or replace.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
