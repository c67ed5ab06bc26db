package ring

// A chunk is the range [lo, hi) of elements of a buffer, often the share of one rank.
type chunk struct{ lo, hi int }

func (c chunk) count() int { return c.hi - c.lo }

// shift moves c by n elements.
func (c chunk) shift(n int) chunk { return chunk{c.lo + n, c.hi + n} }

// chunkOf is share i of n of the elements of all. The remainder goes to the first shares.
func chunkOf(all chunk, n, i int) chunk {
	q, r := all.count()/n, all.count()%n
	lo := all.lo + i*q + min(i, r)
	if i < r {
		return chunk{lo, lo + q + 1}
	}
	return chunk{lo, lo + q}
}

// splitEvenly appends the n shares of all.
func splitEvenly(s []chunk, all chunk, n int) []chunk {
	for i := range n {
		s = append(s, chunkOf(all, n, i))
	}
	return s
}

// splitBy appends consecutive chunks of the given counts.
func splitBy(s []chunk, counts []int) []chunk {
	lo := 0
	for _, n := range counts {
		s = append(s, chunk{lo, lo + n})
		lo += n
	}
	return s
}

// clip is the part of c that piece, a range relative to the beginning of c, covers.
func (c chunk) clip(piece chunk) chunk {
	n := c.count()
	return chunk{c.lo + min(piece.lo, n), c.lo + min(piece.hi, n)}
}
