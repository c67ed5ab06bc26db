// Package hostile is what knocks on open ports, for tests: port scanners, browsers, strangers that say nothing or too much,
// replays, and callers that know the protocol but have no business here.
//
// It speaks the start-up protocol from transport/SPEC.md by itself, independent of package tcp, so that it may also say what
// that package never would.
//
//	report := hostile.Attack(ctx, "127.0.0.1:29500", 300, 10_000) // every kind in turn, paced
//	if report.Kept > 0 { … }                                      // somebody was let stay
//
// A [Target] says more about the job: its run id and size, for callers who pretend to belong to it. Without a secret such a
// caller does belong to it for all a coordinator can tell, so leave RunID empty there: the attack then makes one up.
package hostile

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// Patience is how long a stranger waits to be thrown out before it counts as kept: the protocol's 10 s, time to hear a
// refusal out, and what a loaded machine adds.
const Patience = 16 * time.Second

// maxOpen bounds the strangers that are connected at the same time, so that an attack does not run out of descriptors itself.
const maxOpen = 2048

// A Target is a port under attack, and what the attackers know of the job behind it.
type Target struct {
	Addr     string // host:port, or @name for an abstract Unix-domain socket
	RunID    string // of the job; "": unknown, a wrong one is made up
	Size     int    // ranks of the job; 0: 4 is assumed
	Secret   []byte // of the job, for the kind that has it but belongs to another run; nil: that kind makes one up
	Recorded [][]byte
	// Recorded is what honest diallers have sent, each from its first byte, for replays; a [Tap] gathers it. Empty: a handshake
	// made up by the attack is sent again and again.

	Kinds []Kind // which to send, in turn; nil: all
}

// A Report counts what became of the strangers.
type Report struct {
	Sent      int            // connections opened
	Refused   int            // that could not even connect
	Kept      int            // still connected after Patience, though the other end had every reason to hang up
	ByKind    map[string]int // opened, by name
	KeptKinds map[string]int // kept, by name
	Took      time.Duration
}

func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d hostile connections in %v, %d refused, %d kept:", r.Sent, r.Took.Round(time.Millisecond), r.Refused, r.Kept)
	for _, name := range slices.Sorted(maps.Keys(r.ByKind)) {
		fmt.Fprintf(&b, " %s %d", name, r.ByKind[name])
		if n := r.KeptKinds[name]; n > 0 {
			fmt.Fprintf(&b, " (kept %d)", n)
		}
	}
	return b.String()
}

// Attack sends n strangers of all kinds to addr, at most perSecond of them a second (0: as fast as they go), and returns when
// the last one has gone or ctx has ended.
func Attack(ctx context.Context, addr string, perSecond, n int) Report {
	return Target{Addr: addr}.Attack(ctx, perSecond, n)
}

// Attack is the function of that name for a target that more is known of.
func (t Target) Attack(ctx context.Context, perSecond, n int) Report {
	if t.RunID == "" {
		t.RunID = "not " + rand.Text()
	}
	if t.Size == 0 {
		t.Size = 4
	}
	if t.Secret == nil {
		t.Secret = []byte(rand.Text())
	}
	kinds := t.Kinds
	if kinds == nil {
		kinds = Kinds
	}
	began := time.Now()
	r := Report{ByKind: map[string]int{}, KeptKinds: map[string]int{}}
	var mu sync.Mutex
	var wg sync.WaitGroup
	open := make(chan struct{}, maxOpen)
	for i := range n {
		if pace(ctx, began, perSecond, i) != nil {
			break
		}
		open <- struct{}{}
		k := kinds[i%len(kinds)]
		wg.Go(func() {
			defer func() { <-open }()
			connected, kept := t.send(ctx, k)
			mu.Lock()
			defer mu.Unlock()
			if !connected {
				r.Refused++
				return
			}
			r.Sent++
			r.ByKind[k.Name]++
			if kept {
				r.Kept++
				r.KeptKinds[k.Name]++
			}
		})
	}
	wg.Wait()
	r.Took = time.Since(began)
	return r
}

// pace waits until connection i is due.
func pace(ctx context.Context, began time.Time, perSecond, i int) error {
	if perSecond > 0 {
		due := time.NewTimer(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(perSecond))))
		defer due.Stop()
		select {
		case <-due.C:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// send is one stranger's life: it connects, does what its kind does, and then waits to be thrown out.
func (t *Target) send(ctx context.Context, k Kind) (connected, kept bool) {
	network := "tcp"
	if strings.HasPrefix(t.Addr, "@") {
		network = "unix"
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, t.Addr)
	if err != nil {
		return false, false
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	conn.SetDeadline(time.Now().Add(Patience))
	if k.Do(ctx, t, conn) {
		return true, false
	}
	return true, !endsWithin(conn) && ctx.Err() == nil
}

// endsWithin reads to the end of conn, and tells whether it came before the deadline.
func endsWithin(conn net.Conn) bool {
	var sink [4 << 10]byte
	for {
		_, err := conn.Read(sink[:])
		if err == nil {
			continue
		}
		e, ok := err.(net.Error)
		return !ok || !e.Timeout()
	}
}
