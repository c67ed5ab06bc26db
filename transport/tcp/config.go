package tcp

import (
	"crypto/tls"
	"log/slog"
	"net"
	"time"
)

// Config says who this rank is and how it meets the others. Rank, Size and Coordinator are needed, everything else has a
// default. A Config that cannot work is a [*ConfigError] before anything is opened where that can be told so early; a start
// that fails is a [*JoinError].
type Config struct {
	// Rank is this rank's number, 0 ≤ Rank < Size. Size is the same on all ranks.
	Rank, Size int

	// Coordinator is where the ranks meet: host:port, or several separated by commas that are tried in turn. Rank 0 listens
	// there unless a coordinator of its own (goccl rendezvous) answers already. Rank 0 needs none when Listener is set, nobody
	// does when Size is 1.
	Coordinator string

	// Listen is where this rank waits for the connections of other ranks: a host, or host:port, or host:first-last for the first
	// free port of a range; the host may be missing (":7000-7100"). Empty, or without a host: the local address of the route to
	// the coordinator; without a port: any. A wildcard host (0.0.0.0, ::) holds for rank 0's coordinator too.
	Listen string

	// Advertise is the host or host:port that other ranks dial, for a rank behind address translation. Empty: what Listen means.
	Advertise string

	// Interface restricts the choice of the address to listen on, when Listen names no host, or of the one to advertise, when
	// Listen is a wildcard: interface names separated by commas, each matching as a prefix. A leading ^ turns the list into one
	// of interfaces to avoid, a leading = asks for exact names (^= for both). Empty: any.
	Interface string

	// RunID keeps runs apart that share addresses: a rank of another run is refused. At most 128 bytes.
	RunID string

	// Listener is rank 0's own listening TCP socket, in place of one opened at Coordinator's address. The transport owns it from
	// the call on and closes it, also on failure.
	Listener net.Listener

	// Secret is shared by all ranks and the coordinator; nil: none. Both ends of every connection prove that they have it
	// (HMAC-SHA-256 over fresh random numbers of both and all that the connection is for), the dialler first. It is never sent,
	// logged or shown in an error, and copied, so that the caller may wipe it. Whoever listens in on a handshake can try guesses
	// at leisure: take 16 random bytes or more, fewer are warned of. Without TLS nothing protects what follows the handshake.
	Secret []byte

	// TLS puts every connection, Unix-domain ones too, under mutual TLS 1.3, set on all ranks and the coordinator; nil: no TLS. It
	// needs a certificate that serves both ends of a connection, and RootCAs or ClientCAs, which stand in for each other. It is
	// copied; in the copy the version is 1.3, a certificate of the caller is required and verified, there are no session tickets,
	// and ServerName, when empty, is the host that was dialled: as Coordinator names it, else as that rank advertises itself (for
	// a Unix-domain socket: its TCP address). A ServerName that is given is asked of both ends' certificates; without it a caller
	// gets in with any certificate of the CA, so that the CA must be the job's own. With InsecureSkipVerify the caller's checks
	// must do all that. A secret is proved inside, bound to the TLS connection.
	TLS *tls.Config

	// Insecure allows listening beyond loopback although there is neither secret nor TLS, hence nothing proves who connects.
	Insecure bool

	// Options must be equal on all ranks; the error for a difference names the option, both values and both ranks.
	Options map[string]string

	// Timeout bounds the start, together with the context: the earlier one ends it. Zero: 10 minutes; negative: the context only.
	Timeout time.Duration

	// Logger gets the address choice (info) and dropped strangers (warn). Nil: nothing is logged.
	Logger *slog.Logger

	// Link is how ranks of one host connect for collectives: "" or "auto" (Unix-domain socket where there are abstract ones),
	// "tcp", or "unix" (an error when some rank is on another host).
	Link string

	// Checksum adds a CRC-32C of the payload to every frame that this rank sends; receivers check whatever has one. Headers have
	// theirs always.
	Checksum bool

	net *network // nil: the machine's; tests replace it
}
