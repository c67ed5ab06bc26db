package goccl

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/goccl/goccl/dtype"
	"github.com/goccl/goccl/ring"
)

// Algorithm names how a collective is carried out. The zero value chooses by size, count, type and operation.
type Algorithm = ring.Algorithm

// The algorithms. Package ring describes them.
const (
	AlgorithmAuto     = ring.Auto
	AlgorithmRing     = ring.Ring
	AlgorithmDirect   = ring.Direct
	AlgorithmOneShot  = ring.OneShot
	AlgorithmDoubling = ring.Doubling
	AlgorithmChain    = ring.Chain
)

// ReduceOp is an element-wise reduction.
type ReduceOp = dtype.ReduceOp

// The reductions. Bit operations are for integers only; package dtype states the rules.
const (
	Sum    = dtype.Sum
	Mean   = dtype.Mean
	Prod   = dtype.Prod
	Min    = dtype.Min
	Max    = dtype.Max
	BitAnd = dtype.BitAnd
	BitOr  = dtype.BitOr
	BitXor = dtype.BitXor
)

// Config holds what every group has. In each field zero means the default and a negative value means off.
type Config struct {
	// Algorithm overrides the choice by size. It must be the same on all ranks. Where a type or operation may not take it
	// another runs; Plan says which.
	Algorithm Algorithm
	// Timeout ends a call whose context has no earlier deadline. Default 5 minutes.
	Timeout time.Duration
	// StallWarning is how long a collective, Send or Recv takes before a warning to Logger says so, once: which ranks are in which
	// call, and who is missing. A large transfer that merely takes that long is warned of too. Default 10 s.
	StallWarning time.Duration
	// Heartbeat is how often this rank shows the others that it lives. One of which nothing is heard for three intervals, its own
	// or the listener's if that is longer, is held for dead; the program itself need do nothing and may compute for as long as
	// it likes. Only what stops the whole process for so long does harm: a debugger, or gigabytes copied or cleared with no call
	// of a function in between, which Go cannot interrupt when a garbage collection is to begin. A rank that has it off neither
	// sends heartbeats nor is missed. Default 2 s, at least 10 ms.
	Heartbeat time.Duration
	// ShrinkMinority lets Shrink go on with fewer than a majority of the group. Only for who knows that no other part of it does.
	ShrinkMinority bool
	// MailboxBytes bounds the point-to-point messages that have arrived here and that nobody has received yet. Among more than
	// two ranks one sender gets half of it at most. Past the bound senders are held back: a message that does not fit waits for
	// a receive, and those that its sender sends after it wait behind it. Default 1 GiB.
	MailboxBytes int64
	// Logger gets start-up facts and failures, with the last calls. Default: nothing is logged.
	Logger *slog.Logger
	// TraceDir is where a rank writes its last 256 calls when its group breaks, before the failing call returns, and when
	// TraceOnSignal is told to: goccl-RUNID-rankR-epochE.json, of a sub-group with its id, replaced by a later one. It is made
	// if it does not exist. What cannot be written is logged. Compare the files of all ranks with "goccl trace-merge".
	// Default: none is written.
	TraceDir string

	runID string // of Join, for traces
}

const (
	defaultTimeout      = 5 * time.Minute
	defaultStallWarning = 10 * time.Second
	defaultHeartbeat    = 2 * time.Second
	defaultMailboxBytes = 1 << 30
)

func (c Config) timeout() time.Duration {
	switch {
	case c.Timeout == 0:
		return defaultTimeout
	case c.Timeout < 0:
		return 0
	}
	return c.Timeout
}

// stallWarning returns after how long to warn, 0 for never.
func (c Config) stallWarning() time.Duration {
	switch {
	case c.StallWarning < 0, c.Logger == nil:
		return 0
	case c.StallWarning == 0:
		return defaultStallWarning
	}
	return c.StallWarning
}

// heartbeat returns the interval, 0 for off.
func (c Config) heartbeat() time.Duration {
	switch {
	case c.Heartbeat == 0:
		return defaultHeartbeat
	case c.Heartbeat < 0:
		return 0
	}
	return min(c.Heartbeat, maxHeartbeat)
}

// mailboxBytes returns the bound; with the bound off, one that is never reached.
func (c Config) mailboxBytes() int64 {
	switch {
	case c.MailboxBytes == 0:
		return defaultMailboxBytes
	case c.MailboxBytes < 0:
		return 1<<63 - 1
	}
	return c.MailboxBytes
}

func (c Config) logger() *slog.Logger {
	if c.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return c.Logger
}

func (c Config) check() error {
	switch {
	case c.Algorithm > AlgorithmChain:
		return argument("Config.Algorithm is %v", c.Algorithm)
	case c.Heartbeat > 0 && c.Heartbeat < minHeartbeat:
		return argument("Config.Heartbeat is %v, at least %v", c.Heartbeat, minHeartbeat)
	}
	return nil
}

func unsupported(what string) error { return fmt.Errorf("goccl: %s: %w", what, errors.ErrUnsupported) }

// JoinConfig says how to meet the other ranks. What is left zero comes from the environment (see [Join]).
type JoinConfig struct {
	// Rank and Size of this process. Size 0: both from the environment; Size > 0: both from here.
	Rank, Size int
	// Coordinator is where the ranks meet: host:port, or several separated by commas, tried in turn. Rank 0 listens there
	// unless a coordinator apart (goccl rendezvous) already does.
	Coordinator string
	// Listen is the address or port range on which this rank takes connections of its peers; default: the interface that
	// leads to the coordinator, any port. Advertise is the address they are told instead, behind a translation.
	Listen, Advertise string
	// Interface limits the choice of the address: names or prefixes separated by commas, = exact, ^ excludes.
	Interface string
	// RunID tells this job from others that use the same coordinator address. Must be equal on all ranks.
	RunID string
	// Listener is rank 0's coordinator socket when the caller has opened one. The group closes it.
	Listener net.Listener
	// Secret is shared by all ranks and whoever coordinates, at least 16 random bytes (fewer are warned of). Both ends of every connection prove that
	// they have it; it is never sent. What follows is not encrypted: that is TLS.
	Secret []byte
	// TLS puts every connection, within a host too, under TLS 1.3 with certificates on both sides; [LoadTLS] makes one from files.
	// transport/tcp says what it must hold and what is added. Without a ServerName a caller gets in with any certificate of the CA.
	TLS *tls.Config
	// Insecure allows sockets other than loopback although there is neither secret nor TLS: whoever reaches the port can
	// join or read the job.
	Insecure bool
	// Link is the kind of connection collectives use between ranks of one host: "" or "auto", "tcp", "unix".
	Link string
	// Options must be equal on all ranks, else Join fails on all of them and names the option.
	Options map[string]string
	// Timeout bounds joining: the earliest of it and the context's deadline. Default 10 minutes.
	Timeout time.Duration
	Config

	sources map[string]string // by field of tcp.Config: the variables that its value is from
}
