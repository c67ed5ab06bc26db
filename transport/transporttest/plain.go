package transporttest

import (
	"context"

	"github.com/goccl/goccl/transport"
)

// Plain returns t without its optional interfaces: the five methods that every user of a Transport must be content with.
func Plain(t transport.Transport) transport.Transport { return plain{t} }

type plain struct{ t transport.Transport }

func (p plain) Rank() int    { return p.t.Rank() }
func (p plain) Size() int    { return p.t.Size() }
func (p plain) Close() error { return p.t.Close() }

func (p plain) Send(ctx context.Context, to int, tag transport.Tag, b []byte) error {
	return p.t.Send(ctx, to, tag, b)
}

func (p plain) Recv(ctx context.Context, from int, tag transport.Tag, b []byte) error {
	return p.t.Recv(ctx, from, tag, b)
}
