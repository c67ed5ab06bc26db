package dtype

import (
	"errors"
	"fmt"
)

// A ReduceOp is how the inputs of a reduction are combined. The zero ReduceOp is invalid. The values are part of the wire
// format.
type ReduceOp uint8

const (
	Sum ReduceOp = 1 + iota
	Mean
	Prod
	Min
	Max
	BitAnd // BitAnd, BitOr, BitXor: integers only
	BitOr
	BitXor
)

var opNames = [...]string{Sum: "sum", Mean: "mean", Prod: "prod", Min: "min", Max: "max", BitAnd: "bitand", BitOr: "bitor", BitXor: "bitxor"}

// Valid reports whether op is one of the eight operations.
func (op ReduceOp) Valid() bool { return Sum <= op && op <= BitXor }

// String returns the name that ParseReduceOp accepts: "sum", "mean", "prod", "min", "max", "bitand", "bitor", "bitxor".
func (op ReduceOp) String() string {
	if !op.Valid() {
		return fmt.Sprintf("invalid reduce op %d", uint8(op))
	}
	return opNames[op]
}

// ParseReduceOp is the inverse of String. It also takes "avg" for Mean, as nccl-tests calls it.
func ParseReduceOp(s string) (ReduceOp, error) {
	if s == "avg" {
		return Mean, nil
	}
	for op := Sum; op <= BitXor; op++ {
		if opNames[op] == s {
			return op, nil
		}
	}
	return 0, fmt.Errorf("dtype: unknown reduce op %q: want sum, mean, prod, min, max, bitand, bitor or bitxor", s)
}

// Supports returns nil if op can be applied to elements of type t. The bit operations are for integers only: for floats the
// error wraps errors.ErrUnsupported.
func Supports(op ReduceOp, t Type) error {
	switch {
	case !op.Valid():
		return fmt.Errorf("dtype: %v", op)
	case !t.Valid():
		return fmt.Errorf("dtype: %v", t)
	case op >= BitAnd && t.Float():
		return fmt.Errorf("dtype: %v of %v: %w", op, t, errors.ErrUnsupported)
	}
	return nil
}

// Accumulator returns the type in which partial results of op travel when they must not be rounded on the way: F64 for Sum,
// Mean and Prod of floats, I64 for Mean of integers, t itself for all others. Partials of a Mean are sums: combine them
// with Sum and let Finish divide.
func Accumulator(op ReduceOp, t Type) Type {
	switch {
	case t.Float() && op <= Prod:
		return F64
	case !t.Float() && op == Mean:
		return I64
	}
	return t
}
