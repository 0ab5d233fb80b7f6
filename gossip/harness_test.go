package gossip

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grapevine-net/grapevine/gossip/memnet"
)

// toy is a State: a map that only grows, in which the higher version of a key
// wins. Its digest is all keys with their versions.
type toy struct {
	mu     sync.Mutex
	m      map[string]entry
	merges int
	noRoom bool
	unkept int
}

type entry struct {
	Version int
	Value   string
}

func newToy() *toy { return &toy{m: map[string]entry{}} }

func (s *toy) Digest() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	versions := map[string]int{}
	for k, e := range s.m {
		versions[k] = e.Version
	}
	b, _ := json.Marshal(versions)
	return b
}

func (s *toy) Missing(digest []byte, limit int) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		have := map[string]int{}
		_ = json.Unmarshal(digest, &have)
		s.mu.Lock()
		all := maps.Clone(s.m)
		s.mu.Unlock()
		chunk, size := map[string]entry{}, 0
		for _, k := range slices.Sorted(maps.Keys(all)) {
			if e := all[k]; e.Version > have[k] {
				chunk[k] = e
				size += len(k) + len(e.Value)
			}
			if size > limit {
				if !yield(encodeToy(chunk)) {
					return
				}
				chunk, size = map[string]entry{}, 0
			}
		}
		if len(chunk) > 0 {
			yield(encodeToy(chunk))
		}
	}
}

func (s *toy) Merge(msg []byte) ([]byte, error) {
	var in map[string]entry
	if err := json.Unmarshal(msg, &in); err != nil {
		return nil, fmt.Errorf("toy: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.noRoom {
		s.unkept++
		return nil, fullDiskError{}
	}
	s.merges++
	fresh := map[string]entry{}
	for k, e := range in {
		if k == "panic" {
			panic("toy")
		}
		if e.Version > s.m[k].Version {
			s.m[k], fresh[k] = e, e
		}
	}
	if len(fresh) == 0 {
		return nil, nil
	}
	return encodeToy(fresh), nil
}

// fullDiskError is an error of this host's own.
type fullDiskError struct{}

func (fullDiskError) Error() string { return "no space left" }
func (fullDiskError) Local() bool   { return true }

// full fills the disk, or empties it.
func (s *toy) full(yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noRoom = yes
}

// refused is how many messages a full disk did not take.
func (s *toy) refused() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unkept
}

func (s *toy) MergeAll(msgs [][]byte) (fresh [][]byte, errs []error) {
	for _, m := range msgs {
		part, err := s.Merge(m)
		fresh, errs = append(fresh, part), append(errs, err)
	}
	return fresh, errs
}

func (s *toy) Agreed() {}

func (s *toy) put(k, v string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := entry{s.m[k].Version + 1, v}
	s.m[k] = e
	return encodeToy(map[string]entry{k: e})
}

func (s *toy) get(k string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m[k].Value
}

func encodeToy(m map[string]entry) []byte {
	b, _ := json.Marshal(m)
	return b
}

// host is a Gossip that runs.
type host struct {
	*Gossip
	state *toy
	id    string
	ip    netip.Addr
	known []Peer // as last saved
	stop  func() // ends Run and waits for it; idempotent
	mu    sync.Mutex
}

// runs numbers the runs of all hosts: of several in one second, the clock's would be the same.
var runs atomic.Uint32

var testKey = []byte("0123456789abcdef0123456789abcdef")

func hostID(i int) string { return fmt.Sprintf("%016x", i+1) }

func hostAddr(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i / 250), byte(i%250 + 1)}), DefaultPort)
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// Leave says so in the state, too, as an agent does in its signed record.
func (h *host) Leave(ctx context.Context) error {
	h.Broadcast(h.state.put("left "+h.id, "yes"))
	return h.Gossip.Leave(ctx)
}

// toySignature stands for one with the key of a host.
func toySignature(node string, b []byte) []byte {
	sum := sha256.Sum256(append([]byte(node), b...))
	return sum[:]
}

// start runs host i on the network, joining host 0 unless change says otherwise.
func start(t *testing.T, n *memnet.Network, i int, change func(*Config)) *host {
	t.Helper()
	return begin(t, n, i, change, func(s *toy) State { return s })
}

// startWith is start with another State around the host's.
func startWith(t *testing.T, n *memnet.Network, i int, around func(*toy) State) *host {
	t.Helper()
	return begin(t, n, i, nil, around)
}

func begin(t *testing.T, n *memnet.Network, i int, change func(*Config), around func(*toy) State) *host {
	t.Helper()
	h := &host{state: newToy(), id: hostID(i), ip: hostAddr(i).Addr()}
	cfg := Config{
		Node: h.id, Name: fmt.Sprintf("host%d", i), Bind: hostAddr(i), Keys: [][]byte{testKey},
		Join: []string{hostAddr(0).String()}, Log: quiet(),
		Run:       runs.Add(1),
		SaveKnown: func(p []Peer) { h.mu.Lock(); h.known = p; h.mu.Unlock() },
	}
	cfg.Sign = func(b []byte) []byte { return toySignature(cfg.Node, b) }
	cfg.Signed = func(node string, b, sig []byte) bool { return bytes.Equal(sig, toySignature(node, b)) }
	cfg.Left = func(node string) bool { return h.state.get("left "+node) != "" }
	if i == 0 {
		cfg.ClusterID = "alpha"
	}
	if change != nil {
		change(&cfg)
	}
	if cfg.Transport == nil && n != nil {
		tr, err := n.Listen(hostAddr(i))
		if err != nil {
			t.Fatal(err)
		}
		cfg.Transport = tr
	}
	var err error
	if h.Gossip, err = New(cfg, around(h.state)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	h.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run %s: %v", h.id, err)
		}
	})
	t.Cleanup(h.stop)
	return h
}

// bubble runs a test in fake time. At its end all hosts are stopped, and
// memberlist's own timers run out, so that all goroutines end: synctest fails
// the test if one does not.
func bubble(t *testing.T, f func(t *testing.T, net *memnet.Network)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) })
		f(t, memnet.New(1))
	})
}

// raced is whether the race detector looks on.
var raced bool

// notRaced skips a test with so many hosts that the race detector gives up: it has no room for all of their goroutines.
func notRaced(t *testing.T, hosts int) {
	t.Helper()
	const most = 12
	if raced && hosts > most {
		t.Skipf("the race detector has no room for the goroutines of %d hosts", hosts)
	}
}

// cluster starts n hosts and waits until they all see each other.
func cluster(t *testing.T, net *memnet.Network, n int) []*host {
	t.Helper()
	notRaced(t, n)
	var hosts []*host
	for i := range n {
		hosts = append(hosts, start(t, net, i, nil))
	}
	defer func() {
		if t.Failed() {
			for _, h := range hosts {
				t.Log(h.id, len(h.Alive()), h.ClusterID(), h.Stats())
			}
		}
	}()
	within(t, 20*time.Second, "all hosts see each other", func() bool { return allSee(hosts, n-1) })
	return hosts
}

func allSee(hosts []*host, peers int) bool {
	for _, h := range hosts {
		if len(h.Alive()) != peers {
			return false
		}
	}
	return true
}

func allHave(hosts []*host, key, value string) func() bool {
	return func() bool {
		for _, h := range hosts {
			if h.state.get(key) != value {
				return false
			}
		}
		return true
	}
}

// within fails the test if ok does not hold after d. It returns the time it took.
func within(t *testing.T, d time.Duration, what string, ok func() bool) time.Duration {
	t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if ok() {
			return time.Since(began)
		}
		if time.Since(began) > d {
			t.Fatalf("not within %v: %s", d, what)
		}
	}
}
