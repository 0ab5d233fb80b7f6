// Package strongswan tells the strongSwan daemon of this host (charon) with which other hosts it is to have IPsec for what
// the switch sends, by its vici socket. The daemon exchanges keys (IKEv2) and sets the kernel's policies and states.
package strongswan

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Sockets are where the daemon may answer: on the host, and as the managed plugin sees it.
var Sockets = []string{"/run/charon.vici", "/host/run/charon.vici"}

// Peer is another host, and how this one and it know each other.
type Peer struct {
	Name        string     // of the connection; one a peer, made of letters and digits
	Here, There netip.Addr // the addresses between which VXLAN goes
	Key         []byte     // its public key: see CheckPublic
}

func (p Peer) equal(o Peer) bool {
	return p.Name == o.Name && p.Here == o.Here && p.There == o.There && string(p.Key) == string(o.Key)
}

// prefix begins the names of our connections: what has another name is somebody else's.
const prefix = "grapevine-"

// Session is a conversation with the daemon, which ends when that does. One goroutine has it.
type Session struct {
	line line
	told map[string]Peer // by the name of the connection
	key  string          // what it calls this host's key
	// begun is when keys were last begun to be exchanged, by connection and child.
	begun map[string]time.Time
}

// ErrNone is why there is no session where no daemon runs.
var ErrNone = errors.New("strongSwan does not run")

// Open begins one.
func Open(ctx context.Context) (*Session, error) {
	socket := Sockets[0]
	for _, s := range Sockets {
		if _, err := os.Stat(s); err == nil {
			socket = s
			break
		}
	}
	return open(ctx, socket)
}

func open(ctx context.Context, socket string) (*Session, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("%w: nobody answers at %s", ErrNone, socket)
	case err != nil:
		return nil, fmt.Errorf("speak to strongSwan at %s: %w", socket, err)
	}
	return &Session{line: line{conn, bufio.NewReader(conn)}, told: map[string]Peer{}, begun: map[string]time.Time{}}, nil
}

// Close ends it. What the daemon was told stays.
func (s *Session) Close() { _ = s.line.Close() }

// patience is how long the daemon may take for an answer; it has threads for that alone.
const patience = 10 * time.Second

func (s *Session) call(command string, in section) (section, error) {
	out, _, err := s.line.call(command, "", in)
	if err != nil {
		return nil, fmt.Errorf("tell strongSwan (%s): %w", command, err)
	}
	return out, nil
}

// Set has the daemon know these peers, and none that it was told before, for UDP to a port both ways. It changes nothing
// where that is so: what is under way goes on. What a peer cannot be told keeps no other from it.
func (s *Session) Set(own *ecdsa.PrivateKey, port uint16, peers []Peer) error {
	public, err := Public(own)
	if err != nil {
		return err
	}
	if err := s.setKey(own); err != nil {
		return err
	}
	have, err := s.call("get-conns", nil)
	if err != nil {
		return err
	}
	there := have.list("conns")
	var errs []error
	for _, p := range peers {
		name := prefix + p.Name
		if was, is := s.told[name]; is && was.equal(p) && slices.Contains(there, name) {
			continue
		}
		if _, err := s.call("load-conn", section{{name, connect(p, public, port)}}); err != nil {
			errs = append(errs, err)
			continue
		}
		s.told[name] = p
	}
	for _, name := range s.ours(there) {
		if !slices.ContainsFunc(peers, func(p Peer) bool { return prefix+p.Name == name }) {
			errs = append(errs, s.unload(name))
		}
	}
	return errors.Join(errs...)
}

// Purge ends all that a daemon was told, if there is one, and returns what that was.
func Purge(ctx context.Context) (gone []string, err error) {
	s, err := Open(ctx)
	if errors.Is(err, ErrNone) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return s.purge()
}

func (s *Session) purge() (gone []string, err error) {
	have, err := s.call("get-conns", nil)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, name := range s.ours(have.list("conns")) {
		if err := s.unload(name); err != nil {
			errs = append(errs, err)
			continue
		}
		gone = append(gone, "strongSwan's connection "+name)
	}
	return gone, errors.Join(errs...)
}

// ours are those of the daemon's connections that an agent has told it.
func (s *Session) ours(names []string) (list []string) {
	for _, name := range names {
		if strings.HasPrefix(name, prefix) {
			list = append(list, name)
		}
	}
	return list
}

// unload ends what there is with a peer that is none any more.
func (s *Session) unload(name string) error {
	if _, err := s.call("unload-conn", section{{"name", name}}); err != nil {
		return err
	}
	delete(s.told, name)
	_, _ = s.call("terminate", section{{"ike", name}, {"force", "yes"}, {"timeout", "-1"}}) // an error where there is nothing to end
	return nil
}

// setKey gives the daemon this host's key, if it has it not.
func (s *Session) setKey(own *ecdsa.PrivateKey) error {
	have, err := s.call("get-keys", nil)
	if err != nil {
		return err
	}
	if slices.Contains(have.list("keys"), s.key) {
		return nil
	}
	der, err := x509.MarshalECPrivateKey(own)
	if err != nil {
		return err
	}
	loaded, err := s.call("load-key", section{{"type", "any"}, {"data", string(der)}})
	if err != nil {
		return err
	}
	s.key = loaded.text("id")
	return nil
}

// The names of what is exchanged keys for, with one peer: what this host sends, and what it takes.
const sent, taken = "sent", "taken"

// Exchange begins to exchange keys where there are none, and says with how many of our peers this host knows who they are,
// and with how many it has keys, both ways. Of two hosts the one with the lower address begins: both would have twice as many
// keys. The other one's first packet has it begin as well (trap); but the kernel asks for keys once in 165 seconds, and that
// may have been too early for one of the two to know the other.
func (s *Session) Exchange(peers []Peer) (known, keyed int, err error) {
	_, list, err := s.line.call("list-sas", "list-sa", nil)
	if err != nil {
		return 0, 0, fmt.Errorf("ask strongSwan what it has established: %w", err)
	}
	stages := map[string]stage{}
	for _, m := range list {
		for _, f := range m {
			sa, _ := f.value.(section)
			stages[f.name] = stages[f.name].and(sa)
		}
	}
	var errs []error
	for _, p := range peers {
		name := prefix + p.Name
		at := stages[name]
		known += one(at.known)
		keyed += one(at.sent && at.taken)
		child := sent
		if at.sent {
			child = taken
		}
		if at.sent && at.taken || at.connecting && !at.known || p.There.Less(p.Here) || time.Since(s.begun[name+child]) < again {
			continue
		}
		s.begun[name+child] = time.Now()
		if _, err := s.call("initiate", section{{"ike", name}, {"child", child}, {"timeout", "-1"}}); err != nil {
			errs = append(errs, err)
		}
	}
	return known, keyed, errors.Join(errs...)
}

// again is how soon the exchange of the same keys is begun once more.
const again = 3 * time.Second

// stage is how far this host is with a peer.
type stage struct{ connecting, known, sent, taken bool }

func (g stage) and(sa section) stage {
	g.known = g.known || sa.text("state") == "ESTABLISHED"
	g.connecting = g.connecting || sa.text("state") == "CONNECTING"
	children, _ := sa.get("child-sas").(section)
	for _, f := range children {
		if child, _ := f.value.(section); child.text("state") == "INSTALLED" {
			g.sent = g.sent || child.text("name") == sent
			g.taken = g.taken || child.text("name") == taken
		}
	}
	return g
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

// connect is a peer in the words of swanctl.conf(5). Who it is its key alone says: no name, no certificate, no word that both
// know. Policies are there before keys are (trap), and the first packet has keys exchanged. VXLAN goes to one port from any
// port, which are two policies each way: one of what this host sends, one of what it takes. The algorithms are those
// that every strongSwan has, and FIPS 140-3 allows. Packets have numbers of 64 bits (ESN).
func connect(p Peer, own []byte, port uint16) section {
	way := func(local, remote string) section {
		return section{
			{"mode", "transport"}, {"local_ts", []string{local}}, {"remote_ts", []string{remote}}, {"start_action", "trap"}, {"dpd_action", "trap"},
			{"esp_proposals", []string{"aes256gcm16-ecp384-esn"}}, {"replay_window", "1024"},
		}
	}
	by := func(key []byte) section { return section{{"auth", "pubkey"}, {"pubkeys", []string{string(key)}}} }
	there, all := fmt.Sprintf("dynamic[udp/%d]", port), "dynamic[udp]"
	return section{
		{"version", "2"}, {"local_addrs", []string{p.Here.Unmap().String()}}, {"remote_addrs", []string{p.There.Unmap().String()}},
		{"proposals", []string{"aes256gcm16-prfsha384-ecp384"}}, {"mobike", "no"}, {"dpd_delay", "10s"},
		{"local", by(own)}, {"remote", by(p.Key)},
		{"children", section{{sent, way(all, there)}, {taken, way(there, all)}}},
	}
}

// Public is the public key of a private one, as records have it (SubjectPublicKeyInfo, RFC 5280).
func Public(own *ecdsa.PrivateKey) ([]byte, error) { return x509.MarshalPKIXPublicKey(&own.PublicKey) }

// ErrKey is of what is no public key.
var ErrKey = errors.New("it is no public key of ECDSA on P-256")

// CheckPublic says whether it is one.
func CheckPublic(key []byte) error {
	k, err := x509.ParsePKIXPublicKey(key)
	if err != nil {
		return ErrKey
	}
	if e, is := k.(*ecdsa.PublicKey); !is || e.Curve != elliptic.P256() {
		return ErrKey
	}
	return nil
}
