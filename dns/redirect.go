package dns

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/nft"
)

// redirect is a table of rules that lead questions to sockets of ours. The table belongs
// to the netlink socket that made it: whatever ends this process, the kernel removes it,
// and questions go where they went before. That is why it is not made with nft(8),
// whose table would go when nft ends, nor with iptables, whose would stay; and it
// needs Linux 5.12.
type redirect struct{ conn *nft.Conn }

const (
	redirectTable = "grapevine-dns"
	redirectChain = "questions"
	// beforeDocker is the priority of the chain; -100 is NF_IP_PRI_NAT_DST, which
	// Docker's rules have, and those of iptables.
	beforeDocker = -150
)

// newRedirect makes the table in the calling thread's namespace, at once and whole. dial is nft.DialInside in a container's.
func newRedirect(dial func() (*nft.Conn, error), t nft.Table) (*redirect, error) {
	conn, err := dial()
	if err != nil {
		return nil, err
	}
	if err := conn.Do(t.Make()); err != nil {
		conn.Close()
		return nil, fmt.Errorf("make nftables table %s, which needs Linux 5.12 with nf_tables: %w", t.Name, err)
	}
	return &redirect{conn}, nil
}

// Close removes the table.
func (r *redirect) Close() { r.conn.Close() }

// redirectTo is a table of which a namespace has one for a family, with a chain at a hook.
func redirectTo(family byte, hook uint32, rules ...[]nft.Expr) nft.Table {
	c := nft.Chain{Name: redirectChain, Type: "nat", Hook: hook, Priority: beforeDocker}
	for _, r := range rules {
		c.Rules = append(c.Rules, nft.Rule{Exprs: r})
	}
	return nft.Table{Name: redirectTable, Family: family, Owned: true, Chains: []nft.Chain{c}}
}

// insideTable leads a container's questions to Docker's resolver to the two ports
// of ours instead. In the words of nft(8):
//
//	table ip grapevine-dns { flags owner
//	  chain questions { type nat hook output priority -150
//	    meta mark != 0x67760035 ip daddr 127.0.0.11 udp dport 53 dnat to 127.0.0.11:UDP
//	    meta mark != 0x67760035 ip daddr 127.0.0.11 tcp dport 53 dnat to 127.0.0.11:TCP } }
func insideTable(udpPort, tcpPort uint16) nft.Table {
	addr := nft.Bytes(dockersResolver.Addr())
	rule := func(proto byte, port uint16) []nft.Expr {
		toDocker := append([]nft.Expr{
			nft.Meta(unix.NFT_META_MARK), nft.NotEqual(binary.NativeEndian.AppendUint32(nil, bypassMark)),
			nft.Addr(false, true), nft.Equal(addr),
		}, toPort53(proto)...)
		return append(toDocker, nft.Immediate(unix.NFT_REG_1, addr), nft.Immediate(unix.NFT_REG_2, nft.Port(port)), nft.DNAT4())
	}
	return redirectTo(unix.AF_INET, unix.NF_INET_LOCAL_OUT, rule(unix.IPPROTO_UDP, udpPort), rule(unix.IPPROTO_TCP, tcpPort))
}

// gatewayTable leads what comes in at a device for port 53, of whichever server, to a
// port of the host's, but for what the resolver asks itself. In the words of nft(8):
//
//	table ip grapevine-dns { flags owner
//	  chain questions { type nat hook prerouting priority -150
//	    iifname "gv0" ip ttl != 119 udp dport 53 redirect to :PORT
//	    iifname "gv0" ip ttl != 119 tcp dport 53 redirect to :PORT } }
func gatewayTable(family byte, device string, port uint16) nft.Table {
	ttlAt := uint32(8) // in a header of IPv4
	if family == unix.AF_INET6 {
		ttlAt = 7
	}
	rule := func(proto byte) []nft.Expr {
		asked := append([]nft.Expr{
			nft.Meta(unix.NFT_META_IIFNAME), nft.Equal(nft.Name(device)),
			nft.Payload(unix.NFT_PAYLOAD_NETWORK_HEADER, ttlAt, 1), nft.NotEqual([]byte{ownTTL}),
		}, toPort53(proto)...)
		return append(asked, nft.Immediate(unix.NFT_REG_1, nft.Port(port)), nft.Redirect())
	}
	return redirectTo(family, unix.NF_INET_PRE_ROUTING, rule(unix.IPPROTO_UDP), rule(unix.IPPROTO_TCP))
}

// toPort53 ends a rule for packets that are not of the protocol or not for the port.
func toPort53(proto byte) []nft.Expr {
	return []nft.Expr{nft.Meta(unix.NFT_META_L4PROTO), nft.Equal([]byte{proto}), nft.DestinationPort(), nft.Equal(nft.Port(53))}
}
