//go:build !purego

package dtype

// levels are the sets of kernels that this build and CPU have, the best one first. Generic code is always the last.
var levels = func() []level {
	avx2, f16c := useAVX2, useF16C
	set := func(a, f bool) func() { return func() { useAVX2, useF16C = a, f } }
	l := []level{{"generic", set(false, false)}}
	if avx2 {
		l = append([]level{{"avx2", set(true, false)}}, l...)
	}
	if f16c {
		l = append([]level{{"avx2+f16c", set(true, true)}}, l...)
	}
	return l
}()
