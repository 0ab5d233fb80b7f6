package inside

import (
	"encoding/binary"
	"fmt"

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
	v6                         bool
	nfproto                    byte
	echo, icmp                 byte // the type of an ICMP message that asks for an echo; the protocol
	addresses, sizes, replicas string
	words                      uint32 // of four bytes, that an address has
	addrType                   uint32
}

var families = [...]family{
	{nfproto: unix.NFPROTO_IPV4, echo: 8, icmp: service.ICMP, addresses: "addresses4", sizes: "sizes4", replicas: "replicas4", words: 1, addrType: nft.TypeIPv4},
	{v6: true, nfproto: unix.NFPROTO_IPV6, echo: 128, icmp: service.ICMPv6, addresses: "addresses6", sizes: "sizes6", replicas: "replicas6", words: 4, addrType: nft.TypeIPv6},
}

// word is the register of the n-th four bytes.
func word(n uint32) uint32 { return unix.NFT_REG32_00 + n }

// frame is the table without what is in its maps. In the words of nft(8), of IPv4:
//
//	table inet grapevine-services {
//	  set addresses4 { type ipv4_addr }
//	  map sizes4 { type ipv4_addr . inet_proto . inet_service : verdict }
//	  map replicas4 { type ipv4_addr . inet_proto . inet_service . mark : ipv4_addr . inet_service }
//	  chain lead { type nat hook output priority -150
//	    meta nfproto ipv4 icmp type echo-request dnat to ip daddr . icmp . 0 . 0 map @replicas4
//	    meta nfproto ipv4 ip daddr . meta l4proto . th dport vmap @sizes4 }
//	  chain refuse { type filter hook output priority 0
//	    ip daddr @addresses4 meta l4proto tcp reject with tcp reset
//	    ip daddr @addresses4 reject with icmpx port-unreachable } }
//
// What has ten replicas goes from there to a chain that is made for all that have ten (sized):
//
//	chain replicas4-10 {
//	  meta nfproto ipv4 dnat to ip daddr . meta l4proto . th dport . numgen random mod 10 map @replicas4
//	  meta nfproto ipv4 dnat to ip daddr . meta l4proto . th dport . 0 map @replicas4 } }
//
// So little has to be written for each service in each sandbox. The second rule there is for a packet that looks the size up just before
// a replica goes, and its slot just after it. What the first chain leads has another address when it comes to the one that refuses.
func frame() nft.Table {
	lead := nft.Chain{Name: "lead", Type: "nat", Hook: unix.NF_INET_LOCAL_OUT, Priority: beforeOthers}
	refuse := nft.Chain{Name: "refuse", Type: "filter", Hook: unix.NF_INET_LOCAL_OUT}
	t := nft.Table{Name: tableName, Family: nft.Inet}
	for _, f := range families {
		t.Sets = append(t.Sets, f.addressSet(), f.sizeMap(), f.replicaMap())
		size := append(append(f.is(), f.front()...), nft.Look(f.sizes, unix.NFT_REG_VERDICT))
		lead.Rules = append(lead.Rules, nft.Rule{Exprs: f.pings()}, nft.Rule{Exprs: size})
		refuse.Rules = append(refuse.Rules, nft.Rule{Exprs: f.refuse(true)}, nft.Rule{Exprs: f.refuse(false)})
	}
	t.Chains = []nft.Chain{lead, refuse}
	return t
}

func (f family) addressSet() nft.Set {
	return nft.Set{Name: f.addresses, Type: f.addrType, Length: 4 * f.words}
}

func (f family) sizeMap() nft.Set {
	return nft.Set{Name: f.sizes, Type: nft.Concat(f.addrType, nft.TypeProto, nft.TypePort), Length: 4 * (f.words + 2), DataType: nft.TypeVerdict}
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

// front loads the first parts of a key.
func (f family) front() []nft.Expr {
	return []nft.Expr{nft.Addr(f.v6, true), nft.MetaTo(word(f.words), unix.NFT_META_L4PROTO), nft.PayloadTo(word(f.words+1), unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2)}
}

// pings are led to one replica: each slot of each service has to be written in each sandbox.
func (f family) pings() []nft.Expr {
	return append(f.is(),
		nft.Meta(unix.NFT_META_L4PROTO), nft.Equal([]byte{f.icmp}),
		nft.Payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 0, 1), nft.Equal([]byte{f.echo}),
		nft.Addr(f.v6, true), nft.MetaTo(word(f.words), unix.NFT_META_L4PROTO), nft.Immediate(word(f.words+1), nft.Port(0)),
		first(word(f.words+2)), nft.Look(f.replicas, unix.NFT_REG_1), nft.DNAT(f.v6, 0))
}

func first(slot uint32) nft.Expr { return nft.Immediate(slot, make([]byte, 4)) }

// sized is the chain for what has so many replicas.
func (f family) sized(n int) nft.Chain {
	c := nft.Chain{Name: f.sizedName(n)}
	for _, slot := range []nft.Expr{nft.Random(word(f.words+2), uint32(n)), first(word(f.words + 2))} {
		rule := append(append(f.is(), f.front()...), slot, nft.Look(f.replicas, unix.NFT_REG_1), nft.DNAT(f.v6, word(f.words)))
		c.Rules = append(c.Rules, nft.Rule{Exprs: rule})
	}
	return c
}

func (f family) sizedName(n int) string { return fmt.Sprint(f.replicas, "-", n) }

func (f family) refuse(tcp bool) []nft.Expr {
	rule := append(f.is(), nft.Addr(f.v6, true), nft.In(f.addresses, false))
	if tcp {
		rule = append(rule, nft.Meta(unix.NFT_META_L4PROTO), nft.Equal([]byte{unix.IPPROTO_TCP}))
	}
	return append(rule, nft.Refuse(tcp))
}

// sizes are those for which there is a chain (sized), of each family a bit for each.
type sizes [len(families)]uint64

// whole are the messages that put a table in the place of what is there, and the sizes it has then.
func whole(t service.Table) ([][]byte, sizes) {
	if len(t) == 0 {
		none := nft.Table{Name: tableName, Family: nft.Inet}
		return append(none.Make(), none.Remove()...), sizes{} // it need not be there
	}
	batch, has := differences(nil, t, sizes{})
	return append(frame().Anew(), batch...), has
}

// differences are the messages that make of one table, which has these sizes, another one, and the sizes that this has; the fronts
// that do not differ may be missing in both.
func differences(from, to service.Table, has sizes) (batch [][]byte, more sizes) {
	t := frame()
	for i, f := range families {
		gone, came := f.addressSet(), f.addressSet()
		shrink, grow := f.sizeMap(), f.sizeMap()
		take, add := f.replicaMap(), f.replicaMap()
		for front, was := range from {
			if front.Addr.Is6() == f.v6 {
				f.size(&shrink, front, was, to[front])
				f.elements(&take, front, was, to[front])
				if _, now := to[front]; front.Proto == f.icmp && !now { // every service has that front
					gone.Values = append(gone.Values, nft.Bytes(front.Addr))
				}
			}
		}
		for front, is := range to {
			if front.Addr.Is6() == f.v6 {
				if n := len(is.To); f.size(&grow, front, is, from[front]) && has[i]>>n&1 == 0 {
					has[i] |= 1 << n
					batch = append(batch, t.Join(f.sized(n))...)
				}
				f.elements(&add, front, is, from[front])
				if _, before := from[front]; front.Proto == f.icmp && !before {
					came.Values = append(came.Values, nft.Bytes(front.Addr))
				}
			}
		}
		for _, messages := range [][][]byte{t.Take(gone), t.Add(came), t.Take(shrink), t.Add(grow), t.Take(take), t.Add(add)} {
			batch = append(batch, messages...)
		}
	}
	return batch, has
}

// key is a front as the maps' keys begin with it.
func key(front service.Front) []byte {
	return append(append(append(nft.Bytes(front.Addr), front.Proto, 0, 0, 0), nft.Port(front.Port)...), 0, 0)
}

// size adds to a map by which chain a front goes, unless another Back has as many replicas; it reports whether it did.
func (f family) size(m *nft.Set, front service.Front, back, but service.Back) bool {
	n := len(back.To)
	if n == 0 || n == len(but.To) || front.Proto == f.icmp {
		return false
	}
	m.Values, m.Data = append(m.Values, key(front)), append(m.Data, []byte(f.sizedName(n)))
	return true
}

// elements adds to a map what a front is led to, but for what another Back has as well.
func (f family) elements(m *nft.Set, front service.Front, back, but service.Back) {
	slots := len(back.To)
	if front.Proto == f.icmp {
		slots = min(slots, 1)
	}
	head := key(front)
	// All keys and data lie in one piece of memory: a sandbox that comes can have ten thousand.
	room := make([]byte, 0, slots*int(m.Length+m.DataLength))
	for i := range slots {
		to := back.Slot(i)
		if i < len(but.To) && but.Slot(i) == to {
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
