package dtype

import (
	"errors"
	"fmt"
	"math"
	"unsafe"
)

// A Buffer is a view of typed memory on the host or on a device: type, address, count. It is a value; copies view the same
// memory. The zero Buffer is empty and has no type. A host Buffer keeps its memory alive, a device Buffer does not.
type Buffer struct {
	host    unsafe.Pointer // nil on a device and, possibly, where count is 0
	device  uint64
	count   int
	ordinal int32 // 1 + the device's, 0: host memory
	typ     Type
}

// Of views the elements of s, without a copy.
func Of[T Element](s []T) Buffer {
	return Buffer{host: unsafe.Pointer(unsafe.SliceData(s)), count: len(s), typ: TypeOf[T]()}
}

// Bytes views raw as little-endian elements, without a copy. It is an error if raw is no whole number of elements or does
// not begin at an address that the Go type of t may have.
func Bytes(t Type, raw []byte) (Buffer, error) {
	if !t.Valid() {
		return Buffer{}, fmt.Errorf("dtype: buffer of %v", t)
	}
	if len(raw)%t.Size() != 0 {
		return Buffer{}, fmt.Errorf("dtype: %d bytes are no whole number of %v elements of %d bytes", len(raw), t, t.Size())
	}
	p := unsafe.Pointer(unsafe.SliceData(raw))
	if len(raw) > 0 && uintptr(p)%alignment(t) != 0 {
		return Buffer{}, fmt.Errorf("dtype: buffer of %v at address %#x, which is not a multiple of %d", t, uintptr(p), alignment(t))
	}
	return Buffer{host: p, count: len(raw) / t.Size(), typ: t}, nil
}

// Device views count elements of device memory at ptr, on the device with that ordinal. Like make, it panics if t is
// invalid, count or ordinal is negative or the size in bytes overflows.
func Device(t Type, ptr uint64, count, ordinal int) Buffer {
	switch {
	case !t.Valid():
		panic(fmt.Sprintf("dtype: device buffer of %v", t))
	case count < 0 || count > math.MaxInt/t.Size() || uint64(count*t.Size()) > math.MaxUint64-ptr:
		panic(fmt.Sprintf("dtype: device buffer at %#x: count %d of %v out of range", ptr, count, t))
	case ordinal < 0 || ordinal >= math.MaxInt32:
		panic(fmt.Sprintf("dtype: device buffer: ordinal %d out of range", ordinal))
	}
	return Buffer{device: ptr, count: count, ordinal: int32(ordinal) + 1, typ: t}
}

func alignment(t Type) uintptr {
	switch t {
	case F16, BF16:
		return unsafe.Alignof(uint16(0))
	case F32:
		return unsafe.Alignof(float32(0))
	case F64:
		return unsafe.Alignof(float64(0))
	case I32:
		return unsafe.Alignof(int32(0))
	case I64:
		return unsafe.Alignof(int64(0)) // 4 where int is 32 bits
	}
	return 1
}

// Type returns the type of the elements.
func (b Buffer) Type() Type { return b.typ }

// Count returns the number of elements.
func (b Buffer) Count() int { return b.count }

// Nbytes returns the number of bytes.
func (b Buffer) Nbytes() int { return b.count * b.typ.Size() }

// OnDevice reports whether b views device memory.
func (b Buffer) OnDevice() bool { return b.ordinal != 0 }

// DevicePtr returns the device address, 0 for host memory.
func (b Buffer) DevicePtr() uint64 { return b.device }

// DeviceOrdinal returns the device's ordinal, -1 for host memory.
func (b Buffer) DeviceOrdinal() int { return int(b.ordinal) - 1 }

// HostBytes returns the bytes of b, without a copy. It is nil if b views device memory.
func (b Buffer) HostBytes() []byte {
	if b.OnDevice() {
		return nil
	}
	return unsafe.Slice((*byte)(b.host), b.Nbytes())
}

// Slice views the elements i to j-1. Like a slice expression, it panics unless 0 <= i <= j <= Count.
func (b Buffer) Slice(i, j int) Buffer {
	if i < 0 || j < i || j > b.count {
		panicSlice(i, j, b.count)
	}
	if b.OnDevice() {
		b.device += uint64(i) * uint64(b.typ.Size())
	} else if i < b.count { // else the address would be behind the memory, which could belong to another object
		b.host = unsafe.Add(b.host, i*b.typ.Size())
	}
	b.count = j - i
	return b
}

func panicSlice(i, j, count int) {
	panic(fmt.Sprintf("dtype: slice [%d:%d] of a buffer of %d elements", i, j, count))
}

// part is Slice for a host buffer and 0 <= i < j <= count, cheap enough for the loops over blocks.
func (b Buffer) part(i, j int) Buffer {
	b.host = unsafe.Add(b.host, i*b.typ.Size())
	b.count = j - i
	return b
}

// View returns the elements of a host buffer as a slice, without a copy. T must be the Go type of the buffer's Type.
func View[T Element](b Buffer) ([]T, error) {
	if b.typ != TypeOf[T]() {
		return nil, fmt.Errorf("dtype: view of %v as %v", b.typ, TypeOf[T]())
	}
	if b.OnDevice() {
		return nil, fmt.Errorf("dtype: view of device memory: %w", errors.ErrUnsupported)
	}
	return hostSlice[T](b), nil
}

// hostSlice trusts its caller: T has the size of b's elements.
func hostSlice[T any](b Buffer) []T { return unsafe.Slice((*T)(b.host), b.count) }

// overlap reports whether a and b share memory without being the same memory. Host buffers only.
func overlap(a, b *Buffer) bool {
	na, nb := uintptr(a.Nbytes()), uintptr(b.Nbytes())
	pa, pb := uintptr(a.host), uintptr(b.host)
	if na == 0 || nb == 0 || pa == pb && na == nb {
		return false
	}
	return pa < pb+nb && pb < pa+na
}
