package cluster

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/grapevine-net/grapevine/ring"
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

// Validate returns nil if a body keeps to the limits of this package and what it
// says makes sense by itself. The error says which field is wrong.
func Validate(b Body) error {
	switch b := b.(type) {
	case Node:
		return b.validate()
	case Network:
		return b.validate()
	case Subnet:
		return b.validate()
	case Endpoint:
		return b.validate()
	case Use:
		return errors.Join(name("network", b.Network), host("host", b.Host))
	case Claim:
		version := ring.Version{Counter: 1, By: b.Owner}
		return ring.Claim{Block: b.Block, Version: version, Owner: b.Owner}.Validate()
	case Policy:
		return b.validate()
	case opaque:
		return b.validate()
	}
	return fmt.Errorf("a body of type %T is no record's", b)
}

func (n Node) validate() error {
	return errors.Join(
		host("ID", n.ID),
		optional("name", n.Name),
		unicast("VTEP", n.VTEP),
		unicast("gossip address", n.Gossip.Addr()),
		unicast("own address", n.Bind),
		mtu(n.MTU),
		optional("agent version", n.Agent),
		optional("datapath", n.Datapath),
		reaches(n.Reaches),
	)
}

func reaches(list []Reach) (err error) {
	if len(list) > maxEntries { // more than is written: who writes more is to be understood
		return fmt.Errorf("%d things that the host reaches, at most %d", len(list), maxEntries)
	}
	for _, r := range list {
		err = errors.Join(err, block("prefix that the host reaches", r.Prefix), optional("name of what the host reaches", r.Name))
	}
	return err
}

func (n Network) validate() error {
	err := errors.Join(name("name", n.Name), mtu(n.MTU), texts("options", n.Options), texts("labels", n.Labels), optional("making", n.Made))
	if len(n.Old) > maxEntries {
		err = errors.Join(err, fmt.Errorf("%d old subnets, at most %d", len(n.Old), maxEntries))
	}
	for _, p := range n.Old {
		err = errors.Join(err, block("old subnet", p))
	}
	if n.VNID > maxVNID {
		err = errors.Join(err, fmt.Errorf("VNID %d is above %d (24 bits)", n.VNID, maxVNID))
	}
	return err
}

func (s Subnet) validate() error {
	if err := block("prefix", s.Prefix); err != nil {
		return err
	}
	err := name("network", s.Network)
	if s.Home != "" {
		err = errors.Join(err, host("home", s.Home))
	}
	if s.Gateway.IsValid() {
		err = errors.Join(err, inside("gateway", s.Gateway, s.Prefix))
	}
	if s.Range.IsValid() {
		err = errors.Join(err, block("range", s.Range), inside("range", s.Range.Addr(), s.Prefix))
		if s.Range.Bits() < s.Prefix.Bits() {
			err = errors.Join(err, fmt.Errorf("range %s is wider than the prefix %s", s.Range, s.Prefix))
		}
	}
	if free := s.Prefix.Addr().BitLen() - s.Prefix.Bits(); int(s.HostBits) > free {
		err = errors.Join(err, fmt.Errorf("%d host bits do not fit into %s", s.HostBits, s.Prefix))
	}
	if len(s.Aux) > maxEntries {
		return errors.Join(err, fmt.Errorf("%d reserved addresses, at most %d", len(s.Aux), maxEntries))
	}
	for k, a := range s.Aux {
		err = errors.Join(err, optional("name of a reserved address", k), inside("reserved address", a, s.Prefix))
	}
	return err
}

func (e Endpoint) validate() error {
	err := errors.Join(
		name("ID", e.ID), name("network", e.Network), host("host", e.Host),
		optional("container", e.Container), optional("name", e.Name), mac(e.MAC), texts("labels", e.Labels),
	)
	if len(e.Addrs) > maxAddrs || len(e.LinkLocal) > maxAddrs || len(e.Aliases) > maxEntries {
		return errors.Join(err, fmt.Errorf("%d addresses, %d link-local ones and %d aliases, at most %d, %d and %d",
			len(e.Addrs), len(e.LinkLocal), len(e.Aliases), maxAddrs, maxAddrs, maxEntries))
	}
	for _, a := range e.LinkLocal {
		if !a.IsLinkLocalUnicast() || a.Is4In6() || a.Zone() != "" {
			err = errors.Join(err, fmt.Errorf("%s is no link-local address", a))
		}
	}
	for _, a := range e.Addrs {
		if !a.IsValid() {
			err = errors.Join(err, errors.New("an empty address"))
		}
		err = errors.Join(err, unicast("address", a))
	}
	for _, a := range e.AllAliases() {
		err = errors.Join(err, name("alias", a))
	}
	return err
}

func (p Policy) validate() error {
	err := errors.Join(name("scope", p.Scope), optional("network", p.Network), name("name", p.Name), optional("author", p.Author))
	if len(p.Base) > maxEntries { // more than is written: who writes more is to be understood
		err = errors.Join(err, fmt.Errorf("%d edits before it, at most %d", len(p.Base), maxEntries))
	}
	for _, e := range p.Base {
		err = errors.Join(err, host("host of an edit before it", e.Node))
	}
	switch {
	case strings.Contains(p.Scope+p.Network+p.Name, "/"):
		err = errors.Join(err, errors.New("its scope, its network and its name have no slashes"))
	case len(p.Key().ID) > maxID:
		err = errors.Join(err, fmt.Errorf("its network and its name have %d bytes, at most %d", len(p.Network)+len(p.Name), maxID-len(p.Scope)-2))
	case p.Scope == ScopeNetwork && p.Network == "" || p.Scope == ScopeCluster && p.Network != "":
		err = errors.Join(err, fmt.Errorf("scope %s with network %q", p.Scope, p.Network))
	}
	if len(p.Text) == 0 || len(p.Text) > MaxPolicyText || !utf8.ValidString(p.Text) {
		err = errors.Join(err, fmt.Errorf("its text has %d bytes, at most %d of UTF-8", len(p.Text), MaxPolicyText))
	}
	return err
}

// MaxPolicyText is what the text of a policy may take, bytes: the rest of a body is for the others.
const MaxPolicyText = maxBody - 1024

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

// maxAliases is what the aliases of an endpoint may take together, bytes: its other texts and
// addresses take less than the rest of a body.
const maxAliases = maxBody - 4*1024 - MaxLabelBytes

// MaxLabels is how many labels an endpoint may have, and MaxLabelBytes what they may take together in its record.
const (
	MaxLabels     = 64
	MaxLabelBytes = 4 * 1024
)

// LabelsFit reports whether the labels of a container fit into its endpoint's record.
func LabelsFit(labels map[string]string) bool {
	size := 0
	for k, v := range labels {
		const heads = 6 // of two texts, in CBOR
		size += len(k) + len(v) + heads
	}
	return texts("labels", labels) == nil && len(labels) <= MaxLabels && size <= MaxLabelBytes
}

// maxLabels is what the labels of a network may take together, bytes: the rest of a body is
// for the others.
const maxLabels = maxBody / 2

// FitLabels returns those of a network's labels that a record has room for, taken in the order of
// their names, and the names of the others.
func FitLabels(labels map[string]string) (kept map[string]string, left []string) {
	size := 0
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		one := map[string]string{k: labels[k]}
		const heads = 6 // of two texts, in CBOR
		if need := len(k) + len(labels[k]) + heads; texts("labels", one) == nil && len(kept) < maxEntries && size+need <= maxLabels {
			size += need
			if kept == nil {
				kept = map[string]string{}
			}
			kept[k] = labels[k]
		} else {
			left = append(left, k)
		}
	}
	return kept, left
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
