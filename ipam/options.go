package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Limits of prefix lengths of networks: at most a /8 (a /16 of IPv6), and at least
// one address for a container (two of IPv6) besides the network's own, the gateway and, in IPv4,
// broadcast.
const (
	minBits4 = 8
	maxBits4 = 30
	minBits6 = 16
	maxBits6 = 126
)

// Bits6 is the prefix length of a new IPv6 network that does not ask for one: that of
// every link (RFC 4291, 2.5.1).
const Bits6 = 64

// PoolID names a pool in Docker's calls. It says all that is needed to serve
// them, so that nothing depends on what this agent remembers: "grapevine/" +
// prefix + optionally "/" + range.
type PoolID struct {
	Prefix netip.Prefix
	Range  netip.Prefix // --ip-range; invalid: the whole prefix
}

const poolPrefix = "grapevine/"

func (p PoolID) String() string {
	s := poolPrefix + p.Prefix.String()
	if p.Range.IsValid() {
		s += "/" + p.Range.String()
	}
	return s
}

// ParsePoolID parses what String returns.
func ParsePoolID(s string) (PoolID, error) {
	parts := strings.Split(strings.TrimPrefix(s, poolPrefix), "/")
	if !strings.HasPrefix(s, poolPrefix) || len(parts) != 2 && len(parts) != 4 {
		return PoolID{}, fmt.Errorf("pool ID %.100q is not one of grapevine's (%s10.1.0.0/16)", s, poolPrefix)
	}
	prefix, err := parsePool("pool", parts[0]+"/"+parts[1])
	if err != nil || len(parts) == 2 {
		return PoolID{Prefix: prefix}, err
	}
	return newPool(prefix, parts[2]+"/"+parts[3])
}

// newPool makes the ID of a pool with an --ip-range, which may be "".
func newPool(prefix netip.Prefix, ipRange string) (PoolID, error) {
	id := PoolID{Prefix: prefix}
	if ipRange == "" {
		return id, nil
	}
	r, err := parsePool("IP range", ipRange)
	if err != nil {
		return id, err
	}
	if !within(r, prefix) {
		return id, fmt.Errorf("IP range %s is not inside the subnet %s", r, prefix)
	}
	id.Range = r
	return id, nil
}

// parsePool wants a masked prefix; Docker masks what users write, or refuses it.
func parsePool(what, s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return p, fmt.Errorf("%s %.60q is not a prefix like 10.1.0.0/16: %w", what, s, err)
	case p.Addr().Is4In6():
		return p, fmt.Errorf("%s %s is an IPv4-mapped one; write it as IPv4", what, s)
	case p != p.Masked():
		return p, fmt.Errorf("%s %s has host bits set; write %s", what, s, p.Masked())
	}
	return p, nil
}

// hosts6 are the prefixes of IPv6 that are of no network: cluster.SecureRange, pipeline.HostRanges and nat.Callers. Those of IPv4 are
// reserved by themselves.
var hosts6 = netip.MustParsePrefix("fd67:7261:7065::/48")

// checkSubnet refuses a --subnet that cannot be a network of containers.
func checkSubnet(p netip.Prefix) error {
	a := p.Addr()
	switch {
	case a.Is6() && (p.Bits() < minBits6 || p.Bits() > maxBits6):
		return fmt.Errorf("subnet %s: the prefix length must be between %d and %d", p, minBits6, maxBits6)
	case a.Is6() && (a.As16()[0] == 0 || a.IsMulticast() || a.IsLinkLocalUnicast()):
		return fmt.Errorf("subnet %s is reserved (RFC 6890); choose a unique local one, such as one in fd00::/8", p)
	case a.Is6() && !within(p, pages) && !within(p, ulas):
		return fmt.Errorf("subnet %s is of a range that nobody is assigned (RFC 4291, 2.4); choose a unique local one, such as one in fd00::/8", p)
	case a.Is6() && v4Pages.Overlaps(p):
		return fmt.Errorf("subnet %s is of 6to4, which has been given up (RFC 7526); choose a unique local one, such as one in fd00::/8", p)
	case a.Is6() && hosts6.Overlaps(p):
		return fmt.Errorf("subnet %s has addresses of %s, by which hosts speak to each other and to containers; choose another one in fd00::/8", p, hosts6)
	case a.Is6():
		return nil
	case p.Bits() < minBits4 || p.Bits() > maxBits4:
		return fmt.Errorf("subnet %s: the prefix length must be between %d and %d", p, minBits4, maxBits4)
	case a.IsMulticast(), a.IsLoopback(), a.IsLinkLocalUnicast(), a.As4()[0] == 0, a.As4()[0] >= 240:
		return fmt.Errorf("subnet %s is reserved (RFC 6890); choose a private one, such as one in 10.0.0.0/8", p)
	}
	return nil
}

// options are the --ipam-opt values.
type options struct {
	bits     int // prefix length of a new IPv4 network
	bits6    int // and of an IPv6 one
	hostBits int // hostsubnetlength
}

// knownOptions are the names of --ipam-opt. Docker tells all of them for each of a
// network's pools, so that the two lengths have names of their own.
var knownOptions = []string{"hostsubnetlength", "prefixlen", "prefixlen6"}

// parseOptions reads --ipam-opt values over the defaults. Docker's own options
// ("com.docker...") are ignored.
func parseOptions(given map[string]string, defaults options) (options, error) {
	o := defaults
	for name, value := range given {
		var err error
		switch {
		case name == "prefixlen":
			o.bits, err = ParseBits(name, value, minBits4, maxBits4)
		case name == "prefixlen6":
			o.bits6, err = ParseBits(name, value, minBits6, maxBits6)
		case name == "hostsubnetlength":
			o.hostBits, err = ParseBits(name, value, 0, 24)
		case strings.HasPrefix(name, "com.docker."):
		default:
			err = fmt.Errorf("IPAM option %.60q is unknown; known are %s", name, strings.Join(slices.Sorted(slices.Values(knownOptions)), ", "))
		}
		if err != nil {
			return o, err
		}
	}
	return o, nil
}

// ParseBits reads a number of bits between low and high.
func ParseBits(name, value string, low, high int) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("option %s=%.60q: must be a number between %d and %d", name, value, low, high)
	}
	return n, nil
}

// CheckHostBits refuses a hostsubnetlength that leaves no room in a network.
func CheckHostBits(p netip.Prefix, hostBits int) error {
	if hostBits == 0 {
		return nil
	}
	if room := p.Addr().BitLen() - p.Bits(); hostBits < 2 || hostBits > room {
		return fmt.Errorf("hostsubnetlength=%d does not fit into the subnet %s, which has %d bits for hosts; it must be between 2 and %d", hostBits, p, room, room)
	}
	return nil
}
