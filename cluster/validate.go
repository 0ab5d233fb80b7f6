package cluster

import (
	"fmt"
	"net"
	"net/netip"
	"unicode"
	"unicode/utf8"
)

// Limits of what a record may hold. Names are in bytes.
const (
	maxID      = 300       // of a key: a network's name and a host
	maxName    = 255       // names of networks, hosts, containers
	maxText    = 4096      // values of options and labels
	maxEntries = 128       // options, labels, reserved addresses, aliases
	maxAddrs   = 16        // of an endpoint
	maxBody    = 32 * 1024 // encoded
	maxVNID    = 1<<24 - 1
	maxMTU     = 65535
)

// name wants a text that is there.
func name(field, s string) error {
	if s == "" {
		return fmt.Errorf("%s is empty", field)
	}
	return optional(field, s)
}

// optional wants printable UTF-8 of a bounded length.
func optional(field, s string) error {
	if len(s) > maxName {
		return fmt.Errorf("%s has %d bytes, at most %d", field, len(s), maxName)
	}
	if plain(s) {
		return nil
	}
	for _, r := range s {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return fmt.Errorf("%s %.80q has characters that cannot be printed", field, s)
		}
	}
	return nil
}

// plain reports whether a text is of printable ASCII, as most are.
func plain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// texts wants bounded UTF-8; labels may have line breaks.
func texts(field string, m map[string]string) error {
	if len(m) > maxEntries {
		return fmt.Errorf("%d %s, at most %d", len(m), field, maxEntries)
	}
	for k, v := range m {
		if len(k) > maxText || len(v) > maxText || !utf8.ValidString(k) || !utf8.ValidString(v) {
			return fmt.Errorf("%s: %.80q is no UTF-8 text of at most %d bytes", field, k, maxText)
		}
	}
	return nil
}

func host(field string, id NodeID) error {
	if !id.Valid() {
		return fmt.Errorf("%s %.40q is not a host ID (16 lower-case hexadecimal digits)", field, string(id))
	}
	return nil
}

// unicast accepts the zero Addr: not known yet.
func unicast(field string, a netip.Addr) error {
	if a.IsValid() && (a.IsUnspecified() || a.IsMulticast() || a.Is4In6() || a.Zone() != "") {
		return fmt.Errorf("%s %s is not a unicast address", field, a)
	}
	return nil
}

func block(field string, p netip.Prefix) error {
	if !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() {
		return fmt.Errorf("%s %s is not a masked IPv4 or IPv6 prefix", field, p)
	}
	return nil
}

func inside(field string, a netip.Addr, p netip.Prefix) error {
	if !p.Contains(a) {
		return fmt.Errorf("%s %s is outside %s", field, a, p)
	}
	return nil
}

func mtu(n int) error {
	if n < 0 || n > maxMTU {
		return fmt.Errorf("MTU %d is not between 0 and %d", n, maxMTU)
	}
	return nil
}

// mac accepts "": not known.
func mac(s string) error {
	if s == "" {
		return nil
	}
	if hw, err := net.ParseMAC(s); err != nil || len(hw) != 6 || hw[0]&1 != 0 || hw.String() != s {
		return fmt.Errorf("MAC %.40q is not a unicast address like 02:00:0a:80:00:01", s)
	}
	return nil
}
