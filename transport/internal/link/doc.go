// Package link carries frames over byte streams, for every transport of this module that has byte streams.
//
// A [Stream] is one connection with one peer. Send and Recv use it the blocking way, each direction by whoever has its
// turn. An [Engine] uses many streams at once without blocking: it runs a list of steps in the caller's goroutine. A
// [Table] holds one rank's streams by peer, class and group and is the five-method transport over them.
//
// The package opens no connection and knows no file descriptor: [Conn], [Nonblocking] and [Waiter] are what it asks of
// those who do. transport/SPEC.md describes the frames.
package link
