// Package memnet is a network in memory: memberlist transports that reach each
// other without sockets, over links that lose, delay, duplicate and reorder
// packets and that can be cut and healed.
//
// Packets behave like UDP: a full receiver drops them, and nobody is told.
// Streams behave like TCP: a dial or a write over a cut link hangs until the
// link heals or the deadline passes; what is lost is sent again after TCP's
// time-outs; a dial to an address where nothing listens is refused at once.
//
// Waiting is done with channels and package time only, so a whole network runs
// inside a testing/synctest bubble.
package memnet

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"
)

// Link says what happens to packets and streams in one direction between two
// hosts. The zero Link is perfect.
type Link struct {
	// Loss, Duplicate and Reorder are shares of packets, 0 to 1; segments of streams
	// suffer Loss. A reordered packet is held back by one to three more Delays (at
	// least a millisecond).
	Loss, Duplicate, Reorder float64
	// Delay is one way, Jitter a random part added to it.
	Delay, Jitter time.Duration
	// As firewalls have it: no packets arrive, or no streams that are opened in this direction.
	NoPackets, NoStreams bool
}

// Traffic counts what a Network has carried.
type Traffic struct {
	Packets, PacketBytes uint64 // sent, whether or not they arrived
	Dropped              uint64 // packets lost: by Loss, a cut, a full or absent receiver
	Streams, StreamBytes uint64
}

// Network connects transports. It is safe for concurrent use.
type Network struct {
	mu      sync.Mutex
	rnd     *rand.Rand
	hosts   map[netip.AddrPort]*Transport
	all     Link
	links   map[pair]Link
	cuts    map[pair]bool
	groups  map[netip.Addr]int
	changed chan struct{} // closed and replaced when links are cut or healed
	traffic Traffic
}

type pair struct{ from, to netip.Addr }

// New returns a network without hosts. The seed decides which packets suffer.
func New(seed uint64) *Network {
	return &Network{
		rnd:     rand.New(rand.NewPCG(seed, seed)),
		hosts:   map[netip.AddrPort]*Transport{},
		links:   map[pair]Link{},
		cuts:    map[pair]bool{},
		changed: make(chan struct{}),
	}
}

// Listen returns a transport at addr. An address that is taken is an error.
func (n *Network) Listen(addr netip.AddrPort) (*Transport, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hosts[addr] != nil {
		return nil, fmt.Errorf("listen on %v: address already in use", addr)
	}
	t := newTransport(n, addr)
	n.hosts[addr] = t
	return t, nil
}

// SetAll gives every link that SetLink has not set the properties of l.
func (n *Network) SetAll(l Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = l
}

// SetLink sets one direction of one link.
func (n *Network) SetLink(from, to netip.Addr, l Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.links[pair{from, to}] = l
}

// CutOneWay stops everything from one host to another; the way back stays.
func (n *Network) CutOneWay(from, to netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cuts[pair{from, to}] = true
	n.wake()
}

// Cut stops everything between two hosts.
func (n *Network) Cut(a, b netip.Addr) {
	n.CutOneWay(a, b)
	n.CutOneWay(b, a)
}

// Partition lets hosts reach only the hosts of their own group. Hosts in no
// group form one more. It replaces an earlier Partition and leaves Cuts alone.
func (n *Network) Partition(groups ...[]netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.groups = map[netip.Addr]int{}
	for i, g := range groups {
		for _, a := range g {
			n.groups[a] = i + 1
		}
	}
	n.wake()
}

// Heal undoes every Cut and Partition.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.groups = nil
	clear(n.cuts)
	n.wake()
}

// Traffic returns the counts so far.
func (n *Network) Traffic() Traffic {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.traffic
}

func (n *Network) wake() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// up says whether the link carries anything now, and gives the channel that is
// closed when that may have changed.
func (n *Network) up(from, to netip.Addr) (bool, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.upLocked(from, to), n.changed
}

func (n *Network) upLocked(from, to netip.Addr) bool {
	return n.groups[from] == n.groups[to] && !n.cuts[pair{from, to}]
}

func (n *Network) linkLocked(from, to netip.Addr) Link {
	if l, ok := n.links[pair{from, to}]; ok {
		return l
	}
	return n.all
}

// delayLocked draws the delay of one packet or segment.
func (n *Network) delayLocked(l Link) time.Duration {
	d := l.Delay
	if l.Jitter > 0 {
		d += time.Duration(n.rnd.Int64N(int64(l.Jitter)))
	}
	return d
}
