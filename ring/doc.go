// Package ring runs collectives over any transport.
package ring
