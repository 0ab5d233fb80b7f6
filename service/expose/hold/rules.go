package hold

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/nft"
	"github.com/grapevine-net/grapevine/service"
	"github.com/grapevine-net/grapevine/service/expose"
)

const (
	tableName = "grapevine-exposed"
	// behindOthers is the priority of the chains that lead; -100 is NF_IP_PRI_NAT_DST, which iptables' chains have, Docker's
	// among them, and by custom everybody's. Whose port it is, sockets decide; who leads a port elsewhere by a rule alone, as
	// firewalld does, has none, and keeps it.
	behindOthers = -90
	// last is that of the chain that refuses: the host's firewall comes first, as it does where a caller of TCP is refused.
	last = 100
)

// front is an exposed port, of one family.
type front struct {
	expose.Port
	v6 bool
}

// table is where this host leads its exposed ports, and at which addresses.
type table struct {
	here  []netip.Addr
	ports map[front]expose.Back
}

type family struct {
	v6          bool
	nfproto     byte
	here, ports string
	datagrams   string
	words       uint32 // of four bytes, that an address has
	addrType    uint32
}

var families = []family{
	{nfproto: unix.NFPROTO_IPV4, here: "here4", ports: "ports4", datagrams: "datagrams4", words: 1, addrType: nft.TypeIPv4},
	{v6: true, nfproto: unix.NFPROTO_IPV6, here: "here6", ports: "ports6", datagrams: "datagrams6", words: 4, addrType: nft.TypeIPv6},
}

func word(n uint32) uint32 { return unix.NFT_REG32_00 + n }

// frame is the table without what is in its sets. In the words of nft(8), of IPv4:
//
//	table inet grapevine-exposed {
//	  set here4 { type ipv4_addr }
//	  map ports4 { type inet_proto . inet_service . mark : ipv4_addr . inet_service }
//	  chain arrives { type nat hook prerouting priority -90
//	    iifname != "gv0" ip daddr @here4 dnat to meta l4proto . th dport . numgen random mod 60 map @ports4 }
//	  chain begins { type nat hook output priority -90; the same }
//	  set datagrams4 { type inet_service }
//	  chain refuses { type filter hook input priority 100
//	    meta nfproto ipv4 meta l4proto udp th dport @datagrams4 reject with icmpx port-unreachable }
//	}
//
// What comes to an exposed port and is led nowhere comes to the socket that holds it: of TCP that listens not, so that the kernel
// refuses; datagrams it would take.
// Which rules of the host's firewall and of Docker's judge what is led is the same as for published ports: those of
// forwarding, DOCKER-USER among them.
func frame(gateway string) nft.Table {
	arrives := nft.Chain{Name: "arrives", Type: "nat", Hook: unix.NF_INET_PRE_ROUTING, Priority: behindOthers}
	begins := nft.Chain{Name: "begins", Type: "nat", Hook: unix.NF_INET_LOCAL_OUT, Priority: behindOthers}
	refuses := nft.Chain{Name: "refuses", Type: "filter", Hook: unix.NF_INET_LOCAL_IN, Priority: last}
	t := nft.Table{Name: tableName, Family: nft.Inet}
	for _, f := range families {
		t.Sets = append(t.Sets, f.hereSet(), f.portMap(), nft.Set{Name: f.datagrams, Type: nft.TypePort, Length: 2})
		refuses.Rules = append(refuses.Rules, nft.Rule{Exprs: []nft.Expr{
			nft.Meta(unix.NFT_META_NFPROTO), nft.Equal([]byte{f.nfproto}), nft.Meta(unix.NFT_META_L4PROTO), nft.Equal([]byte{service.UDP}),
			nft.DestinationPort(), nft.In(f.datagrams, false), nft.Refuse(false),
		}})
		// Containers of the cluster have the service's own address.
		outside := []nft.Expr{nft.Meta(unix.NFT_META_IIFNAME), nft.NotEqual(nft.Name(gateway))}
		arrives.Rules = append(arrives.Rules, nft.Rule{Exprs: append(outside, f.lead()...)})
		begins.Rules = append(begins.Rules, nft.Rule{Exprs: f.lead()})
	}
	t.Chains = []nft.Chain{arrives, begins, refuses}
	return t
}

// rules is how many there are.
const rules = 6

func (f family) lead() []nft.Expr {
	return []nft.Expr{
		nft.Meta(unix.NFT_META_NFPROTO), nft.Equal([]byte{f.nfproto}),
		nft.Addr(f.v6, true), nft.In(f.here, false),
		nft.MetaTo(word(0), unix.NFT_META_L4PROTO), nft.PayloadTo(word(1), unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2), nft.Random(word(2), service.Slots),
		nft.Look(f.ports, unix.NFT_REG_1), nft.DNAT(f.v6, word(f.words)),
	}
}

func (f family) hereSet() nft.Set {
	return nft.Set{Name: f.here, Type: f.addrType, Length: 4 * f.words}
}

func (f family) portMap() nft.Set {
	return nft.Set{
		Name: f.ports, Type: nft.Concat(nft.TypeProto, nft.TypePort, nft.TypeMark), Length: 12,
		DataType: nft.Concat(f.addrType, nft.TypePort), DataLength: 4 * (f.words + 1),
	}
}

// whole are the messages that put a table in the place of what is there.
func whole(gateway string, want table) [][]byte {
	if len(want.ports) == 0 {
		return gone()
	}
	return content(gateway, want).Anew()
}

// content is a table with what is in its sets.
func content(gateway string, want table) nft.Table {
	t := frame(gateway)
	for i, f := range families {
		here, ports, datagrams := &t.Sets[3*i], &t.Sets[3*i+1], &t.Sets[3*i+2]
		for _, a := range want.here {
			if a.Is6() == f.v6 {
				here.Values = append(here.Values, nft.Bytes(a))
			}
		}
		for p, back := range want.ports {
			if p.v6 == f.v6 {
				elements(ports, p.Port, back)
				if p.UDP {
					datagrams.Values = append(datagrams.Values, nft.Port(p.Port.Port))
				}
			}
		}
	}
	return t
}

// full reports whether the sets in the kernel have what those of a table have: somebody may have emptied them.
func full(conn *nft.Conn, t nft.Table) bool {
	for _, s := range t.Sets {
		keys, err := conn.Elements(t, s.Name)
		if err != nil || len(keys) != len(s.Values) {
			return false
		}
		have := map[string]bool{}
		for _, k := range keys {
			have[string(k)] = true
		}
		if slices.ContainsFunc(s.Values, func(v []byte) bool { return !have[string(v)] }) {
			return false
		}
	}
	return true
}

// gone are the messages that remove the table, which need not be there.
func gone() [][]byte {
	none := nft.Table{Name: tableName, Family: nft.Inet}
	return append(none.Make(), none.Remove()...)
}

// elements adds to a map where a port leads.
func elements(m *nft.Set, p expose.Port, back expose.Back) {
	if len(back.To) == 0 {
		return
	}
	for i := range service.Slots {
		key := []byte{protocol(p), 0, 0, 0}
		key = append(append(key, nft.Port(p.Port)...), 0, 0)
		key = binary.NativeEndian.AppendUint32(key, uint32(i))
		to := back.To[i%len(back.To)]
		m.Values = append(m.Values, key)
		m.Data = append(m.Data, append(append(nft.Bytes(to.Addr()), nft.Port(to.Port())...), 0, 0))
	}
}

func protocol(p expose.Port) byte {
	if p.UDP {
		return service.UDP
	}
	return service.TCP
}

// portsOf are the ports that a table in the kernel leads.
func portsOf(keys [][]byte, v6 bool, into map[front]bool) {
	for _, k := range keys {
		if len(k) >= 6 {
			into[front{expose.Port{UDP: k[0] == service.UDP, Port: binary.BigEndian.Uint16(k[4:])}, v6}] = true
		}
	}
}
