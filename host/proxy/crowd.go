package proxy

import "net/netip"

// crowd counts who is served by where they are. Where there is no room for one more, somebody goes, of the network and the address
// that have most: so a flood from few places keeps out nobody but itself.
type crowd[K comparable] struct {
	at        map[K]netip.Addr
	networks  map[netip.Prefix]int
	addresses map[netip.Addr]int
}

func newCrowd[K comparable]() crowd[K] {
	return crowd[K]{map[K]netip.Addr{}, map[netip.Prefix]int{}, map[netip.Addr]int{}}
}

func (c *crowd[K]) enter(k K, from netip.Addr) {
	c.at[k] = from
	c.networks[network(from)]++
	c.addresses[from]++
}

// leave may be called again of who has left.
func (c *crowd[K]) leave(k K) {
	from, there := c.at[k]
	if !there {
		return
	}
	delete(c.at, k)
	less(c.networks, network(from))
	less(c.addresses, from)
}

func less[K comparable](of map[K]int, k K) {
	if of[k]--; of[k] == 0 {
		delete(of, k)
	}
}

// drawn is how many are looked at to find who goes. Who has half of the places is not among so many once in 65,536 times, and
// to look at all costs more than a packet should.
const drawn = 16

// goes draws some, and returns the one whose network, and in it whose address, has most; of two with as many rather says which.
func (c *crowd[K]) goes(rather func(a, b K) bool) (one K) {
	n := 0
	for k := range c.at { // from anywhere on
		if more := c.more(k, one); n == 0 || more > 0 || more == 0 && rather(k, one) {
			one = k
		}
		if n++; n == drawn {
			break
		}
	}
	return one
}

// more compares how many there are where two are.
func (c *crowd[K]) more(a, b K) int {
	from, other := c.at[a], c.at[b]
	if d := c.networks[network(from)] - c.networks[network(other)]; d != 0 {
		return d
	}
	return c.addresses[from] - c.addresses[other]
}

// network is what one who sends can have many addresses of: 64 bits of IPv6, but of the link's own addresses, which all there
// have, none.
func network(a netip.Addr) netip.Prefix {
	a = a.WithZone("")
	bits := a.BitLen()
	if a.Is6() && !a.IsLinkLocalUnicast() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // never an error of these
	return p
}
