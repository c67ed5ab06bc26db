package dtype_test

import (
	"fmt"

	"github.com/goccl/goccl/dtype"
	"github.com/x448/float16"
)

// A sum of bfloat16 numbers is rounded once: 259 lies between 258 and 260. Rounding after each step would end at 256.
func ExampleFold() {
	in := make([]dtype.Buffer, 4)
	for i, f := range []float32{256, 1, 1, 1} {
		in[i] = dtype.Of([]dtype.BFloat16{dtype.BFloat16FromFloat32(f)})
	}
	sum := make([]dtype.BFloat16, 1)
	if err := dtype.Fold(dtype.Sum, dtype.Of(sum), in...); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(sum[0].Float32())
	// Output: 260
}

func ExampleReduce() {
	a, b := []int32{1, 5, 3}, []int32{4, 2, 6}
	if err := dtype.Reduce(dtype.Max, dtype.Of(a), dtype.Of(b)); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(a)
	// Output: [4 5 6]
}

func ExampleConvert() {
	wide := []float64{1, 0.1, 1e6}
	half := make([]float16.Float16, len(wide))
	if err := dtype.Convert(dtype.Of(half), dtype.Of(wide)); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(half)
	// Output: [1 0.099975586 +Inf]
}

// Raw little-endian bytes, for instance a file, as elements.
func ExampleBytes() {
	raw := []byte{1, 0, 255, 2}
	b, err := dtype.Bytes(dtype.U8, raw)
	fmt.Println(b.Type(), b.Count(), err)
	_, err = dtype.Bytes(dtype.F64, raw)
	fmt.Println(err)
	// Output:
	// u8 4 <nil>
	// dtype: 4 bytes are no whole number of f64 elements of 8 bytes
}
