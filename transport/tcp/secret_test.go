package tcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccl/goccl/internal/hostile"
	"github.com/goccl/goccl/transport"
)

var theSecret = []byte("correct horse battery staple")

func withSecret(cfgs []Config) []Config {
	for r := range cfgs {
		cfgs[r].Secret = theSecret
	}
	return cfgs
}

// TestSecret uses every kind of connection under a secret, with rank 0 and with a process of its own as coordinator.
func TestSecret(t *testing.T) {
	t.Parallel()
	for _, apart := range []bool{false, true} {
		cfgs := withSecret(world(t, 3))
		var coordinated sync.WaitGroup
		if apart {
			ln := cfgs[0].Listener
			cfgs[0].Listener = nil
			coordinated.Go(func() {
				if err := Rendezvous(t.Context(), ln, RendezvousConfig{Size: 3, Secret: theSecret}); err != nil {
					t.Error(err)
				}
			})
		}
		meshes, errs := startAll(t, cfgs)
		noErrors(t, errs)
		coordinated.Wait()
		conn, err := meshes[2].dial(t.Context(), 1, transport.PointToPoint, 77)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		_, err = sayHello(t, &mesh{host: &host{}, peers: meshes[1].peers, world: meshes[1].world}, func(*hello) {})
		if r := (*rejection)(nil); !errors.As(err, &r) || !strings.Contains(r.text, "rank 1 has no secret, the rank at 127.0.0.1:") {
			t.Errorf("a link without the secret: %v", err)
		}
	}
}

// TestSecretsDiffer: a rank with another secret, or none, or one too many, hears which end has what; the others learn of it
// when their time is over.
func TestSecretsDiffer(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	for _, test := range []struct {
		ours, theirs []byte
		words        string
	}{
		{theSecret, []byte("another"), "the secrets differ, that of rank 1 and that of the coordinator"},
		{theSecret, nil, "rank 1 has no secret, the coordinator asks for one"},
		{nil, theSecret, "rank 1 has a secret, the coordinator has none"},
	} {
		all.Go(func() {
			var log lines
			cfgs := world(t, 3)
			for r := range cfgs {
				cfgs[r].Secret, cfgs[r].Timeout, cfgs[r].Logger = test.ours, 700*time.Millisecond, logger(&log)
			}
			cfgs[1].Secret, cfgs[1].Timeout = test.theirs, time.Minute
			_, errs := startAll(t, cfgs)
			wantAll(t, errs[1:2], "tcp: join at "+cfgs[1].Coordinator+": refused: "+test.words)
			others := []error{errs[0], errs[2]}
			wantAll(t, others, "missing: rank 1; a caller from 127.0.0.1:", " that said it was rank 1 was refused: "+test.words)
			for _, err := range others {
				if e := (*JoinError)(nil); !errors.As(err, &e) || !slices.Equal(e.Missing, []int{1}) {
					t.Errorf("%#v", err)
				}
			}
			said := fmt.Sprint(errs, log.String())
			if strings.Contains(said, string(theSecret)) || strings.Contains(said, "another") {
				t.Errorf("a secret was told: %s", said)
			}
		})
	}
	all.Wait()
}

// TestShortSecret: a secret that can be guessed is warned of once by every rank and by a coordinator apart, and works.
func TestShortSecret(t *testing.T) {
	t.Parallel()
	for secret, want := range map[string]int{"fifteen bytes..": 1, "sixteen bytes...": 0} {
		cfgs := world(t, 2)
		logs := make([]lines, 3)
		for r := range cfgs {
			cfgs[r].Secret, cfgs[r].Logger = []byte(secret), logger(&logs[r])
		}
		ln := cfgs[0].Listener
		cfgs[0].Listener = nil
		var coordinated sync.WaitGroup
		coordinated.Go(func() {
			if err := Rendezvous(t.Context(), ln, RendezvousConfig{Size: 2, Secret: []byte(secret), Logger: logger(&logs[2])}); err != nil {
				t.Error(err)
			}
		})
		_, errs := startAll(t, cfgs)
		noErrors(t, errs)
		coordinated.Wait()
		for i := range logs {
			said := logs[i].String()
			if strings.Count(said, "the secret is shorter than 16 bytes") != want || strings.Contains(said, secret) {
				t.Errorf("%q: log %d has %q, want %d warnings", secret, i, said, want)
			}
		}
	}
}

// TestUnprovedClaims: what anybody could say does not fail a start that has a secret, and is told when a rank is missing.
func TestUnprovedClaims(t *testing.T) {
	t.Parallel()
	for _, complete := range []bool{true, false} {
		cfgs := withSecret(world(t, 3))
		cfgs[0].Timeout = 2 * time.Second
		at := cfgs[1].Coordinator
		began := make(chan struct{})
		var errs []error
		var start sync.WaitGroup
		start.Go(func() {
			first := cfgs[:2]
			if !complete {
				_, errs = startAll(t, first)
				return
			}
			<-began
			_, errs = startAll(t, cfgs)
		})
		// The coordinator's listener queues these until it accepts.
		for _, c := range []struct {
			v  uint16
			as hello
		}{
			{9, hello{purpose: purposeRegister, from: 2, to: nobody, size: 3}},
			{9, hello{purpose: purposeRegister, from: 2, to: nobody, size: 3, runID: "another"}},
			{9, hello{purpose: purposeRegister, from: 1 << 31, to: nobody, size: 3}},
			{1, hello{purpose: purposeRegister, from: 0, to: nobody, size: 3}},
			{1, hello{purpose: purposeRegister, from: 0, to: nobody, size: 3, auth: 7}},
		} {
			conn, err := net.Dial("tcp", at)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.Write(messageOf(c.v, kindHello, c.as.payload()))
		}
		close(began)
		start.Wait()
		if complete {
			noErrors(t, errs)
			continue
		}
		wantAll(t, errs, "missing: rank 2; a caller from 127.0.0.1:", "that said it was rank 2 was refused: versions differ: it speaks start-up protocol 9")
	}
}

// TestHintsAreBounded: one for each rank, four in an error.
func TestHintsAreBounded(t *testing.T) {
	r := newRoster(8, "the test")
	for rank := range 100 {
		for range 3 {
			r.remember(newHint(&hello{from: uint32(rank)}, refuse("no"), "there"))
		}
	}
	r.remember(newHint(&hello{from: 1<<32 - 1}, refuse("no"), "there"))
	if len(r.hints) != 8 {
		t.Errorf("%d hints are kept", len(r.hints))
	}
	text := r.timedOut("here").text
	if strings.Count(text, "that said it was") != maxHints || !strings.Contains(text, "4 more callers") {
		t.Error(text)
	}
	delete(r.hints, 3)
	if got, want := r.hintsFor([]int{3, 4}), "; a caller from there that said it was rank 4 was refused: no"; got != want {
		t.Errorf("%q", got)
	}
}

// handshake runs both ends over a pipe and returns what each made of it; tamper, when not nil, changes messages under way.
func handshake(t *testing.T, near, far *credentials, tamper func(k kind, p []byte)) (dialler, acceptor error) {
	t.Helper()
	d, a := net.Pipe()
	toA, toD := net.Pipe()
	defer a.Close()
	relay := func(from, to net.Conn) {
		for {
			h, p, err := readMessage(from)
			if err != nil {
				to.Close()
				return
			}
			if tamper != nil {
				tamper(h.kind, p)
			}
			to.Write(messageOf(h.version, h.kind, p))
		}
	}
	go relay(a, toA)
	go relay(toA, a)
	accepted := make(chan error, 1)
	go func() {
		s := newServer(far, roleRank, orDiscard(nil), map[purpose]handler{purposeLink: counting{}})
		_, _, err := s.receive(t.Context(), toD, "the test")
		accepted <- err
		toD.Close()
	}()
	h := &hello{purpose: purposeLink, class: 1, from: 1, to: 2, size: 3, runID: "run", group: 9, epoch: 4}
	_, dialler = near.introduce(t.Context(), d, "127.0.0.1", h, nil)
	d.Close()
	return dialler, <-accepted
}

// TestProofBindsEverything flips each bit of each message on its way: no handshake may survive it on both ends.
func TestProofBindsEverything(t *testing.T) {
	t.Parallel()
	cred := &credentials{secret: theSecret}
	if d, a := handshake(t, cred, cred, nil); d != nil || a != nil {
		t.Fatalf("untouched: %v, %v", d, a)
	}
	sizes := map[kind]int{}
	handshake(t, cred, cred, func(k kind, p []byte) { sizes[k] = len(p) })
	for k, size := range sizes {
		for i := range size {
			d, _ := handshake(t, cred, cred, func(now kind, p []byte) {
				if now == k {
					p[i] ^= 1 << (i % 8)
				}
			})
			if d == nil {
				t.Errorf("message %d, byte %d changed: the dialler is content", k, i)
			}
		}
	}
	if len(sizes) != 4 {
		t.Errorf("messages seen: %v", sizes)
	}
}

// TestProofIsNoAnswer: an end that sends the other's proof back is not believed.
func TestProofIsNoAnswer(t *testing.T) {
	t.Parallel()
	cred := &credentials{secret: theSecret}
	var proof []byte
	d, _ := handshake(t, cred, cred, func(k kind, p []byte) {
		switch k {
		case kindProof:
			proof = bytes.Clone(p)
		case kindAccept:
			copy(p, proof)
		}
	})
	if d == nil || !strings.Contains(d.Error(), "does not have the secret") || !lasting(d) {
		t.Errorf("%v", d)
	}
}

// TestReplay records how a start went and plays it to the running group, and to the next start of the same run.
func TestReplay(t *testing.T) {
	t.Parallel()
	ln := listener(t)
	cfgs := withSecret(world(t, 2))
	tap := hostile.NewTap(ln, cfgs[0].Listener.Addr().String())
	defer tap.Close()
	cfgs[1].Coordinator = ln.Addr().String()
	meshes, errs := startAll(t, cfgs)
	noErrors(t, errs)
	recorded := tap.Recorded()
	if len(recorded) == 0 || len(recorded[0]) < 2*headerSize+100 {
		t.Fatalf("recorded %x", recorded)
	}
	next := withSecret(world(t, 2))
	next[0].Timeout = 700 * time.Millisecond
	for _, target := range []string{meshes[0].addr(0), next[0].Listener.Addr().String()} {
		conn, err := net.Dial("tcp", target)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.Write(recorded[0])
	}
	_, errs = startAll(t, next[:1])
	wantAll(t, errs, "missing: rank 1", "that said it was rank 1 was refused: the secrets differ")
}

// TestSpecProof checks proofs against a peer written from SPEC.md: only its run id may be wrong.
func TestSpecProof(t *testing.T) {
	t.Parallel()
	var log lines
	cfgs := withSecret(world(t, 2))
	cfgs[0].Logger = logger(&log)
	meshes, errs := startAll(t, cfgs)
	noErrors(t, errs)
	target := hostile.Target{Addr: meshes[1].addr(0), Secret: theSecret, Kinds: hostile.Named("wrong run id")}
	if r := target.Attack(t.Context(), 0, 1); r.Sent != 1 || r.Kept != 0 {
		t.Errorf("%v", r)
	}
	eventually(t, "the refusal in the log", func() (bool, string) {
		return strings.Contains(log.String(), "refused: run id differs"), log.String()
	})
}

// TestSecretAllowsExposure: who has a secret needs no Insecure, and who has not is told what to set.
func TestSecretAllowsExposure(t *testing.T) {
	t.Parallel()
	cfg := Config{Rank: 1, Size: 2, Coordinator: "10.1.2.3:5000", Listen: "0.0.0.0"}
	_, err := cfg.check()
	if err == nil || !strings.Contains(err.Error(), "set Secret (GOCCL_SECRET_FILE) or TLS, or Insecure") {
		t.Errorf("without: %v", err)
	}
	cfg.Secret = theSecret
	p, err := cfg.check()
	if err != nil || !p.open() || p.cred.believes() {
		t.Errorf("with: %v", err)
	}
	cfg.Secret = []byte{}
	_, err = cfg.check()
	if e := (*ConfigError)(nil); !errors.As(err, &e) || e.Field != "Secret" || e.Value != "" {
		t.Errorf("empty: %v", err)
	}
	ln, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err = Rendezvous(ctx, ln, RendezvousConfig{Size: 2, Secret: theSecret})
	wantAll(t, []error{err}, "missing: ranks 0, 1")
}

// TestSecretIsCopied: the caller may wipe it after the call.
func TestSecretIsCopied(t *testing.T) {
	secret := bytes.Clone(theSecret)
	c, err := newCredentials(secret, nil)
	if err != nil {
		t.Fatal(err)
	}
	clear(secret)
	if !bytes.Equal(c.secret, theSecret) {
		t.Error("the caller's memory is used")
	}
	if c, err := newCredentials(nil, nil); c != nil || err != nil || c.auth() != authNone {
		t.Errorf("%v, %v", c, err)
	}
	if !bytes.Equal((*credentials)(nil).proof(labelProof, nil, nil, nil), make([]byte, proofSize)) {
		t.Error("proofs without a secret are not zero")
	}
}
