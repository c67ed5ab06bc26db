package tcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// apart runs a coordinator of its own for a world of size ranks and returns where, and its result.
func apart(t *testing.T, cfg RendezvousConfig) (at string, result <-chan error) {
	ln := listener(t)
	done := make(chan error, 1)
	go func() { done <- Rendezvous(t.Context(), ln, cfg) }()
	return ln.Addr().String(), done
}

func apartWorld(at string, size int) []Config {
	cfgs := make([]Config, size)
	for r := range cfgs {
		cfgs[r] = Config{Rank: r, Size: size, Coordinator: at, Timeout: 30 * time.Second}
	}
	return cfgs
}

func TestRendezvousApart(t *testing.T) {
	t.Parallel()
	at, result := apart(t, RendezvousConfig{Size: 4, RunID: "x"})
	cfgs := apartWorld(at, 4) // rank 0 finds the address taken, by the coordinator
	for r := range cfgs {
		cfgs[r].RunID = "x"
	}
	meshes, errs := startAll(t, cfgs)
	noErrors(t, errs)
	if err := <-result; err != nil {
		t.Error(err)
	}
	if meshes[1].addr(0) == at {
		t.Error("rank 0 passes for the coordinator")
	}
}

func TestRendezvousApartFailures(t *testing.T) {
	t.Parallel()
	t.Run("missing", func(t *testing.T) {
		t.Parallel()
		at, result := apart(t, RendezvousConfig{Size: 3, Timeout: 300 * time.Millisecond})
		_, errs := startAll(t, apartWorld(at, 3)[1:])
		wantAll(t, append(errs, <-result), "missing: rank 0")
	})
	t.Run("sizes", func(t *testing.T) {
		t.Parallel()
		at, result := apart(t, RendezvousConfig{Size: 3})
		_, errs := startAll(t, apartWorld(at, 2)[:1])
		wantAll(t, append(errs, <-result), "sizes disagree: rank 0 (127.0.0.1:", "says 2, the coordinator says 3")
	})
	t.Run("foreign rank 0", func(t *testing.T) {
		t.Parallel()
		at, result := apart(t, RendezvousConfig{Size: 2, RunID: "a", Timeout: time.Second})
		_, errs := startAll(t, apartWorld(at, 2)[:1])
		wantAll(t, errs, `run id differs: rank 0 belongs to "", the coordinator to "a"`)
		wantAll(t, []error{<-result}, "missing: ranks 0, 1; a caller from 127.0.0.1:", `that said it was rank 0 was refused: run id differs: rank 0 belongs to ""`)
	})
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		ln := listener(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("interrupted"))
		wantAll(t, []error{Rendezvous(ctx, ln, RendezvousConfig{Size: 2})}, "interrupted")
	})
	t.Run("bad config", func(t *testing.T) {
		t.Parallel()
		for _, cfg := range []RendezvousConfig{{Size: 0}, {Size: -1}, {Size: 2, RunID: strings.Repeat("x", 999)}} {
			err := Rendezvous(t.Context(), listener(t), cfg)
			if e := (*ConfigError)(nil); !errors.As(err, &e) {
				t.Errorf("%+v: %v", cfg, err)
			}
		}
		err := Rendezvous(t.Context(), wide{listener(t)}, RendezvousConfig{Size: 2})
		if e := (*ConfigError)(nil); !errors.As(err, &e) || e.Field != "Insecure" {
			t.Errorf("a listener beyond loopback: %v", err)
		}
	})
}

// wide is a listener that says it listens everywhere.
type wide struct{ net.Listener }

func (wide) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4zero, Port: 5000} }

// TestRendezvousOnAnotherHostIsLate has a coordinator at an address that is not rank 0's, which comes after rank 0.
func TestRendezvousOnAnotherHostIsLate(t *testing.T) {
	t.Parallel()
	at := freePort(t)
	fake := machine()
	listen := fake.listen
	tried := make(chan struct{}, 1)
	fake.listen = func(ctx context.Context, network, address string) (net.Listener, error) {
		if address == at {
			select {
			case tried <- struct{}{}:
			default:
			}
			return nil, &net.OpError{Op: "listen", Net: network, Err: os.NewSyscallError("bind", syscall.EADDRNOTAVAIL)}
		}
		return listen(ctx, network, address)
	}
	result := make(chan error, 1)
	go func() {
		<-tried
		ln, err := net.Listen("tcp", at)
		if err == nil {
			err = Rendezvous(t.Context(), ln, RendezvousConfig{Size: 2})
		}
		result <- err
	}()
	cfgs := apartWorld(at, 2)
	cfgs[0].net = fake
	_, errs := startAll(t, cfgs)
	noErrors(t, errs)
	if err := <-result; err != nil {
		t.Error(err)
	}
}

func TestRoster(t *testing.T) {
	t.Parallel()
	r := newRoster(3, "the coordinator")
	come := func(rank, size int, addr string) *outcome {
		return r.admit(&member{rank: rank, size: size, addr: addr, reg: registration{info: peerInfo{tcp: addr}}})
	}
	if o := come(1, 3, "a:1"); o != nil {
		t.Fatal(o.text)
	}
	if !slices.Equal(r.missing(), []int{0, 2}) || r.full() {
		t.Errorf("missing %v", r.missing())
	}
	for _, bad := range []struct {
		rank, size int
		want       string
	}{
		{1, 3, "rank 1 is claimed twice: by a:1 and by b:1"},
		{0, 2, "sizes disagree: rank 0 (b:1) says 2, the coordinator says 3"},
		{7, 3, "rank 7 (b:1) does not exist among 3"},
	} {
		if o := come(bad.rank, bad.size, "b:1"); o == nil || o.text != bad.want {
			t.Errorf("%+v: %+v", bad, o)
		}
	}
	if o := r.timedOut("here"); o.code != outcomeMissing || o.text != "deadline passed here: missing: ranks 0, 2" {
		t.Errorf("%+v", o)
	}
	if o := r.report(r.members[1], &outcome{}); o != nil || r.fine != 0 {
		t.Errorf("a result before the table counts: %+v", o)
	}
	come(0, 3, "c:1")
	come(2, 3, "d:1")
	if !r.full() {
		t.Fatal("not full")
	}
	for rank, m := range r.members {
		o := r.report(m, &outcome{})
		if again := r.report(m, &outcome{}); rank < 2 && again != nil {
			t.Errorf("rank %d reported twice and counted twice", rank)
		}
		if (o != nil) != (rank == 2) {
			t.Errorf("after rank %d: %+v", rank, o)
		}
	}
}

func TestRankList(t *testing.T) {
	t.Parallel()
	for want, list := range map[string][]int{
		"rank 2":             {2},
		"ranks 2, 5":         {5, 2},
		"ranks 2, 3":         {2, 3},
		"ranks 0–4, 7, 9–11": {0, 1, 2, 3, 4, 7, 9, 10, 11},
	} {
		if got := rankList(list); got != want {
			t.Errorf("%v: %q, want %q", list, got, want)
		}
	}
}

// samples are the messages of the start-up protocol.
func samples() map[kind][]byte {
	peer := peerInfo{tcp: "10.0.0.1:5000", unix: "@goccl-x", host: [hostIDSize]byte{1, 2}, shared: true}
	return map[kind][]byte{
		kindHello:     (&hello{purpose: purposeLink, class: 3, from: 1, to: 2, size: 3, runID: "run", group: 9, epoch: 1}).payload(),
		kindChallenge: (&challenge{role: roleApart, nonce: [nonceSize]byte{5}}).payload(),
		kindProof:     make([]byte, proofSize),
		kindAccept:    make([]byte, proofSize),
		kindReject:    refuse("no: %s", "really").payload(),
		kindRegister:  (&registration{info: peer, problem: "none", options: []option{{"a", "1"}, {"b", "\x00"}}}).payload(),
		kindWaiting:   waitingPayload([]int{1, 7}),
		kindTable:     (&table{world: [16]byte{9}, peers: []peerInfo{peer, {tcp: "x:1"}}}).payload(),
		kindResult:    (&outcome{}).payload(),
		kindVerdict:   (&outcome{code: outcomeMissing, ranks: []int{2}, text: "missing: rank 2"}).payload(),
		kindLobby:     (&lobbyNote{size: 3, epoch: 4}).payload(),
		kindAdmit:     (&admission{epoch: 5, rank: 1, table: table{world: [16]byte{9}, peers: []peerInfo{peer, {tcp: "x:1"}}}}).payload(),
		kindRedirect:  redirectPayload([]string{"10.0.0.1:5000", "host:2"}),
	}
}

// decode reads a payload of any kind and writes it again.
func decode(k kind, p []byte) (again []byte, err error) {
	switch k {
	case kindHello:
		v, err := decodeHello(version, p)
		return v.payload(), err
	case kindChallenge:
		v, err := decodeChallenge(p)
		return v.payload(), err
	case kindProof, kindAccept:
		if len(p) != proofSize {
			return nil, errors.New("malformed")
		}
		return p, nil
	case kindReject:
		v, err := decodeRejection(p)
		return v.payload(), err
	case kindRegister:
		v, err := decodeRegistration(p)
		return v.payload(), err
	case kindWaiting:
		v, err := decodeWaiting(p)
		return waitingPayload(v), err
	case kindTable:
		v, err := decodeTable(p, 2)
		if err != nil {
			return nil, err
		}
		return v.payload(), nil
	case kindResult, kindVerdict:
		v, err := decodeOutcome(p)
		return v.payload(), err
	case kindLobby:
		v, err := decodeLobbyNote(p)
		return v.payload(), err
	case kindAdmit:
		v, err := decodeAdmission(p)
		return v.payload(), err
	case kindRedirect:
		v, err := decodeRedirect(p)
		return redirectPayload(v), err
	}
	return nil, fmt.Errorf("kind %d", k)
}

func TestMessages(t *testing.T) {
	t.Parallel()
	for k, p := range samples() {
		h, got, err := readMessage(bytes.NewReader(append(message(k, p), "more"...)))
		if err != nil || h.kind != k || !bytes.Equal(got, p) {
			t.Errorf("kind %d: %+v, %x, %v", k, h, got, err)
		}
		again, err := decode(k, p)
		if err != nil || !bytes.Equal(again, p) {
			t.Errorf("kind %d: %x became %x, %v", k, p, again, err)
		}
		for cut := range len(p) {
			if _, err := decode(k, p[:cut]); err == nil {
				t.Errorf("kind %d: cut to %d of %d bytes and accepted", k, cut, len(p))
			}
		}
		if _, err := decode(k, append(slices.Clone(p), 0)); err == nil {
			t.Errorf("kind %d: accepted with a byte too many", k)
		}
		if len(p) > maxPayload[k] {
			t.Errorf("kind %d: %d bytes", k, len(p))
		}
	}
	want := &outcome{code: outcomeFailed, ranks: []int{1}, text: "a  b?"}
	got, err := decodeOutcome((&outcome{code: outcomeFailed, ranks: []int{1}, text: "a\n\x1bb\xff"}).payload())
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("control characters: %+v, %v", got, err)
	}
	if _, err := decodeOutcome([]byte("\x01\x00\x00\x02\x00\x1b\x5b")); err == nil {
		t.Error("an escape sequence in a text was accepted")
	}
}

// TestLengthIsNotTrusted announces a large payload that never comes.
func TestLengthIsNotTrusted(t *testing.T) {
	head := message(kindTable, make([]byte, maxPayload[kindTable]))[:headerSize+10]
	const rounds = 100
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range rounds {
		if _, _, err := readMessage(bytes.NewReader(head)); err == nil {
			t.Error("a message that ends early was accepted")
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / rounds; each > 16<<10 {
		t.Errorf("10 bytes of an announced MiB made us allocate %d bytes", each)
	}
}
