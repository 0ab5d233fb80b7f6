package config

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/grapevine-net/grapevine/encap"
)

type setter = func(c *Config, value string) error

func text(field func(*Config) *string) setter {
	return func(c *Config, v string) error {
		*field(c) = v
		return nil
	}
}

func path(field func(*Config) *string) setter {
	return func(c *Config, v string) error {
		if !filepath.IsAbs(v) {
			return fmt.Errorf("%q is not an absolute path: begin it with /", v)
		}
		*field(c) = filepath.Clean(v)
		return nil
	}
}

func number(field func(*Config) *int, low, high int) setter {
	return func(c *Config, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < low || n > high {
			return fmt.Errorf("%q is not a number from %d to %d", v, low, high)
		}
		*field(c) = n
		return nil
	}
}

// leastForgetAfter is more than it takes an agent to start again and be met by all others.
const leastForgetAfter = time.Minute

func setForgetAfter(c *Config, v string) error {
	d, err := time.ParseDuration(v)
	if err != nil || d != 0 && d < leastForgetAfter {
		return fmt.Errorf("%q is neither 0 (never) nor a time of at least %v, such as 72h or 90m", v, leastForgetAfter)
	}
	c.ForgetAfter = d
	return nil
}

func port(field func(*Config) *uint16) setter {
	return func(c *Config, v string) error {
		n, err := strconv.ParseUint(v, 10, 16)
		if err != nil || n == 0 {
			return fmt.Errorf("%q is not a port: use a number from 1 to 65535", v)
		}
		*field(c) = uint16(n)
		return nil
	}
}

func oneOf(field func(*Config) *string, values ...string) setter {
	return func(c *Config, v string) error {
		if !slices.Contains(values, v) {
			return fmt.Errorf("%q is unknown: use one of %s", v, strings.Join(values, ", "))
		}
		*field(c) = v
		return nil
	}
}

func onOff(field func(*Config) *bool) setter {
	return func(c *Config, v string) error {
		if v != "on" && v != "off" {
			return fmt.Errorf("%q is unknown: use on or off", v)
		}
		*field(c) = v == "on"
		return nil
	}
}

// setJoin leaves the port 0 where none is given; check fills it in.
func setJoin(c *Config, v string) error {
	c.Join = nil
	for item := range strings.SplitSeq(v, ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		at, err := netip.ParseAddrPort(item)
		if addr, plain := netip.ParseAddr(item); plain == nil {
			at, err = netip.AddrPortFrom(addr, 0), nil
		}
		if err != nil || at.Addr().Zone() != "" || !unicast(at.Addr()) {
			return fmt.Errorf("%q is not an address of a host: use 10.0.0.1, 10.0.0.1:7947 or [fd00::1]:7947 "+
				"(names are not looked up: a cluster must start without DNS)", item)
		}
		c.Join = append(c.Join, netip.AddrPortFrom(at.Addr().Unmap(), at.Port()))
	}
	return nil
}

func unicast(a netip.Addr) bool { return a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() }

func setKeys(c *Config, v string) error {
	keys, err := ParseKeys(v)
	c.Keys = keys
	return err
}

// ParseKeys reads gossip keys in base64, separated by commas or white space. An
// error never shows a key.
func ParseKeys(text string) ([][]byte, error) {
	var keys [][]byte
	for i, item := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(", \t\r\n", r) }) {
		key, err := base64.StdEncoding.Strict().DecodeString(item)
		if err != nil {
			return nil, fmt.Errorf("gossip key %d is not base64: make one with `openssl rand -base64 32`", i+1)
		}
		if n := len(key); n != 16 && n != 24 && n != 32 {
			return nil, fmt.Errorf("gossip key %d has %d bytes instead of 16, 24 or 32: make one with `openssl rand -base64 32`", i+1, n)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// setAdvertise takes ADDRESS, ADDRESS:PORT or the name of an interface.
func setAdvertise(c *Config, v string) error {
	at, err := netip.ParseAddrPort(v)
	if addr, plain := netip.ParseAddr(v); plain == nil {
		at, err = netip.AddrPortFrom(addr, 0), nil
	}
	if err == nil && unicast(at.Addr()) && at.Addr().Zone() == "" {
		c.Advertise, c.AdvertiseInterface = netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), ""
		return nil
	}
	if err != nil && len(v) <= 15 && !strings.ContainsAny(v, "/: \t") && strings.ContainsFunc(v, unicode.IsLetter) {
		c.Advertise, c.AdvertiseInterface = netip.AddrPort{}, v
		return nil
	}
	return fmt.Errorf("%q is not an address that other hosts can send to, nor an interface: use one of this host's own, as `ip address` shows them, or behind NAT ADDRESS:PORT of the gossip port outside", v)
}

func setBind(c *Config, v string) error {
	addr, err := netip.ParseAddr(v)
	if err != nil {
		return fmt.Errorf("%q is not an address: use one of this host's own, or leave it empty for all", v)
	}
	c.Bind = addr.Unmap()
	return nil
}

// setMetrics takes :PORT for all addresses.
func setMetrics(c *Config, v string) error {
	text := v
	if strings.HasPrefix(v, ":") {
		text = "[::]" + v
	}
	at, err := netip.ParseAddrPort(text)
	if err != nil || at.Port() == 0 || at.Addr().Zone() != "" {
		return fmt.Errorf("%q is not ADDRESS:PORT: use one of this host's own addresses, or :PORT for all", v)
	}
	c.Metrics = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	return nil
}

func setName(c *Config, v string) error {
	if len(v) > 64 || strings.ContainsFunc(v, func(r rune) bool { return r <= ' ' || r == '/' || r > '~' }) {
		return fmt.Errorf("%q is not a host name: at most 64 printable ASCII characters without spaces or /", v)
	}
	c.Name = v
	return nil
}

func setGroup(c *Config, v string) error {
	if len(v) > 64 || strings.ContainsFunc(v, func(r rune) bool { return r <= ' ' || r == '/' || r == ':' || r > '~' }) {
		return fmt.Errorf("%q is no group: use the name or the number of one", v)
	}
	c.Group = v
	return nil
}

func setEncap(c *Config, v string) error {
	if c.Bare = v == "auto"; c.Bare {
		v = encap.VXLAN.Name
	}
	k, err := encap.Parse(v)
	c.Encap = k.Name
	return err
}

func setMTU(c *Config, v string) error {
	n, err := strconv.Atoi(v)
	const inside = 1280
	more := encap.VXLAN.Overhead(netip.IPv4Unspecified())
	if err != nil || n != 0 && (n < inside+more || n > 65535) {
		return fmt.Errorf("%q is not an underlay MTU: use 0 (found out) or %d to 65535; IPv6 in containers needs %d and VXLAN %d more", v, inside+more, inside, more)
	}
	c.MTU = n
	return nil
}

func setDocker(c *Config, v string) error {
	if v != noDocker && !strings.HasPrefix(v, "unix:///") {
		return fmt.Errorf("%q is not the URL of a unix socket: use unix:///var/run/docker.sock, or none on a host without Docker", v)
	}
	c.Docker = v
	return nil
}

func setNetworks(c *Config, v string) error {
	c.Networks = nil
	for item := range strings.SplitSeq(v, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		if strings.ContainsFunc(item, func(r rune) bool { return r <= ' ' || r == '/' }) {
			return fmt.Errorf("%q is not a network's name: use names as `grapevine networks` prints them, separated by commas, or all", item)
		}
		c.Networks = append(c.Networks, item)
	}
	return nil
}

func setCIDR4(c *Config, v string) error {
	p, err := cidr(v)
	if err != nil || !p.Addr().Is4() || p.Bits() < 8 || p.Bits() > 28 {
		return fmt.Errorf("%q is not an IPv4 prefix of 8 to 28 bits with all host bits zero: use one like 10.128.0.0/14", v)
	}
	c.CIDR4 = p
	return nil
}

func setCIDR6(c *Config, v string) error {
	p, err := cidr(v)
	if err != nil || !p.Addr().Is6() || p.Bits() < 16 || p.Bits() > 64 {
		return fmt.Errorf("%q is not an IPv6 prefix of 16 to 64 bits with all host bits zero: use one like fd12:3456:789a::/48", v)
	}
	c.CIDR6 = p
	return nil
}

func cidr(v string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(v)
	if err == nil && p != p.Masked() {
		return p, fmt.Errorf("host bits are set")
	}
	return p, err
}

func setIPFIX(c *Config, v string) error {
	if v == "" {
		return nil
	}
	at, tcp := strings.CutPrefix(v, "tcp://")
	at = strings.TrimPrefix(at, "udp://")
	host, port, err := net.SplitHostPort(at)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || host == "" || bad != nil || n == 0 {
		return fmt.Errorf("%.80q is not HOST:PORT or tcp://HOST:PORT, as flows.example:4739 or tcp://[2001:db8::7]:4739", v)
	}
	if c.IPFIX = at; tcp {
		c.IPFIX = "tcp://" + at
	}
	return nil
}
