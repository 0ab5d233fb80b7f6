package strongswan

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

const charon = "/usr/lib/ipsec/charon" // Debian's strongswan-charon

// host is one with a daemon of its own.
type host struct {
	*linktest.NS
	t    *testing.T
	addr netip.Addr
	key  *ecdsa.PrivateKey
	dir  string // seen as /run by the daemon
	stop func()
	note note
	*Session
}

// note is one on no disk.
type note struct{ keys []string }

func (n *note) Load() ([]string, error) { return slices.Clone(n.keys), nil }
func (n *note) Save(keys []string) error {
	n.keys = slices.Clone(keys)
	return nil
}

func newHost(t *testing.T, addr string) *host {
	h := &host{NS: linktest.New(t), t: t, addr: netip.MustParseAddr(addr), key: newKey(t), dir: t.TempDir()}
	conf := "charon {\n load_modular = yes\n plugins {\n  include /etc/strongswan.d/charon/*.conf\n  stroke {\n   load = no\n  }\n }\n filelog {\n  stderr {\n   default = 1\n  }\n }\n}\n"
	if err := os.WriteFile(filepath.Join(h.dir, "strongswan.conf"), []byte(conf), 0o644); err != nil {
		t.Fatal(err)
	}
	return h
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// start begins the daemon, and a session with it.
func (h *host) start() {
	h.t.Helper()
	log, err := os.Create(filepath.Join(h.dir, "log"))
	if err != nil {
		h.t.Fatal(err)
	}
	cmd := exec.Command("unshare", "--mount", "sh", "-c", "mount --bind "+h.dir+" /run && exec "+charon)
	cmd.Env, cmd.Stderr, cmd.Stdout = append(os.Environ(), "STRONGSWAN_CONF="+h.dir+"/strongswan.conf"), log, log
	h.Do(func() { err = cmd.Start() })
	if err != nil {
		h.t.Fatal(err)
	}
	h.stop = func() {
		if h.stop != nil {
			h.stop = nil
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			_ = log.Close()
			_ = os.Remove(filepath.Join(h.dir, "charon.vici"))
			_ = os.Remove(filepath.Join(h.dir, "charon.pid"))
		}
	}
	stop := h.stop
	h.t.Cleanup(stop)
	h.eventually("the daemon answers", func() (err error) {
		h.Session, err = open(h.t.Context(), h.socket(), &h.note)
		return err
	})
}

func (h *host) socket() string { return filepath.Join(h.dir, "charon.vici") }

// anew is a session of another agent.
func (h *host) anew() {
	h.t.Helper()
	h.Close()
	var err error
	if h.Session, err = open(h.t.Context(), h.socket(), &h.note); err != nil {
		h.t.Fatal(err)
	}
}

// has are the names of the daemon's connections, and the IDs of its keys.
func (h *host) has() (conns, keys []string) {
	h.t.Helper()
	c, err := h.call("get-conns", nil)
	k, err2 := h.call("get-keys", nil)
	if err := errors.Join(err, err2); err != nil {
		h.t.Fatal(err)
	}
	return slices.Sorted(slices.Values(c.list("conns"))), slices.Sorted(slices.Values(k.list("keys")))
}

func (h *host) eventually(what string, f func() error) {
	h.t.Helper()
	var err error
	for range 600 {
		if err = f(); err == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	log, _ := os.ReadFile(filepath.Join(h.dir, "log"))
	h.t.Fatalf("not within a minute: %s: %v\n%s", what, err, log)
}

func (h *host) peer(o *host, key *ecdsa.PrivateKey) Peer {
	public, err := Public(key)
	if err != nil {
		h.t.Fatal(err)
	}
	return Peer{Name: fmt.Sprintf("%016x", o.addr.AsSlice()), Here: h.addr, There: o.addr, Key: public}
}

// knows begins the exchange, and says with how many it has come so far that both know who they are: here the kernel has no
// ESP, and takes no keys.
func (h *host) knows(want int, peers ...Peer) func() error {
	return func() error {
		if n, _, _, err := h.Exchange(peers); err != nil || n != want {
			return fmt.Errorf("%d are known, %v", n, err)
		}
		return nil
	}
}

func (h *host) set(peers ...Peer) {
	h.t.Helper()
	if refused, err := h.Set(h.key, 4789, peers); err != nil || len(refused) > 0 {
		h.t.Fatal(refused, err)
	}
}

// traps are the policies by which packets to the port wait for keys.
func (h *host) traps() (n int) {
	h.Do(func() {
		list, err := netlink.XfrmPolicyList(netlink.FAMILY_V4)
		if err != nil {
			h.t.Fatal(err)
		}
		for _, p := range list {
			if p.DstPort == 4789 && len(p.Tmpls) > 0 {
				n++
			}
		}
	})
	return n
}

// Two hosts exchange keys by what their records say, with strongSwan as Debian has it; one with another key is nobody; who
// is told no more has nothing left of it. What is an administrator's stays.
func TestSet(t *testing.T) {
	if _, err := os.Stat(charon); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("there is no strongSwan here: scripts/setup")
	}
	a, b := newHost(t, "10.9.0.1"), newHost(t, "10.9.0.2")
	linktest.Wire(t, "eth0", a.NS, b.NS, []string{"10.9.0.1/24"}, []string{"10.9.0.2/24"})
	a.start()
	b.start()
	if _, err := a.call("load-conn", section{{"office", connect(a.peer(b, newKey(t)), []byte("no key"), 4789)}}); err == nil {
		t.Error("what is no key is taken")
	}
	office := a.peer(b, newKey(t))
	office.There = netip.MustParseAddr("10.9.0.9")
	others := connect(office, mustPublic(t, a.key), 500)
	if _, err := a.call("load-conn", section{{"office", others}}); err != nil {
		t.Fatal(err)
	}

	// A thief of b's address has not its key.
	a.set(a.peer(b, b.key))
	b.set(b.peer(a, newKey(t)))
	if n := a.traps(); n != 2 {
		t.Errorf("%d policies wait for keys, want one each way", n)
	}
	_ = a.knows(0, a.peer(b, b.key))()
	b.eventually("who has another key is refused", func() error {
		log, err := os.ReadFile(filepath.Join(b.dir, "log"))
		if err == nil && !strings.Contains(string(log), "AUTH_FAILED") {
			return errors.New("nobody is refused yet")
		}
		return err
	})
	if err := errors.Join(a.knows(0, a.peer(b, b.key))(), b.knows(0, b.peer(a, newKey(t)))()); err != nil {
		t.Error(err)
	}

	b.set(b.peer(a, a.key))
	a.eventually("keys are exchanged", a.knows(1, a.peer(b, b.key)))
	b.eventually("both ways", b.knows(1, b.peer(a, a.key)))

	// Another agent says the same again, and all stays.
	id := func() (text string) {
		var list []section
		_, err := a.line.call("list-sas", "list-sa", nil, func(m section) { list = append(list, m) })
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			for _, f := range m {
				text += f.value.(section).text("uniqueid") + " "
			}
		}
		return text
	}
	before := id()
	a.Close()
	a.eventually("the daemon answers", func() (err error) {
		a.Session, err = open(t.Context(), a.socket(), &a.note)
		return err
	})
	a.set(a.peer(b, b.key))
	if after := id(); before == "" || after != before {
		t.Errorf("said again, keys are exchanged anew: %q, %q", before, after)
	}

	// One begun anew is told again.
	a.stop()
	if _, err := a.Set(a.key, 4789, nil); err == nil || Refused(err) {
		t.Error("a daemon that is dead answers")
	}
	if _, err := open(t.Context(), a.socket(), &a.note); err == nil || !strings.Contains(err.Error(), "strongSwan does not run") {
		t.Errorf("one that is dead: %v", err)
	}
	a.start()
	a.set(a.peer(b, b.key))
	a.eventually("keys are exchanged by a daemon that was begun anew", a.knows(1, a.peer(b, b.key)))

	// And out with it.
	if _, err := a.call("load-conn", section{{"office", others}}); err != nil {
		t.Fatal(err)
	}
	a.set(a.peer(b, b.key))
	if gone, err := a.purge(); err != nil || len(gone) != 2 {
		t.Errorf("removed: %v, %v", gone, err)
	}
	a.set(a.peer(b, b.key))
	a.set()
	a.eventually("nothing is left of who is no peer any more", func() error {
		var list []section
		_, err := a.line.call("list-sas", "list-sa", nil, func(m section) { list = append(list, m) })
		if err == nil && len(list) != 0 {
			err = fmt.Errorf("there is %v", list)
		}
		return err
	})
	if n := a.traps(); n != 0 {
		t.Errorf("%d policies are left", n)
	}
	if m, err := a.call("get-conns", nil); err != nil || fmt.Sprint(m.list("conns")) != "[office]" {
		t.Errorf("what is somebody else's: %v, %v", m, err)
	}
}

// An administrator's connections stay, whatever their names, while an agent begins, tells of others or of none any more, and is
// cleaned up after. Where no agent has told anything the daemon is not spoken to. The host's key goes with the rest.
func TestOthersStay(t *testing.T) {
	if _, err := os.Stat(charon); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("there is no strongSwan here: scripts/setup")
	}
	a := newHost(t, "10.9.0.1")
	a.start()
	former := Sockets
	Sockets = []string{a.socket()}
	t.Cleanup(func() { Sockets = former })
	public := mustPublic(t, a.key)
	at := func(addr string) Peer {
		return Peer{Name: fmt.Sprintf("%016x", netip.MustParseAddr(addr).AsSlice()), Here: a.addr, There: netip.MustParseAddr(addr), Key: mustPublic(t, newKey(t))}
	}
	// Some have our children, and names that are not ours; one has such a name, and a child of its own.
	like := connect(at("10.9.0.8"), public, 500)
	own := connect(at("10.9.0.9"), public, 500)
	own[len(own)-1].value = section{{"net", own[len(own)-1].value.(section)[0].value}}
	const formedName = prefix + "00000000deadbeef"
	others := []string{formedName, "grapevine-00000000DEADBEEF", "grapevine-a-b", "grapevine-host2", "office"}
	for _, name := range others {
		conn := like
		if name == formedName {
			conn = own
		}
		if _, err := a.call("load-conn", section{{name, conn}}); err != nil {
			t.Fatal(err)
		}
	}
	der, err := x509.MarshalECPrivateKey(newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := a.call("load-key", section{{"type", "any"}, {"data", string(der)}})
	if err != nil {
		t.Fatal(err)
	}
	want := func(when string, conns []string, keys ...string) {
		t.Helper()
		conns, keys = slices.Sorted(slices.Values(append(conns, others...))), slices.Sorted(slices.Values(append(keys, theirs.text("id"))))
		if c, k := a.has(); !slices.Equal(c, conns) || !slices.Equal(k, keys) {
			t.Errorf("%s there are %v and the keys %v, want %v and %v", when, c, k, conns, keys)
		}
	}
	purge := func(n int) {
		t.Helper()
		if gone, err := Purge(t.Context(), &a.note); err != nil || len(gone) != n || len(a.note.keys) > 0 {
			t.Errorf("purged: %v, %v; noted is %v", gone, err, a.note.keys)
		}
	}
	purge(0)
	want("where nothing was told", nil)
	// Even one that looks like ours in all is not, where nothing was told.
	if _, err := a.call("load-conn", section{{prefix + "0000000000000001", like}}); err != nil {
		t.Fatal(err)
	}
	purge(0)
	want("where nothing was told", []string{prefix + "0000000000000001"})

	if _, err := a.call("unload-conn", section{{"name", prefix + "0000000000000001"}}); err != nil {
		t.Fatal(err)
	}
	id, err := keyID(a.key)
	if err != nil {
		t.Fatal(err)
	}
	two, three := at("10.9.0.2"), at("10.9.0.3")
	a.set(two, three)
	want("told", []string{prefix + two.Name, prefix + three.Name}, id)
	a.anew()
	a.set(two)
	want("told of one fewer by another agent", []string{prefix + two.Name}, id)

	// One with the name of a host is not replaced, and keeps no other from being told.
	taken := three
	taken.Name = "00000000deadbeef"
	if refused, err := a.Set(a.key, 4789, []Peer{taken, two}); err != nil || len(refused) != 1 || refused[0].Peer != taken.Name {
		t.Errorf("over one that is somebody else's: %v, %v", refused, err)
	}
	want("after that", []string{prefix + two.Name}, id)

	// Another key takes the place of the former.
	a.key = newKey(t)
	a.anew()
	a.set(two)
	other, err := keyID(a.key)
	if err != nil {
		t.Fatal(err)
	}
	want("with another key", []string{prefix + two.Name}, other)
	if !slices.Equal(a.note.keys, []string{other}) {
		t.Errorf("noted is %v", a.note.keys)
	}

	purge(2)
	want("cleaned up after", nil)
	a.set(two)
	a.stop()
	purge(0)
}

// A peer that the daemon refuses is told again after a pause that grows, or when it is another; the others are told once.
func TestRefused(t *testing.T) {
	if _, err := os.Stat(charon); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("there is no strongSwan here: scripts/setup")
	}
	a, b, c := newHost(t, "10.9.0.1"), newHost(t, "10.9.0.2"), newHost(t, "10.9.0.3")
	a.start()
	good, bad := a.peer(b, b.key), a.peer(c, c.key)
	bad.Key = []byte("no key")
	loads := func() int {
		log, err := os.ReadFile(filepath.Join(a.dir, "log"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(log), "added vici connection")
	}
	look := func(want int) {
		t.Helper()
		refused, err := a.Set(a.key, 4789, []Peer{bad, good})
		if err != nil || len(refused) != want || want > 0 && (refused[0].Peer != bad.Name || !Refused(refused[0].Err)) {
			t.Fatalf("refused: %v, %v", refused, err)
		}
	}
	for range 20 {
		look(1)
		if _, _, refused, err := a.Exchange([]Peer{bad, good}); err != nil || len(refused) > 0 {
			t.Fatal(refused, err)
		}
	}
	if n := loads(); n != 1 {
		t.Errorf("the other peer was told %d times", n)
	}
	// What cannot be begun is told until it is tried again, and that is soon.
	untold := a.peer(newHost(t, "10.9.0.4"), b.key)
	for range 2 {
		_, _, refused, err := a.Exchange([]Peer{bad, good, untold})
		if err != nil || len(refused) != 1 || refused[0].Peer != untold.Name || !Refused(refused[0].Err) {
			t.Fatalf("with no such connection: %v, %v", refused, err)
		}
	}
	name := prefix + bad.Name
	if r := a.refused[name]; r.pause != firstPause {
		t.Errorf("it was asked again within its pause: %v", r.pause)
	}
	for want := 2 * firstPause; want < 2*lastPause; want *= 2 {
		r := a.refused[name]
		r.next = time.Now()
		a.refused[name] = r
		if look(1); a.refused[name].pause != min(want, lastPause) {
			t.Errorf("the pause is %v, want %v", a.refused[name].pause, want)
		}
	}
	bad.Key = good.Key
	look(0)
	if len(a.refused) > 0 {
		t.Errorf("refused are %v", a.refused)
	}
	// A name that nobody could tell to be ours again is told to nobody.
	bad.Name = "host3"
	if look(1); loads() != 2 {
		t.Errorf("told were %d", loads())
	}
}

func mustPublic(t *testing.T, key *ecdsa.PrivateKey) []byte {
	public, err := Public(key)
	if err != nil {
		t.Fatal(err)
	}
	return public
}

func TestCheckPublic(t *testing.T) {
	if err := CheckPublic(mustPublic(t, newKey(t))); err != nil {
		t.Error(err)
	}
	other, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := x509.MarshalPKIXPublicKey(&other.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range [][]byte{nil, {}, []byte("key"), wrong} {
		if CheckPublic(bad) == nil {
			t.Errorf("%x is taken", bad)
		}
	}
}

// A message is read as it was written, and what is none is an error.
func TestMessage(t *testing.T) {
	m := connect(Peer{Here: netip.MustParseAddr("10.9.0.1"), There: netip.MustParseAddr("10.9.0.2"), Key: []byte{0, 6, 2, 255}}, []byte("own"), 4789)
	b := encode(nil, m)
	got, rest, err := decode(b, 0)
	if err != nil || len(rest) != 0 || !reflect.DeepEqual(got, m) {
		t.Errorf("read: %v, %v", got, err)
	}
	for n := range b {
		if n > 0 {
			_, _, _ = decode(b[:n], 0) // does not panic
		}
	}
	for _, bad := range []string{"\x02", "\x01\x01a", "\x03\x01a\x00\x05b", "\x03\x09a", "\x04\x01a\x05\x00\x01b", "\x07", strings.Repeat("\x01\x01a", 50)} {
		if _, _, err := decode([]byte(bad), 0); err == nil {
			t.Errorf("%q is a message", bad)
		}
	}
}

// TestStrangersExchangesAreNotKept: whoever sends the daemon the first packet of an exchange of keys, and nothing more, is in what it tells
// of for half a minute. It was 31 MB of the agent for 50,000 of them, as long as it asked.
func TestStrangersExchangesAreNotKept(t *testing.T) {
	at, there := net.Pipe()
	defer at.Close()
	const strangers, most = 50000, 8 << 20
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	peer := Peer{Name: strings.Repeat("0", 16), Here: netip.MustParseAddr("10.9.0.1"), There: netip.MustParseAddr("10.9.0.2")}
	daemon, before, kept := line{there, bufio.NewReader(there)}, heap(), make(chan uint64, 1)
	tell := func(name, state string) error {
		long := strings.Repeat("x", 300) // what it says of one has some more fields
		m := section{{name, section{{"uniqueid", "1"}, {"state", state}, {"initiator-spi", long}}}}
		return daemon.send(event, "list-sa", m)
	}
	go func() {
		defer close(kept)
		defer there.Close()
		hear := func() error {
			var head [4]byte
			if _, err := io.ReadFull(daemon.in, head[:]); err != nil {
				return err
			}
			_, err := daemon.in.Discard(int(binary.BigEndian.Uint32(head[:])))
			return err
		}
		if hear() != nil {
			return
		}
		if _, err := there.Write([]byte{0, 0, 0, 1, eventConfirm}); err != nil || hear() != nil {
			return
		}
		for range strangers {
			if tell("(unnamed)", "CONNECTING") != nil {
				return
			}
		}
		kept <- heap()
		_ = tell(prefix+peer.Name, "ESTABLISHED")
	}()
	s := &Session{line: line{at, bufio.NewReader(at)}}
	_, _, _, err := s.Exchange([]Peer{peer})
	if n, told := <-kept; !told || n > before+most {
		t.Errorf("of %d strangers %d kB were kept (%v)", strangers, (n-before)>>10, told)
	}
	if err == nil {
		t.Error("the daemon is gone, and nothing is said")
	}
}

func FuzzMessage(f *testing.F) {
	f.Add(encode(nil, connect(Peer{Here: netip.MustParseAddr("10.9.0.1"), There: netip.MustParseAddr("10.9.0.2"), Key: []byte{1}}, []byte("own"), 4789)))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, _, err := decode(b, 0)
		if again, _, err2 := decode(encode(nil, s), 0); err == nil && (err2 != nil || !reflect.DeepEqual(again, s)) {
			t.Errorf("%v becomes %v, %v", s, again, err2)
		}
	})
}
