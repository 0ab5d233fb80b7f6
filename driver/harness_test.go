package driver

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/driver/ports"
	"github.com/grapevine-net/grapevine/host/docker"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/host/store/storetest"
	"github.com/grapevine-net/grapevine/ipam"
	"github.com/grapevine-net/grapevine/replica"
)

const self = cluster.NodeID("00000000000000aa")

// machine stands for the host's kernel and switch: it holds the interfaces and
// ports that the driver made, and prints them.
type machine struct {
	mu     sync.Mutex
	links  map[string]string
	limits map[string]link.Limits
	noLag  error // what CanLag returns
	// received is what containers have sent, by the host's end.
	received map[string]uint64
	ports    map[string]string
	inside   map[string]string      // the resolver's sandboxes, by endpoint
	bound    map[ports.Binding]bool // of the host's ports
	led      []ports.Binding        // where packets go
	foreign  uint16                 // a port of another process
	broken   error                  // what Publish returns
	refuses  error                  // what Attach returns
	// attaching is called by Attach, if it is not nil; its error is Attach's.
	attaching func() error
	routes    map[string][]link.Via // by sandbox
	absent    bool                  // sandboxes are yet to come
}

func (m *machine) Routes(sandbox string, vias []link.Via) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.absent {
		return fs.ErrNotExist
	}
	m.routes[sandbox] = vias
	return nil
}

func newMachine() *machine {
	return &machine{links: map[string]string{}, limits: map[string]link.Limits{}, received: map[string]uint64{}, ports: map[string]string{}, inside: map[string]string{}, bound: map[ports.Binding]bool{}, routes: map[string][]link.Via{}}
}

// resolver is the machine's resolver.
type resolver struct{ *machine }

func (r resolver) Attach(id, key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inside[id] = key
}

func (r resolver) Detach(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.inside, id)
}

func (m *machine) Veth(host, peer string, mac net.HardwareAddr, mtu int, _ string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.links[host] = fmt.Sprintf("%s %s mtu %d", peer, mac, mtu)
	return nil
}

func (m *machine) Received(host string) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.received[host], nil
}

func (m *machine) Limit(host, sandbox string, limits link.Limits) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, there := m.links[host]; !there || sandbox == "" {
		return fmt.Errorf("interface %s with a peer in %q: %w", host, sandbox, link.ErrNotFound)
	}
	m.limits[host] = limits
	return nil
}

func (m *machine) CanLag() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.noLag
}

func (m *machine) SetMTU(host, sandbox string, mtu int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	what, _, found := strings.Cut(m.links[host], " mtu ")
	if !found || sandbox == "" {
		return fmt.Errorf("no interface %s with a peer in %q", host, sandbox)
	}
	m.links[host] = fmt.Sprintf("%s mtu %d", what, mtu)
	return nil
}

func (m *machine) Delete(host string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.links, host)
	return nil
}

func (m *machine) Exists(host string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.links[host] != ""
}

func (m *machine) Attach(_ context.Context, id, ifname string) error {
	if m.attaching != nil {
		if err := m.attaching(); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refuses != nil {
		return m.refuses
	}
	if _, ok := m.links[ifname]; !ok {
		return fmt.Errorf("no interface %s", ifname)
	}
	m.ports[id] = ifname
	return nil
}

func (m *machine) Detach(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.ports, id)
	return nil
}

func (m *machine) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var lines []string
	for name, what := range m.links {
		lines = append(lines, "link "+name+" "+what)
	}
	for id, name := range m.ports {
		lines = append(lines, fmt.Sprintf("port %.12s %s", id, name))
	}
	for id, key := range m.inside {
		lines = append(lines, fmt.Sprintf("resolver %.12s in %s", id, key))
	}
	for b := range m.bound {
		lines = append(lines, fmt.Sprintf("held %s/%s", b.Host, b.Proto))
	}
	for _, b := range m.led {
		lines = append(lines, fmt.Sprintf("led %s/%s to %s", b.Host, b.Proto, b.To))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// rig is a driver with all that is below it, but Docker and the switch.
type rig struct {
	*Driver
	ipam    *ipam.Driver
	machine *machine
	replica *replica.Replica
	now     time.Time
	life    storetest.Life
	reopen  func() // a new driver on the same disk and machine
	restart func() // a new agent, which knows what is on the disk
}

type alone struct{}

func (alone) Call(context.Context, string, string, []byte) ([]byte, error) {
	return nil, context.DeadlineExceeded
}
func (alone) Alive() []string { return nil }

func newRig(t testing.TB, dockerHost string) *rig {
	t.Helper()
	db, err := store.Open(filepath.Join(t.TempDir(), "state.db"))
	check(t, err)
	t.Cleanup(func() { _ = db.Close() })
	g := &rig{machine: newMachine(), now: time.Unix(1_700_000_000, 0)}
	now := func() time.Time { return g.now }
	log := slog.New(slog.DiscardHandler)
	var alloc *ipam.Allocator
	g.restart = func() {
		g.life = storetest.Life{}
		g.replica, err = replica.Open(db, self)
		check(t, err)
		file, told := storetest.DB{DB: db, Life: &g.life}, storetest.Replica{Replica: g.replica, Life: &g.life}
		alloc, err = ipam.New(ipam.Config{
			Self: self, CIDRs: func() []netip.Prefix {
				return []netip.Prefix{netip.MustParsePrefix("10.128.0.0/14"), netip.MustParsePrefix("fd12:3456:789a::/48")}
			}, Bits: 22, Now: now, Age: db.Age, Log: log,
		}, told, alone{}, ipam.StoreDisk{DB: file})
		check(t, err)
		g.ipam = ipam.NewDriver(alloc, func(p netip.Prefix) error { return g.Reannounce(p) },
			func(p netip.Prefix, exact bool) error { return g.MayLease(p, exact) })
		g.reopen = func() {
			g.Driver, err = New(Config{Self: self, Replicate: true, MTU: 1500, Now: now, Log: log},
				told, alloc, g.machine, g.machine, hostPorts{g.machine}, resolver{g.machine}, docker.New(dockerHost), file)
			check(t, err)
		}
		g.reopen()
	}
	g.restart()
	check(t, ipam.Seed(g.replica, self))
	return g
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// records prints the live records but claims and nodes.
func (g *rig) records() string {
	var lines []string
	for r := range g.replica.Snapshot().Records() {
		if r.Body == nil || r.Key.Kind == cluster.KindClaim || r.Key.Kind == cluster.KindNode {
			continue
		}
		line := r.Key.Kind.String() + " " + r.Key.ID
		switch b := r.Body.(type) {
		case cluster.Network:
			line += fmt.Sprintf(" vnid %d", b.VNID)
			if b.Removed {
				line += " removed"
			}
		case cluster.Subnet:
			line += fmt.Sprintf(" of %s gateway %s", b.Network, b.Gateway)
			for _, name := range slices.Sorted(maps.Keys(b.Aux)) {
				line += fmt.Sprintf(" %s=%s", name, b.Aux[name])
			}
		case cluster.Endpoint:
			line = fmt.Sprintf("endpoint %.12s on %s %v %s %s", b.ID, b.Network, b.Addrs, b.MAC, b.Name)
		}
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Join(lines, "\n")
}
