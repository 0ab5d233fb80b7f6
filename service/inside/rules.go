package inside

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/nft"
	"github.com/grapevine-net/grapevine/service"
)

const (
	tableName = "grapevine-services"
	// beforeOthers is the priority of the chain that leads; -100 is NF_IP_PRI_NAT_DST, which other programs' have.
	beforeOthers = -150
)

// family has what differs between IPv4 and IPv6: the registers of a key (address, protocol, port, slot) and of what
// it leads to (address, port), each of four bytes or a multiple.
type family struct {
	v6                  bool
	nfproto             byte
	echo, icmp          byte // the type of an ICMP message that asks for an echo; the protocol
	addresses, replicas string
	words               uint32 // of four bytes, that an address has
	addrType            uint32
}

var families = []family{
	{nfproto: unix.NFPROTO_IPV4, echo: 8, icmp: service.ICMP, addresses: "addresses4", replicas: "replicas4", words: 1, addrType: nft.TypeIPv4},
	{v6: true, nfproto: unix.NFPROTO_IPV6, echo: 128, icmp: service.ICMPv6, addresses: "addresses6", replicas: "replicas6", words: 4, addrType: nft.TypeIPv6},
}

// word is the register of the n-th four bytes.
func word(n uint32) uint32 { return unix.NFT_REG32_00 + n }

// frame is the table without what is in its maps. In the words of nft(8), of IPv4:
//
//	table inet grapevine-services {
//	  set addresses4 { type ipv4_addr }
//	  map replicas4 { type ipv4_addr . inet_proto . inet_service . mark : ipv4_addr . inet_service }
//	  chain lead { type nat hook output priority -150
//	    meta nfproto ipv4 icmp type echo-request dnat to ip daddr . icmp . 0 . 0 map @replicas4
//	    meta nfproto ipv4 dnat to ip daddr . meta l4proto . th dport . numgen random mod 60 map @replicas4 }
//	  chain refuse { type filter hook output priority 0
//	    ip daddr @addresses4 meta l4proto tcp reject with tcp reset
//	    ip daddr @addresses4 reject with icmpx port-unreachable } }
//
// What the first chain leads has another address when it comes to the second.
func frame() nft.Table {
	lead := nft.Chain{Name: "lead", Type: "nat", Hook: unix.NF_INET_LOCAL_OUT, Priority: beforeOthers}
	refuse := nft.Chain{Name: "refuse", Type: "filter", Hook: unix.NF_INET_LOCAL_OUT}
	t := nft.Table{Name: tableName, Family: nft.Inet}
	for _, f := range families {
		t.Sets = append(t.Sets, f.addressSet(), f.replicaMap())
		lead.Rules = append(lead.Rules, nft.Rule{Exprs: f.lead(true)}, nft.Rule{Exprs: f.lead(false)})
		refuse.Rules = append(refuse.Rules, nft.Rule{Exprs: f.refuse(true)}, nft.Rule{Exprs: f.refuse(false)})
	}
	t.Chains = []nft.Chain{lead, refuse}
	return t
}

func (f family) addressSet() nft.Set {
	return nft.Set{Name: f.addresses, Type: f.addrType, Length: 4 * f.words}
}

func (f family) replicaMap() nft.Set {
	return nft.Set{
		Name: f.replicas, Type: nft.Concat(f.addrType, nft.TypeProto, nft.TypePort, nft.TypeMark), Length: 4 * (f.words + 3),
		DataType: nft.Concat(f.addrType, nft.TypePort), DataLength: 4 * (f.words + 1),
	}
}

// is begins a rule for packets of the family.
func (f family) is() []nft.Expr {
	return []nft.Expr{nft.Meta(unix.NFT_META_NFPROTO), nft.Equal([]byte{f.nfproto})}
}

func (f family) lead(pings bool) []nft.Expr {
	rule := f.is()
	port, to, slot := nft.PayloadTo(word(f.words+1), unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2), word(f.words), nft.Random(word(f.words+2), service.Slots)
	if pings { // one replica answers them: each slot of each service has to be written in each sandbox
		rule = append(rule,
			nft.Meta(unix.NFT_META_L4PROTO), nft.Equal([]byte{f.icmp}),
			nft.Payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 0, 1), nft.Equal([]byte{f.echo}))
		port, to, slot = nft.Immediate(word(f.words+1), nft.Port(0)), 0, nft.Immediate(word(f.words+2), make([]byte, 4))
	}
	return append(rule,
		nft.Addr(f.v6, true), nft.MetaTo(word(f.words), unix.NFT_META_L4PROTO), port, slot,
		nft.Look(f.replicas, unix.NFT_REG_1), nft.DNAT(f.v6, to))
}

func (f family) refuse(tcp bool) []nft.Expr {
	rule := append(f.is(), nft.Addr(f.v6, true), nft.In(f.addresses, false))
	if tcp {
		rule = append(rule, nft.Meta(unix.NFT_META_L4PROTO), nft.Equal([]byte{unix.IPPROTO_TCP}))
	}
	return append(rule, nft.Refuse(tcp))
}

// whole are the messages that put a table in the place of what is there.
func whole(t service.Table) [][]byte {
	if len(t) == 0 {
		none := nft.Table{Name: tableName, Family: nft.Inet}
		return append(none.Make(), none.Remove()...) // it need not be there
	}
	return append(frame().Anew(), differences(nil, t)...)
}

// differences are the messages that make of one table another one; the fronts that do not differ may be missing in both.
func differences(from, to service.Table) (batch [][]byte) {
	t := frame()
	for _, f := range families {
		gone, came := f.addressSet(), f.addressSet()
		take, add := f.replicaMap(), f.replicaMap()
		for front, was := range from {
			if front.Addr.Is6() == f.v6 {
				f.elements(&take, front, was, to[front])
				if _, now := to[front]; front.Proto == f.icmp && !now { // every service has that front
					gone.Values = append(gone.Values, nft.Bytes(front.Addr))
				}
			}
		}
		for front, is := range to {
			if front.Addr.Is6() == f.v6 {
				f.elements(&add, front, is, from[front])
				if _, before := from[front]; front.Proto == f.icmp && !before {
					came.Values = append(came.Values, nft.Bytes(front.Addr))
				}
			}
		}
		for _, messages := range [][][]byte{t.Take(gone), t.Add(came), t.Take(take), t.Add(add)} {
			batch = append(batch, messages...)
		}
	}
	return batch
}

// elements adds to a map what a front is led to, but for what another Back has as well.
func (f family) elements(m *nft.Set, front service.Front, back, but service.Back) {
	if len(back.To) == 0 {
		return
	}
	slots := service.Slots
	if front.Proto == f.icmp {
		slots = 1
	}
	head := append(nft.Bytes(front.Addr), front.Proto, 0, 0, 0)
	head = append(append(head, nft.Port(front.Port)...), 0, 0)
	// All keys and data lie in one piece of memory: a sandbox that comes can have a hundred thousand.
	room := make([]byte, 0, slots*int(m.Length+m.DataLength))
	for i := range slots {
		to := back.Slot(i)
		if len(but.To) > 0 && but.Slot(i) == to {
			continue
		}
		from := len(room)
		room = binary.NativeEndian.AppendUint32(append(room, head...), uint32(i))
		middle := len(room)
		if a := to.Addr(); a.Is4() {
			four := a.As4()
			room = append(room, four[:]...)
		} else {
			sixteen := a.As16()
			room = append(room, sixteen[:]...)
		}
		room = append(binary.BigEndian.AppendUint16(room, to.Port()), 0, 0)
		m.Values, m.Data = append(m.Values, room[from:middle:middle]), append(m.Data, room[middle:len(room):len(room)])
	}
}
