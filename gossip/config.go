package gossip

import (
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/netip"
	"time"

	"github.com/hashicorp/memberlist"
)

// State is what is gossiped. Its methods are called from several goroutines,
// but never two MergeAlls at once.
type State interface {
	// Digest says what the State knows, in bytes that are equal if, and only if,
	// the knowledge is equal. They are not written to.
	Digest() []byte
	// Missing yields what the sender of digest lacks, in chunks of about max
	// bytes. They reach the peer's MergeAll in this order and without gaps, or end
	// early. Seconds may pass between two chunks: it must not hold a lock.
	Missing(digest []byte, max int) iter.Seq[[]byte]
	// MergeAll takes messages in that have come together, and returns of each the part
	// that was new (empty: none), which is passed on, and what was wrong with it (nil:
	// nothing). A message may have both a part and an error. It may keep msgs. An error with
	// a method Local() bool that returns true is this host's own, as of a full disk: nothing
	// is wrong with the message, which comes again.
	MergeAll(msgs [][]byte) (fresh [][]byte, errs []error)
	// Agreed is told that a peer's digest is equal to the State's: it knows nothing
	// that the State does not.
	Agreed()
}

// Peer is a host to remember over a restart.
type Peer struct {
	ID   string
	Addr netip.AddrPort
}

// Timing holds the intervals; a zero field means the default.
type Timing struct {
	Gossip   time.Duration // between rounds of pending broadcasts: 20ms
	Probe    time.Duration // between failure checks, one peer each: 1s
	PushPull time.Duration // between full exchanges of membership: 15s
	Digest   time.Duration // between comparisons of the digest, one peer each: 1s
	Rejoin   time.Duration // between rounds of dialling lost peers: 1s
	Beat     time.Duration // between beats to those who watch this host: 200ms
}

// Config is what New needs. Node and Keys are required.
type Config struct {
	// Node is the host's ID: 16 lower-case hexadecimal digits.
	Node string
	// Name is the host's name for people, cut to 64 bytes.
	Name string
	// Bind is where to listen, TCP and UDP. The zero value is 0.0.0.0:7947; port
	// 0 with an address takes any free port.
	Bind netip.AddrPort
	// Advertise is where peers reach this host, if not at Bind (NAT). Port 0 is
	// Bind's. The zero value is Bind, or a private address if that is unspecified.
	Advertise netip.AddrPort
	// Join lists hosts to find the cluster through: addresses or host names, each
	// with or without a port (default: Bind's). The own one may be among them.
	Join []string
	// Known lists the peers of an earlier run; SaveKnown, if set, is called with
	// all peers ever seen (but those that left) whenever they change: from one
	// goroutine, at most about once a second.
	Known     []Peer
	SaveKnown func([]Peer)
	// Keys is the keyring: AES keys of 16, 24 or 32 bytes. The first encrypts, all
	// decrypt.
	Keys [][]byte
	// ClusterID is the cluster this host is in, at most 64 bytes; "": none yet.
	ClusterID string
	// Run is greater in each run of this host than in all before, whatever the clock says: what
	// it said in an earlier run is not to be taken for later. 0: the clock's seconds.
	Run uint32
	// Timing is for tests and simulations.
	Timing Timing
	// Pulse says how long to wait for what is to be done again in d, so that the host does several such things in one
	// go; nil: d.
	Pulse func(d time.Duration) time.Duration
	// Awake is how long this host runs, the time that it slept included, from any point on; nil: as far as Go's clock tells.
	Awake func() time.Duration
	// Transport replaces the network; it then decides what Bind would have.
	Transport memberlist.Transport
	// Datagram, if set, is shown each UDP packet before memberlist is; true: it is taken.
	// Anybody may have sent it. It must neither block nor keep b.
	Datagram func(b []byte) bool
	// Sign signs bytes with the key of this host, and Signed says whether a signature is that
	// of the host with an ID; nil: any answer is a proof.
	Sign   func(b []byte) []byte
	Signed func(node string, b, signature []byte) bool
	// Left reports whether a host has said for itself, where nobody else could have, that it
	// goes for good (Gossip.Leave); nil: none has. It must not block.
	Left func(node string) bool
	// Log gets events; nil: slog.Default().
	Log *slog.Logger

	speaks versions // those of this program, but in tests
}

// Limits of what travels.
const (
	DefaultPort  = 7947
	MaxBroadcast = 1200     // bytes of a delta that fits a gossip packet
	MaxBody      = 16 << 20 // bytes of a call's request or response, or of a delta
	maxLabel     = 64       // bytes of a cluster ID or a name
	chunkSize    = 256 << 10
)

func (c *Config) check() error {
	if len(c.Node) != 16 || !isHex(c.Node) {
		return fmt.Errorf("gossip: node ID %q: want 16 lower-case hexadecimal digits", c.Node)
	}
	if len(c.Keys) == 0 {
		return errors.New("gossip: no gossip key: set one (GRAPEVINE_KEY), the same on every host")
	}
	for i, k := range c.Keys {
		if err := CheckKey(k); err != nil {
			return fmt.Errorf("key %d: %w", i+1, err)
		}
	}
	if len(c.ClusterID) > maxLabel {
		return fmt.Errorf("gossip: cluster ID of %d bytes: at most %d", len(c.ClusterID), maxLabel)
	}
	return nil
}

func (c *Config) setDefaults() {
	if !c.Bind.IsValid() {
		c.Bind = netip.AddrPortFrom(netip.IPv4Unspecified(), DefaultPort)
	}
	if len(c.Name) > maxLabel {
		c.Name = c.Name[:maxLabel]
	}
	if c.speaks == (versions{}) {
		c.speaks = versions{protoMin, protoMax}
	}
	if c.Run == 0 {
		c.Run = uint32(time.Now().Unix())
	}
	if c.Sign == nil || c.Signed == nil {
		c.Sign, c.Signed = func([]byte) []byte { return nil }, func(string, []byte, []byte) bool { return true }
	}
	if c.Left == nil {
		c.Left = func(string) bool { return false }
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	t := &c.Timing
	for d, def := range map[*time.Duration]time.Duration{
		&t.Gossip: 20 * time.Millisecond, &t.Probe: time.Second, &t.PushPull: 15 * time.Second,
		&t.Digest: time.Second, &t.Rejoin: time.Second, &t.Beat: 200 * time.Millisecond,
	} {
		if *d == 0 {
			*d = def
		}
	}
}

// again is how long to wait for what is to be done again in d.
func (c *Config) again(d time.Duration) time.Duration {
	if c.Pulse == nil {
		return d
	}
	return c.Pulse(d)
}

// anew is again for what all hosts do at times of their own: some of d, at random, where no pulse has them apart.
func (c *Config) anew(d time.Duration) time.Duration {
	if c.Pulse == nil {
		return jitter(d)
	}
	return c.Pulse(d)
}

// atMoment reports whether the host is at one of the moments, or just behind one, at which it does what is done again in d.
func (c *Config) atMoment(d time.Duration) bool {
	if c.Pulse == nil {
		return false
	}
	late := d - c.Pulse(d)
	return late >= 0 && late < d/50
}

func isHex(s string) bool {
	for _, c := range s {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// nodeID is a host's ID on the wire.
type nodeID [8]byte

func (id nodeID) String() string { return hex.EncodeToString(id[:]) }

// parseNode converts an ID that check or isHex has accepted.
func parseNode(s string) (id nodeID, err error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(id) {
		return id, fmt.Errorf("node ID %q: want 16 hexadecimal digits", s)
	}
	copy(id[:], b)
	return id, nil
}
