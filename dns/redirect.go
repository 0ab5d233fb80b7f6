package dns

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// redirect is a table of rules that lead questions to sockets of ours. The table belongs
// to the netlink socket that made it: whatever ends this process, the kernel removes it,
// and questions go where they went before. That is why it is not made with nft(8),
// whose table would go when nft ends, nor with iptables, whose would stay; and it
// needs Linux 5.12.
type redirect struct {
	fd    int
	close sync.Once
}

// table says what is in a redirect's table, of which a namespace has one for a family.
type table struct {
	name   string
	family byte   // unix.AF_INET or unix.AF_INET6
	hook   uint32 // of its only chain
	rules  []*nl.RtAttr
}

const (
	redirectTable = "grapevine-dns"
	redirectChain = "questions"
	// beforeDocker is the priority of the chain; -100 is NF_IP_PRI_NAT_DST, which
	// Docker's rules have, and those of iptables.
	beforeDocker = -150
)

// newRedirect makes the table in the calling thread's namespace, at once and whole.
func newRedirect(t table) (*redirect, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open a netfilter socket: %w", err)
	}
	r := &redirect{fd: fd}
	if err := r.send(t.batch()); err != nil {
		r.Close()
		return nil, fmt.Errorf("make nftables table %s, which needs Linux 5.12 with nf_tables: %w", t.name, err)
	}
	return r, nil
}

// Close removes the table.
func (r *redirect) Close() { r.close.Do(func() { _ = unix.Close(r.fd) }) }

// send sends a batch and reads the acknowledgements of its messages.
func (r *redirect) send(messages [][]byte) error {
	var batch []byte
	for _, m := range messages {
		batch = append(batch, m...)
	}
	timeout := unix.Timeval{Sec: 2}
	if err := unix.SetsockoptTimeval(r.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return err
	}
	if err := unix.Sendto(r.fd, batch, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	buf := make([]byte, 1<<16)
	for acks := len(messages) - 2; acks > 0; {
		n, _, err := unix.Recvfrom(r.fd, buf, 0)
		if err != nil {
			return err
		}
		for msg := buf[:n]; len(msg) >= unix.NLMSG_HDRLEN+4; acks-- {
			if code := int32(binary.NativeEndian.Uint32(msg[unix.NLMSG_HDRLEN:])); code != 0 {
				return unix.Errno(-code)
			}
			msg = msg[min(int(binary.NativeEndian.Uint32(msg)+3)&^3, len(msg)):]
		}
	}
	return nil
}

func (t table) batch() [][]byte {
	name := func() *nl.RtAttr { return text(unix.NFTA_TABLE_NAME, t.name) }
	hook := nl.NewRtAttr(unix.NFTA_CHAIN_HOOK|unix.NLA_F_NESTED, nil)
	hook.AddRtAttr(unix.NFTA_HOOK_HOOKNUM, be32(t.hook))
	priority := int32(beforeDocker)
	hook.AddRtAttr(unix.NFTA_HOOK_PRIORITY, be32(uint32(priority)))
	batch := [][]byte{
		batchMark(unix.NFNL_MSG_BATCH_BEGIN),
		nftMessage(t.family, unix.NFT_MSG_NEWTABLE, name(), nl.NewRtAttr(unix.NFTA_TABLE_FLAGS, be32(nftTableOwner))),
		nftMessage(t.family, unix.NFT_MSG_NEWCHAIN, name(), text(unix.NFTA_CHAIN_NAME, redirectChain), hook, text(unix.NFTA_CHAIN_TYPE, "nat")),
	}
	for _, r := range t.rules {
		batch = append(batch, nftMessage(t.family, unix.NFT_MSG_NEWRULE, name(), text(unix.NFTA_RULE_CHAIN, redirectChain), r))
	}
	return append(batch, batchMark(unix.NFNL_MSG_BATCH_END))
}

// insideTable leads a container's questions to Docker's resolver to the two ports
// of ours instead. In the words of nft(8):
//
//	table ip grapevine-dns { flags owner
//	  chain questions { type nat hook output priority -150
//	    meta mark != 0x67760035 ip daddr 127.0.0.11 udp dport 53 dnat to 127.0.0.11:UDP
//	    meta mark != 0x67760035 ip daddr 127.0.0.11 tcp dport 53 dnat to 127.0.0.11:TCP } }
func insideTable(udpPort, tcpPort uint16) table {
	addr := dockersResolver.Addr().AsSlice()
	rule := func(proto byte, port uint16) *nl.RtAttr {
		toDocker := append([]*nl.RtAttr{
			metaExpr(unix.NFT_META_MARK), compareExpr(unix.NFT_CMP_NEQ, binary.NativeEndian.AppendUint32(nil, bypassMark)),
			payloadExpr(unix.NFT_PAYLOAD_NETWORK_HEADER, 16, 4), compareExpr(unix.NFT_CMP_EQ, addr),
		}, toPort53(proto)...)
		return ruleOf(append(toDocker,
			immediateExpr(unix.NFT_REG_1, addr), immediateExpr(unix.NFT_REG_2, be16(port)),
			expr("nat",
				nl.NewRtAttr(unix.NFTA_NAT_TYPE, be32(unix.NFT_NAT_DNAT)),
				nl.NewRtAttr(unix.NFTA_NAT_FAMILY, be32(unix.AF_INET)),
				nl.NewRtAttr(unix.NFTA_NAT_REG_ADDR_MIN, be32(unix.NFT_REG_1)),
				nl.NewRtAttr(unix.NFTA_NAT_REG_PROTO_MIN, be32(unix.NFT_REG_2))))...)
	}
	return table{name: redirectTable, family: unix.AF_INET, hook: unix.NF_INET_LOCAL_OUT, rules: []*nl.RtAttr{rule(unix.IPPROTO_UDP, udpPort), rule(unix.IPPROTO_TCP, tcpPort)}}
}

// gatewayTable leads what comes in at a device for port 53, of whichever server, to a
// port of the host's. In the words of nft(8):
//
//	table ip grapevine-dns { flags owner
//	  chain questions { type nat hook prerouting priority -150
//	    iifname "gv0" udp dport 53 redirect to :PORT
//	    iifname "gv0" tcp dport 53 redirect to :PORT } }
func gatewayTable(family byte, device string, port uint16) table {
	t := table{name: redirectTable, family: family, hook: unix.NF_INET_PRE_ROUTING}
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, device)
	for _, proto := range []byte{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
		asked := append([]*nl.RtAttr{metaExpr(unix.NFT_META_IIFNAME), compareExpr(unix.NFT_CMP_EQ, name)}, toPort53(proto)...)
		t.rules = append(t.rules, ruleOf(append(asked,
			immediateExpr(unix.NFT_REG_1, be16(port)), expr("redir", nl.NewRtAttr(unix.NFTA_REDIR_REG_PROTO_MIN, be32(unix.NFT_REG_1))))...))
	}
	return t
}

// toPort53 ends a rule for packets that are not of the protocol or not for the port.
func toPort53(proto byte) []*nl.RtAttr {
	return []*nl.RtAttr{
		metaExpr(unix.NFT_META_L4PROTO), compareExpr(unix.NFT_CMP_EQ, []byte{proto}),
		payloadExpr(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2), compareExpr(unix.NFT_CMP_EQ, be16(53)),
	}
}

// ruleOf makes a rule of expressions, each leaving a value in a register or comparing it.
func ruleOf(exprs ...*nl.RtAttr) *nl.RtAttr {
	list := nl.NewRtAttr(unix.NFTA_RULE_EXPRESSIONS|unix.NLA_F_NESTED, nil)
	for _, e := range exprs {
		list.AddChild(e)
	}
	return list
}
