package goccl

import (
	"context"

	"github.com/goccl/goccl/dtype"
)

// Send sends data to a rank, this one included. It returns when data may be reused, which says nothing about its arrival.
// Messages with the same tag arrive in order. A cancelled Send has sent the whole message or nothing of it and breaks
// nothing. Send waits while the receiver's mailbox has no room and no receive takes the message (Config.MailboxBytes).
func Send[T dtype.Element](ctx context.Context, g *ProcessGroup, to int, tag uint32, data []T) error {
	return g.Send(ctx, to, tag, dtype.Of(data))
}

// Recv returns the next message with that tag from a rank. A message of another element type is a *MismatchError and stays
// for a call that fits. One larger than Config.MailboxBytes needs RecvInto.
func Recv[T dtype.Element](ctx context.Context, g *ProcessGroup, from int, tag uint32) ([]T, error) {
	b, err := g.recv(ctx, from, tag, dtype.TypeOf[T]())
	if err != nil {
		return nil, err
	}
	return dtype.View[T](b)
}

// RecvInto puts the next message with that tag from a rank into dst and returns its number of elements. A message that does
// not fit is an error and stays for a longer dst.
func RecvInto[T dtype.Element](ctx context.Context, g *ProcessGroup, from int, tag uint32, dst []T) (n int, err error) {
	return g.RecvInto(ctx, from, tag, dtype.Of(dst))
}

// Send is the untyped twin of the function Send.
func (g *ProcessGroup) Send(ctx context.Context, to int, tag uint32, data dtype.Buffer) error {
	return g.p2p.send(ctx, to, tag, data)
}

// Recv returns the next message with that tag from a rank, of whatever type.
func (g *ProcessGroup) Recv(ctx context.Context, from int, tag uint32) (dtype.Buffer, error) {
	return g.recv(ctx, from, tag, 0)
}

func (g *ProcessGroup) recv(ctx context.Context, from int, tag uint32, typ dtype.Type) (dtype.Buffer, error) {
	r := receive{tag: tag, typ: typ}
	if err := g.p2p.receive(ctx, from, &r); err != nil {
		return dtype.Buffer{}, err
	}
	return dtype.Bytes(r.m.head.typ, r.m.data)
}

// RecvInto is the untyped twin of the function RecvInto.
func (g *ProcessGroup) RecvInto(ctx context.Context, from int, tag uint32, dst dtype.Buffer) (n int, err error) {
	if dst.OnDevice() {
		return 0, unsupported("device memory")
	}
	r := receive{tag: tag, typ: dst.Type(), into: dst.HostBytes(), fixed: true}
	if err := g.p2p.receive(ctx, from, &r); err != nil {
		return 0, err
	}
	return int(r.m.head.nbytes) / r.m.head.typ.Size(), nil
}
