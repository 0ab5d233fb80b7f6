// Package strongswan tells the strongSwan daemon of this host (charon) with which other hosts it is to have IPsec for what
// the switch sends, by its vici socket. The daemon exchanges keys (IKEv2) and sets the kernel's policies and states.
package strongswan

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha1"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
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
	Name        string     // of the connection; one a peer, its node ID: 16 hexadecimal digits, small ones
	Here, There netip.Addr // the addresses between which VXLAN goes
	Key         []byte     // its public key: see CheckPublic
}

func (p Peer) equal(o Peer) bool {
	return p.Name == o.Name && p.Here == o.Here && p.There == o.There && string(p.Key) == string(o.Key)
}

// prefix begins the names of our connections. By itself it proves nothing: see formed and mine.
const prefix = "grapevine-"

// formed reports whether a connection's name is one that an agent gives: an administrator's grapevine-host2 is not.
func formed(name string) bool {
	id, is := strings.CutPrefix(name, prefix)
	return is && len(id) == 16 && strings.Trim(id, "0123456789abcdef") == ""
}

// Note is where this host keeps, over restarts of the agent, which of its keys a daemon has been given, by their IDs. There are
// some as soon as a daemon may have been told something: where there are none, none of its connections is ours.
type Note interface {
	Load() (keys []string, err error)
	Save(keys []string) error // durably
}

// Refusal says that the daemon does not take what it is told of a peer.
type Refusal struct {
	Peer string // its name
	Err  error
}

// refused is a peer that the daemon does not take, and when it is asked again.
type refused struct {
	peer  Peer
	err   error
	pause time.Duration
	next  time.Time
}

// The daemon is asked again about one that it has refused after a pause, which doubles.
const (
	firstPause = 2 * time.Second
	lastPause  = time.Minute
)

// Session is a conversation with the daemon, which ends when that does. One goroutine has it.
type Session struct {
	line    line
	note    Note
	told    map[string]Peer // by the name of the connection
	refused map[string]refused
	// begun is when keys were last begun to be exchanged, by connection and child.
	begun map[string]attempt
}

// attempt is one to have keys exchanged, and why the daemon did not begin.
type attempt struct {
	at  time.Time
	err error
}

// ErrNone is why there is no session where no daemon runs.
var ErrNone = errors.New("strongSwan does not run")

// Open begins one.
func Open(ctx context.Context, note Note) (*Session, error) {
	socket := Sockets[0]
	for _, s := range Sockets {
		if _, err := os.Stat(s); err == nil {
			socket = s
			break
		}
	}
	return open(ctx, socket, note)
}

func open(ctx context.Context, socket string, note Note) (*Session, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("%w: nobody answers at %s", ErrNone, socket)
	case err != nil:
		return nil, fmt.Errorf("speak to strongSwan at %s: %w", socket, err)
	}
	return &Session{line: line{conn, bufio.NewReader(conn)}, note: note, told: map[string]Peer{}, refused: map[string]refused{}, begun: map[string]attempt{}}, nil
}

// Close ends it. What the daemon was told stays.
func (s *Session) Close() { _ = s.line.Close() }

// patience is how long the daemon may take for an answer; it has threads for that alone.
const patience = 10 * time.Second

func (s *Session) call(command string, in section) (section, error) {
	out, err := s.line.call(command, "", in, nil)
	if err != nil {
		return nil, fmt.Errorf("tell strongSwan (%s): %w", command, err)
	}
	return out, nil
}

// Set has the daemon know these peers, and none that it was told before, for UDP to a port both ways. It changes nothing
// where that is so: what is under way goes on. A peer that the daemon refuses keeps no other from it, and is told again after a
// pause.
func (s *Session) Set(own *ecdsa.PrivateKey, port uint16, peers []Peer) ([]Refusal, error) {
	public, err := Public(own)
	if err != nil {
		return nil, err
	}
	if err := s.setKey(own); err != nil {
		return nil, err
	}
	have, err := s.call("get-conns", nil)
	if err != nil {
		return nil, err
	}
	there := have.list("conns")
	wanted := map[string]bool{}
	var refusals []Refusal
	for _, p := range peers {
		name := prefix + p.Name
		wanted[name] = true
		if was, is := s.told[name]; is && was.equal(p) && slices.Contains(there, name) {
			continue
		}
		err := s.load(name, p, public, port, slices.Contains(there, name))
		if err != nil && !Refused(err) {
			return nil, err
		}
		if err != nil {
			refusals = append(refusals, Refusal{p.Name, err})
		}
	}
	maps.DeleteFunc(s.refused, func(name string, _ refused) bool { return !wanted[name] })
	for _, name := range there {
		if wanted[name] {
			continue
		}
		if _, err := s.unload(name); err != nil && !Refused(err) {
			return nil, err
		}
	}
	return refusals, nil
}

// load tells the daemon a peer, unless that was refused a moment ago.
func (s *Session) load(name string, p Peer, own []byte, port uint16, there bool) error {
	was, is := s.refused[name]
	if is = is && was.peer.equal(p); is && time.Now().Before(was.next) {
		return was.err
	}
	err := s.loadNow(name, p, own, port, there)
	if err == nil {
		delete(s.refused, name)
		s.told[name] = p
	} else if Refused(err) {
		now := refused{peer: p, err: err, pause: firstPause}
		if is {
			now.pause = min(2*was.pause, lastPause)
		}
		now.next = time.Now().Add(now.pause)
		s.refused[name] = now
	}
	return err
}

func (s *Session) loadNow(name string, p Peer, own []byte, port uint16, there bool) error {
	if !formed(name) {
		return refusedError("the host's ID " + p.Name + " is not of 16 hexadecimal digits")
	}
	if there { // an agent has told it, or it is not ours to replace
		mine, err := s.mine(name)
		if err != nil {
			return err
		}
		if !mine {
			return refusedError("strongSwan has a connection " + name + " already, which no agent has loaded: give it another name")
		}
	}
	_, err := s.call("load-conn", section{{name, connect(p, own, port)}})
	return err
}

// Purge ends all that a daemon was told, if there is one, and returns what that was. Where no daemon was ever told anything
// it speaks to none.
func Purge(ctx context.Context, note Note) (gone []string, err error) {
	if keys, err := note.Load(); err != nil || len(keys) == 0 {
		return nil, err
	}
	s, err := Open(ctx, note)
	if errors.Is(err, ErrNone) { // it had that in its memory alone
		return nil, note.Save(nil)
	}
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return s.purge()
}

func (s *Session) purge() (gone []string, err error) {
	keys, err := s.note.Load()
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	have, err := s.call("get-conns", nil)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, name := range have.list("conns") {
		was, err := s.unload(name)
		if err != nil && !Refused(err) {
			return gone, err // each word more would wait as long
		}
		if err != nil {
			errs = append(errs, err)
		} else if was {
			gone = append(gone, "strongSwan's connection "+name)
		}
	}
	for _, id := range keys {
		was, err := s.unloadKey(id)
		if err != nil && !Refused(err) {
			return gone, err
		}
		if err != nil {
			errs = append(errs, err)
		} else if was {
			gone = append(gone, "strongSwan's copy of this host's key "+id)
		}
	}
	if len(errs) == 0 {
		errs = append(errs, s.note.Save(nil))
	}
	return gone, errors.Join(errs...)
}

// mine reports whether a connection of the daemon's is one that an agent has told it: by its name, and by its children's.
func (s *Session) mine(name string) (bool, error) {
	if !formed(name) {
		return false, nil
	}
	found, others := false, false
	_, err := s.line.call("list-conns", "list-conn", section{{"ike", name}}, func(m section) {
		conn, is := m.get(name).(section)
		if !is {
			return
		}
		children, _ := conn.get("children").(section)
		ours := len(children) == 2 && children.get(sent) != nil && children.get(taken) != nil
		found, others = found || ours, others || !ours
	})
	if err != nil {
		return false, fmt.Errorf("ask strongSwan for its connection %s: %w", name, err)
	}
	return found && !others, nil
}

// unload ends what there is with a peer that is none any more, and reports whether there was such a one: no connection is
// touched that an agent has not loaded.
func (s *Session) unload(name string) (was bool, err error) {
	if mine, err := s.mine(name); err != nil || !mine {
		return false, err
	}
	if _, err := s.call("unload-conn", section{{"name", name}}); err != nil {
		return false, err
	}
	delete(s.told, name)
	_, err = s.call("terminate", section{{"ike", name}, {"force", "yes"}, {"timeout", "-1"}})
	if Refused(err) {
		err = nil // there is nothing to end
	}
	return true, err
}

// setKey gives the daemon this host's key, if it has it not, and takes from it those that were this host's before.
func (s *Session) setKey(own *ecdsa.PrivateKey) error {
	id, err := keyID(own)
	if err != nil {
		return err
	}
	noted, err := s.note.Load()
	if err != nil {
		return err
	}
	if !slices.Contains(noted, id) {
		noted = append(noted, id)
		if err := s.note.Save(noted); err != nil {
			return err
		}
	}
	have, err := s.call("get-keys", nil)
	if err != nil {
		return err
	}
	if !slices.Contains(have.list("keys"), id) {
		der, err := x509.MarshalECPrivateKey(own)
		if err != nil {
			return err
		}
		if _, err := s.call("load-key", section{{"type", "any"}, {"data", string(der)}}); err != nil {
			return err
		}
	}
	if len(noted) == 1 {
		return nil
	}
	for _, former := range noted {
		if former != id {
			if _, err := s.unloadKey(former); err != nil {
				return err
			}
		}
	}
	return s.note.Save([]string{id})
}

// unloadKey takes a key from the daemon, and reports whether it had it.
func (s *Session) unloadKey(id string) (was bool, err error) {
	have, err := s.call("get-keys", nil)
	if err != nil || !slices.Contains(have.list("keys"), id) {
		return false, err
	}
	_, err = s.call("unload-key", section{{"id", id}})
	return err == nil, err
}

// keyID is what the daemon calls a key: the SHA-1 of the public one's bits. It is a name, and proves nothing.
func keyID(own *ecdsa.PrivateKey) (string, error) {
	public, err := own.PublicKey.ECDH()
	if err != nil {
		return "", fmt.Errorf("find the ID of this host's key: %w", err)
	}
	sum := sha1.Sum(public.Bytes())
	return hex.EncodeToString(sum[:]), nil
}

// The names of what is exchanged keys for, with one peer: what this host sends, and what it takes.
const sent, taken = "sent", "taken"

// Exchange begins to exchange keys where there are none, and says with how many of our peers this host knows who they are,
// and with how many it has keys, both ways. Of two hosts the one with the lower address begins: both would have twice as many
// keys. The other one's first packet has it begin as well (trap); but the kernel asks for keys once in 165 seconds, and that
// may have been too early for one of the two to know the other.
func (s *Session) Exchange(peers []Peer) (known, keyed int, refusals []Refusal, err error) {
	stages := map[string]stage{}
	_, err = s.line.call("list-sas", "list-sa", nil, func(m section) {
		for _, f := range m {
			if sa, _ := f.value.(section); formed(f.name) {
				stages[f.name] = stages[f.name].and(sa)
			}
		}
	})
	if err != nil {
		return 0, 0, nil, fmt.Errorf("ask strongSwan what it has established: %w", err)
	}
	for _, p := range peers {
		name := prefix + p.Name
		at := stages[name]
		known += one(at.known)
		keyed += one(at.sent && at.taken)
		child := sent
		if at.sent {
			child = taken
		}
		if at.sent && at.taken || at.connecting && !at.known || p.There.Less(p.Here) {
			continue
		}
		if _, is := s.refused[name]; is {
			continue // Set says so
		}
		try := s.begun[name+child]
		if time.Since(try.at) >= again {
			_, err := s.call("initiate", section{{"ike", name}, {"child", child}, {"timeout", "-1"}})
			if err != nil && !Refused(err) {
				return 0, 0, nil, err
			}
			try = attempt{time.Now(), err}
			s.begun[name+child] = try
		}
		if try.err != nil {
			refusals = append(refusals, Refusal{p.Name, try.err})
		}
	}
	return known, keyed, refusals, nil
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
