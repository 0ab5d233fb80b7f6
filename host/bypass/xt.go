package bypass

import (
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/nft"
)

// match is a test of iptables', in a table that iptables on nf_tables made (linux/netfilter/xt_*.h).
func (w *way) match(attrs []byte) (answer, error) {
	name, info := text(nft.Attribute(attrs, unix.NFTA_MATCH_NAME)), nft.Attribute(attrs, unix.NFTA_MATCH_INFO)
	revision := be(nft.Attribute(attrs, unix.NFTA_MATCH_REV))
	if test, known := tests[name]; known {
		return test(w, info, revision), nil
	}
	if slices.Contains(harmless, name) {
		return maybe, nil
	}
	return maybe, fmt.Errorf("asks what the agent does not understand (-m %s) of", name)
}

// tests are those of which more may be said than maybe.
var tests = map[string]func(w *way, info []byte, revision uint32) answer{
	"comment": func(*way, []byte, uint32) answer { return yes },
	"tcp":     func(*way, []byte, uint32) answer { return no },
	"icmp":    func(*way, []byte, uint32) answer { return no },
	"sctp":    func(*way, []byte, uint32) answer { return no },
	"dccp":    func(*way, []byte, uint32) answer { return no },
	"udp":     udp, "multiport": multiport, "addrtype": addressType, "conntrack": conntrack, "state": state, "mark": mark,
}

// harmless are those that only ask, and have no count that what they are asked of uses up. Whether they match is not known.
var harmless = []string{
	"set", "owner", "connmark", "policy", "mac", "iprange", "length", "ttl", "tos", "dscp", "ecn", "pkttype", "physdev", "string", "u32", "cgroup",
	"socket", "rpfilter", "devgroup", "time", "helper", "realm", "esp", "ah", "cpu", "ipvs", "connlabel", "tcpmss", "osf",
}

// udp is struct xt_udp.
func udp(w *way, info []byte, _ uint32) answer {
	const size, inverseSource, inverseDestination = 9, 1, 2
	if len(info) < size {
		return maybe
	}
	inverse := info[8]
	from := invert(w.packet.udp.part(0, 2).within(ports(info, 0)), inverse&inverseSource != 0)
	to := invert(w.packet.udp.part(2, 2).within(ports(info, 4)), inverse&inverseDestination != 0)
	return from.and(to)
}

// ports are two of them, as they are on the wire.
func ports(info []byte, at int) (from, to []byte) { return port(info, at), port(info, at+2) }

func port(info []byte, at int) []byte {
	return binary.BigEndian.AppendUint16(nil, binary.NativeEndian.Uint16(info[at:]))
}

func invert(a answer, is bool) answer {
	if is {
		return a.not()
	}
	return a
}

// multiport is struct xt_multiport_v1.
func multiport(w *way, info []byte, revision uint32) answer {
	const most, flagsAt, inverseAt = 15, 32, 47
	const source, destination, either = 0, 1, 2
	if revision != 1 || len(info) <= inverseAt || int(info[1]) > most {
		return maybe
	}
	in := func(offset int) answer {
		have, found := w.packet.udp.part(offset, 2), no
		for i := 0; i < int(info[1]); i++ {
			from := port(info, 2+2*i)
			to := from
			if info[flagsAt+i] != 0 { // the first one of a range
				i++
				to = port(info, 2+2*i)
			}
			switch have.within(from, to) {
			case yes:
				return yes
			case maybe:
				found = maybe
			}
		}
		return found
	}
	var found answer
	switch info[0] {
	case source:
		found = in(0)
	case destination:
		found = in(2)
	case either:
		found = in(0).not().and(in(2).not()).not()
	default:
		return maybe
	}
	return invert(found, info[inverseAt] != 0)
}

// States as iptables has them (XT_CONNTRACK_STATE_BIT and others of linux/netfilter/xt_conntrack.h).
func stateIn(w *way, mask uint16) answer { return truth(uint32(mask)&w.packet.state != 0) }

// conntrack is struct xt_conntrack_mtinfo3, of which only the state is understood.
func conntrack(w *way, info []byte, revision uint32) answer {
	const flagsAt, inverseAt, stateAt, onlyState, alias = 146, 148, 150, 1, 1 << 13
	if revision < 2 || revision > 3 || len(info) < stateAt+2 {
		return maybe
	}
	if binary.NativeEndian.Uint16(info[flagsAt:])&^alias != onlyState {
		return maybe
	}
	return invert(stateIn(w, binary.NativeEndian.Uint16(info[stateAt:])), binary.NativeEndian.Uint16(info[inverseAt:])&onlyState != 0)
}

// state is struct xt_state_info.
func state(w *way, info []byte, _ uint32) answer {
	if len(info) < 4 {
		return maybe
	}
	return stateIn(w, uint16(binary.NativeEndian.Uint32(info)))
}

// addressType is struct xt_addrtype_info, or the later one of its revision.
func addressType(w *way, info []byte, revision uint32) answer {
	const unicast, local = 1 << 1, 1 << 2
	if len(info) < 8 {
		return maybe
	}
	source, destination := binary.NativeEndian.Uint16(info), binary.NativeEndian.Uint16(info[2:])
	flags := binary.NativeEndian.Uint32(info[4:])
	switch {
	case revision == 0 && len(info) >= 12:
		flags = min(flags, 1) | min(binary.NativeEndian.Uint32(info[8:]), 1)<<1
	case revision != 1 || flags > 3: // those of an interface
		return maybe
	}
	from, to := uint16(unicast), uint16(local)
	if w.packet.in == "" { // sent
		from, to = local, unicast
	}
	result := yes
	if source != 0 {
		result = result.and(invert(truth(source&from != 0), flags&1 != 0))
	}
	if destination != 0 {
		result = result.and(invert(truth(destination&to != 0), flags&2 != 0))
	}
	return result
}

// mark is struct xt_mark_mtinfo1. Most packets have none: see way.meta.
func mark(w *way, info []byte, revision uint32) answer {
	if w.packet.marked || revision != 1 || len(info) < 9 {
		return maybe
	}
	return invert(truth(binary.NativeEndian.Uint32(info) == 0), info[8] != 0)
}
