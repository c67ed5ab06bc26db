package link

import "context"

// A flow is one peer's part in a run.
type flow struct {
	peer   int
	stream *Stream
	listed bool // among the active flows
	out    outbound
	in     inbound
}

// take takes the turns of the directions in use.
func (f *flow) take(ctx context.Context) error {
	if len(f.out.queue) > 0 {
		if err := f.stream.out.take(ctx); err != nil {
			return err
		}
		f.out.taken = true
	}
	if len(f.in.queue) > 0 {
		if err := f.stream.in.takeToReceive(ctx); err != nil {
			return err
		}
		f.in.taken = true
	}
	return nil
}

func (f *flow) release() {
	if f.out.taken {
		f.out.taken = false
		f.stream.out.turn.release()
	}
	if f.in.taken {
		f.in.taken = false
		f.stream.in.turn.release()
	}
}

// fail makes the directions in use unusable.
func (f *flow) fail(err error) {
	if f.out.taken {
		f.stream.out.fail(err)
	}
	if f.in.taken {
		f.stream.in.fail(err)
	}
}
