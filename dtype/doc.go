// Package dtype holds the element types of goccl, typed views of memory (Buffer) and the arithmetic on them: Reduce, Fold
// and Convert. It knows nothing of ranks or networks.
//
// # Numeric rules
//
// They hold for every type and every path: generic Go, assembly, any CPU level. All paths give the same bits.
//
// Floats (F16, BF16, F32, F64). Each result of Fold is the operation applied in the order of the inputs with float64
// accumulation, then one rounding to nearest even to the buffer's type. There is no rounding in between, not to float32
// either. Mean divides the float64 sum by the number of inputs before that rounding: the F16 mean of four 30000 is 30000.
// F64 accumulates in float64 too, so it rounds at each step. Reduce rounds once per call.
//
// Integers (I8, U8, I32, I64). Sum and Prod wrap as in Go. Mean accumulates in int64, divides once and rounds half away
// from zero; nothing is clamped on the way. An I64 sum that leaves the range of int64 wraps before it is divided. BitAnd,
// BitOr and BitXor are for integers only.
//
// Min and Max. A NaN in any input gives NaN, and −0 is less than +0.
//
// NaN. Where an operation on floats (Reduce, Divide, Fold of two inputs or more) results in NaN, it is the canonical quiet
// NaN of the type, positive and without payload: 0x7e00, 0x7fc0, 0x7fc00000, 0x7ff8000000000000. So it does not depend on
// the order of operands, the algorithm or the CPU. Conversions (Convert, Widen, Finish of a sum) keep the sign and the
// leading bits of the payload, and make a NaN quiet, except that BF16 to F32 only moves bits. A Fold of one input is a copy.
//
// Memory is little-endian on every path and on the wire; a build for a big-endian host fails.
package dtype
