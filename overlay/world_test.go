package overlay

import (
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
)

const (
	me    = cluster.NodeID("00000000000000aa")
	other = cluster.NodeID("00000000000000bb")
	third = cluster.NodeID("00000000000000cc")
)

// world is a Source over real cluster states: this host's and those of others,
// whose writes reach it at once.
type world struct {
	mu      sync.Mutex
	mine    *cluster.State
	others  map[cluster.NodeID]*cluster.State
	changed chan struct{}
	failed  func(string, ...any)
}

func newWorld(t interface {
	Fatalf(string, ...any)
},
) *world {
	return &world{
		mine: cluster.New(me), others: map[cluster.NodeID]*cluster.State{},
		changed: make(chan struct{}), failed: t.Fatalf,
	}
}

func (w *world) Snapshot() *cluster.Snapshot {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mine.Snapshot()
}

func (w *world) Watch() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed
}

// put writes bodies as this host, and by as another one, and returns the new Rev.
func (w *world) put(bodies ...cluster.Body) uint64 { return w.by(me, bodies...) }

func (w *world) by(host cluster.NodeID, bodies ...cluster.Body) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	writer := w.mine
	if host != me {
		if w.others[host] == nil {
			w.others[host] = cluster.New(host)
		}
		writer = w.others[host]
		w.merge(writer, w.mine)
	}
	for _, b := range bodies {
		if err := cluster.Validate(b); err != nil {
			w.failed("%v: %v", b.Key(), err)
		}
		writer.Put(b)
	}
	if host != me {
		w.merge(w.mine, writer)
	}
	close(w.changed)
	w.changed = make(chan struct{})
	return w.mine.Snapshot().Rev()
}

// end deletes a record as a host.
func (w *world) end(host cluster.NodeID, k cluster.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	writer := w.mine
	if host != me {
		writer = w.others[host]
		w.merge(writer, w.mine)
	}
	writer.Delete(k, now)
	if host != me {
		w.merge(w.mine, writer)
	}
}

func (w *world) merge(to, from *cluster.State) {
	var recs []cluster.Record
	for r := range from.Snapshot().Records() {
		recs = append(recs, r)
	}
	// Another host may refuse claims that a test makes without being the owner.
	if _, err := to.Merge(recs); err != nil && to == w.mine {
		w.failed("merge: %v", err)
	}
}

// hosts is the records of three hosts and their claims: this host seeds and gives
// the others a quarter of each network.
func (w *world) hosts() {
	for i, n := range []cluster.NodeID{me, other, third} {
		w.by(n, node(n, netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})))
	}
	w.put(cluster.Claim{Block: prefix("0.0.0.0/0"), Owner: me})
	w.put(
		cluster.Claim{Block: prefix("10.128.2.0/24"), Owner: other},
		cluster.Claim{Block: prefix("10.128.3.0/24"), Owner: third},
	)
}

func node(id cluster.NodeID, vtep netip.Addr) cluster.Node {
	return cluster.Node{
		ID: id, Name: "host-" + string(id[14:]), VTEP: vtep, Gossip: netip.AddrPortFrom(vtep, 7947),
		VXLANPort: 4789, MTU: 1500, Datapath: "userspace",
	}
}

func network(name string, vnid uint32) cluster.Network {
	return cluster.Network{Name: name, VNID: vnid}
}

func subnet(p, of, gateway string) cluster.Subnet {
	s := cluster.Subnet{Prefix: prefix(p), Network: of, Home: me}
	if gateway != "" {
		s.Gateway = addr(gateway)
	}
	return s
}

// endpoint makes one of host h, whose ID begins with twelve times the letter.
func endpoint(h cluster.NodeID, letter byte, network, address string) cluster.Endpoint {
	id := make([]byte, 64)
	for i := range id {
		id[i] = letter
	}
	return cluster.Endpoint{
		ID: string(id), Network: network, Host: h, Addrs: []netip.Addr{addr(address)}, MAC: macOf(letter).String(),
	}
}

func macOf(letter byte) net.HardwareAddr { return net.HardwareAddr{0x02, 0x42, 0, 0, 0, letter} }

func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }
func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func del(t *testing.T, w *world, b cluster.Body) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.mine.Delete(b.Key(), now); !ok {
		t.Fatalf("%v was not there", b.Key())
	}
	close(w.changed)
	w.changed = make(chan struct{})
}
