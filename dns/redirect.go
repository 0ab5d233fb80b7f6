package dns

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// redirect is a rule in a sandbox that leads what is sent to Docker's resolver to
// sockets of ours instead. In the words of nft(8):
//
//	table ip grapevine-dns { flags owner
//	  chain output { type nat hook output priority -150
//	    meta mark != 0x67760035 ip daddr 127.0.0.11 udp dport 53 dnat to 127.0.0.11:UDP
//	    meta mark != 0x67760035 ip daddr 127.0.0.11 tcp dport 53 dnat to 127.0.0.11:TCP } }
//
// It comes before Docker's own rule, of priority -100. The table belongs to the
// socket that made it: whatever ends this process, the kernel removes it. That is
// why it is not made with nft(8), whose table would go when nft ends, and needs
// Linux 5.12.
type redirect struct {
	fd    int
	close sync.Once
}

const (
	redirectTable = "grapevine-dns"
	redirectChain = "output"
	// beforeDocker is the priority of the chain; -100 is NF_IP_PRI_NAT_DST.
	beforeDocker = -150
)

// newRedirect makes the rule in the calling thread's namespace, at once and whole.
func newRedirect(udpPort, tcpPort uint16) (*redirect, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open a netfilter socket: %w", err)
	}
	r := &redirect{fd: fd}
	if err := r.send(redirectBatch(udpPort, tcpPort)); err != nil {
		r.Close()
		return nil, fmt.Errorf("make nftables table %s, which needs Linux 5.12 with nf_tables: %w", redirectTable, err)
	}
	return r, nil
}

// Close removes the rule.
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

func redirectBatch(udpPort, tcpPort uint16) [][]byte {
	table := func() []*nl.RtAttr { return []*nl.RtAttr{text(unix.NFTA_TABLE_NAME, redirectTable)} }
	hook := nl.NewRtAttr(unix.NFTA_CHAIN_HOOK|unix.NLA_F_NESTED, nil)
	hook.AddRtAttr(unix.NFTA_HOOK_HOOKNUM, be32(unix.NF_INET_LOCAL_OUT))
	priority := int32(beforeDocker)
	hook.AddRtAttr(unix.NFTA_HOOK_PRIORITY, be32(uint32(priority)))
	return [][]byte{
		batchMark(unix.NFNL_MSG_BATCH_BEGIN),
		nftMessage(unix.NFT_MSG_NEWTABLE, append(table(), nl.NewRtAttr(unix.NFTA_TABLE_FLAGS, be32(nftTableOwner)))...),
		nftMessage(unix.NFT_MSG_NEWCHAIN, append(table(), text(unix.NFTA_CHAIN_NAME, redirectChain), hook, text(unix.NFTA_CHAIN_TYPE, "nat"))...),
		nftMessage(unix.NFT_MSG_NEWRULE, append(table(), text(unix.NFTA_RULE_CHAIN, redirectChain), redirectRule(unix.IPPROTO_UDP, udpPort))...),
		nftMessage(unix.NFT_MSG_NEWRULE, append(table(), text(unix.NFTA_RULE_CHAIN, redirectChain), redirectRule(unix.IPPROTO_TCP, tcpPort))...),
		batchMark(unix.NFNL_MSG_BATCH_END),
	}
}

// redirectRule is the expressions of one rule, each leaving a value in register 1
// and comparing it.
func redirectRule(proto byte, port uint16) *nl.RtAttr {
	addr := dockersResolver.Addr().AsSlice()
	list := nl.NewRtAttr(unix.NFTA_RULE_EXPRESSIONS|unix.NLA_F_NESTED, nil)
	for _, e := range []*nl.RtAttr{
		metaExpr(unix.NFT_META_MARK), compareExpr(unix.NFT_CMP_NEQ, binary.NativeEndian.AppendUint32(nil, bypassMark)),
		payloadExpr(unix.NFT_PAYLOAD_NETWORK_HEADER, 16, 4), compareExpr(unix.NFT_CMP_EQ, addr),
		metaExpr(unix.NFT_META_L4PROTO), compareExpr(unix.NFT_CMP_EQ, []byte{proto}),
		payloadExpr(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2), compareExpr(unix.NFT_CMP_EQ, be16(dockersResolver.Port())),
		immediateExpr(unix.NFT_REG_1, addr), immediateExpr(unix.NFT_REG_2, be16(port)),
		expr("nat",
			nl.NewRtAttr(unix.NFTA_NAT_TYPE, be32(unix.NFT_NAT_DNAT)),
			nl.NewRtAttr(unix.NFTA_NAT_FAMILY, be32(unix.AF_INET)),
			nl.NewRtAttr(unix.NFTA_NAT_REG_ADDR_MIN, be32(unix.NFT_REG_1)),
			nl.NewRtAttr(unix.NFTA_NAT_REG_PROTO_MIN, be32(unix.NFT_REG_2))),
	} {
		list.AddChild(e)
	}
	return list
}
