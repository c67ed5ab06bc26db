// Package transport is the contract between collectives and whatever moves their bytes.
//
// [Transport] has five methods; they suffice for any implementation. A transport that can do better also implements
// [Exchanger], and [Subsetter] when sub-groups can have connections of their own. transporttest.Run checks the whole
// contract. The package knows neither element types nor operations.
//
// # Ordering and blocking
//
// A stream is what one rank sends to another under one class and group. Streams are independent: a stream that nobody
// receives from holds up no other. Within a stream frames are matched strictly in order, by exact tag and length.
//
// # Failure
//
// A failure with a culprit is a [*PeerError]; disagreement about the next frame is a [*TagError]; a closed transport says
// net.ErrClosed, an ended context its cause. Nothing resumes in the middle of a frame.
//
// SPEC.md describes the bytes on the wire.
package transport
