package plain

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/grapevine-net/grapevine/policy"
)

// The labels of a container.
const (
	Labels    = "grapevine."     // what the labels below begin with
	FromLabel = "grapevine.from" // who may call it
	ToLabel   = "grapevine.to"   // whom it may call
	OpenLabel = "grapevine.open" // "true": on an isolated network it and the members reach each other
)

// maxParts is how many parts a label can have.
const maxParts = 64

// Part is a part of a label or an argument of a command: who, and at which port.
type Part struct {
	Text string
	who
	ports []policy.Port // none: all
}

// who is whom a part means: one of these.
type who struct {
	any        bool
	blocks     []policy.Block
	key, value string // of a label
	network    string // "": that of whom the part is about
	name       string // of a Compose service or a container
	// domain is a name of DNS as well, if it can be one. Without a container's name it is that alone.
	domain policy.Domain
}

// internet are the addresses that are neither private nor set aside for something else (RFC 6890).
var internet = []policy.Block{
	{Prefix: netip.MustParsePrefix("0.0.0.0/0"), Except: prefixes("0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.168.0.0/16 224.0.0.0/3")},
	{Prefix: netip.MustParsePrefix("2000::/3")},
}

func prefixes(texts string) (list []netip.Prefix) {
	for text := range strings.FieldsSeq(texts) {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

var (
	containerName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`) })
	portName      = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`) })
	protocols     = map[string]uint8{"tcp": policy.TCP, "udp": policy.UDP, "sctp": policy.SCTP}
)

// Parse reads a list of parts with commas between. "none" is nobody.
func Parse(text string) (parts []Part, err error) {
	if strings.TrimSpace(text) == "none" {
		return nil, nil
	}
	for one := range strings.SplitSeq(text, ",") {
		p, err := ParsePart(strings.TrimSpace(one))
		if err != nil {
			return nil, err
		}
		if len(parts) == maxParts {
			return nil, fmt.Errorf("it has more than %d parts; write a policy (`grapevine policy apply`)", maxParts)
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// ParsePart reads WHO[:PORT[/PROTOCOL]]. An IPv6 address with a port is in brackets.
func ParsePart(text string) (p Part, err error) {
	if text == "" {
		return p, errors.New("a part of it is empty; write who may, as in web:5432, or none for nobody")
	}
	p.Text = text
	name, port := text, ""
	if end := strings.LastIndex(text, "]"); strings.HasPrefix(text, "[") && end > 0 {
		if name, port = text[1:end], text[end+1:]; port != "" && !strings.HasPrefix(port, ":") {
			return p, fmt.Errorf("%.80q: behind the bracket there is no colon with a port", text)
		}
	} else if at := strings.Index(text, ":"); at >= 0 && strings.Count(text, ":") == 1 {
		name, port = text[:at], text[at:]
	}
	if port != "" {
		one, err := parsePort(port[1:])
		if err != nil {
			return p, fmt.Errorf("%.80q: %w", text, err)
		}
		p.ports = []policy.Port{one}
	}
	if p.who, err = parseWho(name); err != nil {
		return p, err
	}
	if p.name == "" && p.domain != "" && len(p.ports) > 0 && p.ports[0].Name != "" {
		return p, fmt.Errorf("%.80q: what is outside has no names of ports (%s); write the number", text, policy.PortsLabel)
	}
	return p, nil
}

// callers says what is wrong with a list of those who call: names of DNS say whom one calls.
func callers(parts []Part) error {
	for _, p := range parts {
		if p.name == "" && p.domain != "" {
			return fmt.Errorf("%.80q says by which names somebody is called, not who calls; write addresses, or internet", p.Text)
		}
	}
	return nil
}

// parseLabel reads one of the two labels.
func parseLabel(label, text string) (parts []Part, err error) {
	if parts, err = Parse(text); err == nil && label == FromLabel {
		err = callers(parts)
	}
	return parts, err
}

func parseWho(text string) (w who, err error) {
	if prefix, err := netip.ParsePrefix(text); err == nil {
		if prefix != prefix.Masked() {
			return w, fmt.Errorf("%s has bits behind its length; write %s", text, prefix.Masked())
		}
		w.blocks = []policy.Block{{Prefix: prefix}}
		return w, nil
	}
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" && !addr.Is4In6() {
		w.blocks = []policy.Block{{Prefix: netip.PrefixFrom(addr, addr.BitLen())}}
		return w, nil
	}
	key, value, isLabel := strings.Cut(text, "=")
	network, name, on := strings.Cut(text, "/")
	switch {
	case text == "any":
		w.any = true
	case text == "internet":
		w.blocks = internet
	case text == "none":
		return w, errors.New("none is nobody, and stands alone")
	case isLabel && key != "" && !strings.ContainsAny(text, " \t\n"):
		w.key, w.value = key, value
	case on && isAddr(network):
		return w, fmt.Errorf("%.80q is no prefix", text)
	case on && containerName().MatchString(network) && containerName().MatchString(name):
		w.network, w.name = network, name
	case containerName().MatchString(text):
		w.name = text
		w.domain, _ = policy.ParseDomain(text)
	default:
		if w.domain, err = policy.ParseDomain(text); err != nil {
			return who{}, fmt.Errorf("%.80q is nobody's name; write the name of a Compose service or a container, NETWORK/NAME, KEY=VALUE of a label, an address, a prefix, a name as api.github.com or *.pypi.org, internet or any", text)
		}
	}
	return w, nil
}

func isAddr(text string) bool {
	_, err := netip.ParseAddr(text)
	return err == nil
}

func parsePort(text string) (p policy.Port, err error) {
	number, proto, said := strings.Cut(text, "/")
	if p.Proto = policy.TCP; said {
		ok := false
		if p.Proto, ok = protocols[proto]; !ok {
			return p, fmt.Errorf("the protocol %.20q is none; write /tcp, /udp or /sctp", proto)
		}
	}
	first, last, isRange := strings.Cut(number, "-")
	if !isRange {
		last = first
	}
	from, errFrom := strconv.ParseUint(first, 10, 16)
	to, errTo := strconv.ParseUint(last, 10, 16)
	switch {
	case errFrom == nil && errTo == nil && from > 0 && from <= to:
		p.From, p.To = uint16(from), uint16(to)
	case portName().MatchString(number) && strings.Trim(number, "0123456789-") != "":
		if p.Name = number; !said {
			p.Proto = 0
		}
	default:
		return p, fmt.Errorf("%.40q is no port; write a number from 1 to 65535, a range as 8000-8099, or a name of the label %s", number, policy.PortsLabel)
	}
	return p, nil
}

// Check says what is wrong with those labels of a container that this package reads. A label that cannot be
// read lets nobody through.
func Check(labels map[string]string) error {
	var errs []error
	for _, label := range []string{FromLabel, ToLabel} {
		if text, there := labels[label]; there {
			if _, err := parseLabel(label, text); err != nil {
				errs = append(errs, fmt.Errorf("label %s: %w", label, err))
			}
		}
	}
	if text, there := labels[OpenLabel]; there && text != "true" && text != "false" {
		errs = append(errs, fmt.Errorf("label %s: %.80q is neither true nor false", OpenLabel, text))
	}
	return errors.Join(errs...)
}

// exposeLabel is package service/expose's.
const exposeLabel = "grapevine.expose"

// ours begins the labels of containers that grapevine reads; those of foreign begin what is no matter of a user's.
const ours, foreign = "grapevine.", "grapevine.io/"

// Misspelt says which labels of a container look as if they were to be read here, and are not: nobody would do what
// they say.
func Misspelt(labels map[string]string) error {
	known := []string{FromLabel, ToLabel, OpenLabel, policy.PortsLabel, exposeLabel}
	var errs []error
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		low := strings.ToLower(strings.TrimSpace(label))
		if strings.HasPrefix(low, ours) && !strings.HasPrefix(low, foreign) && !slices.Contains(known, label) {
			errs = append(errs, fmt.Errorf("label %.80q: a container has none of that name; there are %s", label, strings.Join(known, ", ")))
		}
	}
	return errors.Join(errs...)
}
