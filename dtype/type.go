package dtype

import (
	"fmt"

	"github.com/x448/float16"
)

// A Type is the type of the elements of a Buffer. The zero Type is invalid. The values are part of the wire format.
type Type uint8

const (
	F16  Type = 1 + iota // IEEE 754 binary16
	BF16                 // bfloat16: the upper half of a binary32
	F32
	F64
	I8
	U8
	I32
	I64
)

var typeNames = [...]string{F16: "f16", BF16: "bf16", F32: "f32", F64: "f64", I8: "i8", U8: "u8", I32: "i32", I64: "i64"}

// typeSizes has room for every Type, so that a look-up needs no check.
var typeSizes = [256]uint8{F16: 2, BF16: 2, F32: 4, F64: 8, I8: 1, U8: 1, I32: 4, I64: 8}

// Valid reports whether t is one of the eight types.
func (t Type) Valid() bool { return F16 <= t && t <= I64 }

// Float reports whether t is F16, BF16, F32 or F64.
func (t Type) Float() bool { return F16 <= t && t <= F64 }

// Size returns the bytes per element, 0 for an invalid type.
func (t Type) Size() int { return int(typeSizes[t]) }

// String returns the name that ParseType accepts: "f16", "bf16", "f32", "f64", "i8", "u8", "i32", "i64".
func (t Type) String() string {
	if !t.Valid() {
		return fmt.Sprintf("invalid type %d", uint8(t))
	}
	return typeNames[t]
}

// ParseType is the inverse of String.
func ParseType(s string) (Type, error) {
	for t := F16; t <= I64; t++ {
		if typeNames[t] == s {
			return t, nil
		}
	}
	return 0, fmt.Errorf("dtype: unknown type %q: want f16, bf16, f32, f64, i8, u8, i32 or i64", s)
}

// Float16 is an IEEE 754 binary16 number.
type Float16 = float16.Float16

// BFloat16 is a bfloat16 number: the upper 16 bits of a float32.
type BFloat16 uint16

// BFloat16FromFloat32 rounds to nearest even. A NaN stays a NaN: it keeps its sign and upper payload bits and becomes quiet.
func BFloat16FromFloat32(f float32) BFloat16 { return BFloat16(bf16FromF32(f)) }

// Float32 returns the same number as a float32, which is exact.
func (b BFloat16) Float32() float32 { return f32FromBF16(uint16(b)) }

// Element lists the Go types that a Buffer can hold. There is no ~: a named type of one's own has no Type.
type Element interface {
	Float16 | BFloat16 | float32 | float64 | int8 | uint8 | int32 | int64
}

// Float lists the floating-point elements.
type Float interface {
	Float16 | BFloat16 | float32 | float64
}

// TypeOf returns the Type of a Go type.
func TypeOf[T Element]() Type {
	var zero T
	switch any(zero).(type) {
	case Float16:
		return F16
	case BFloat16:
		return BF16
	case float32:
		return F32
	case float64:
		return F64
	case int8:
		return I8
	case uint8:
		return U8
	case int32:
		return I32
	}
	return I64
}
