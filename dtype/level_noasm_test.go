package dtype

import "testing"

// eachLevel runs f once for every set of kernels of this build.
func eachLevel(t *testing.T, f func(t *testing.T)) { t.Run("generic", f) }
