package nft

import (
	"encoding/binary"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Hook is a function that the kernel calls for each packet at a hook of netfilter, whoever has put it there.
type Hook struct {
	Function, Module string // no module: it is in the kernel itself
	Chain            bool   // it is of a base chain of nftables
}

// Hooks are the functions at a hook, of a family or, with NFPROTO_NETDEV, of an interface. The error is EINVAL if this kernel
// does not list any (CONFIG_NETFILTER_NETLINK_HOOK). Package netlink drops these answers: they have no port.
func (c *Conn) Hooks(family byte, number uint32, device string) (list []Hook, err error) {
	const subsystem, get = 12, 0        // NFNL_SUBSYS_HOOK, NFNL_MSG_HOOK_GET
	const numberKind, deviceKind = 1, 3 // NFNLA_HOOK_HOOKNUM, NFNLA_HOOK_DEV
	body := []byte{family, unix.NFNETLINK_V0, 0, 0}
	body = append(body, nl.NewRtAttr(numberKind, binary.BigEndian.AppendUint32(nil, number)).Serialize()...)
	if device != "" {
		body = append(body, text(deviceKind, device).Serialize()...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	replies, err := c.dump(message(subsystem<<8|get, unix.NLM_F_DUMP, body))
	if err != nil {
		return nil, err
	}
	for _, attrs := range replies {
		list = append(list, HookOf(attrs))
	}
	return list, nil
}

// HookOf is the one that attributes of the kernel's say.
func HookOf(attrs []byte) Hook {
	const function, module, info, kind = 4, 5, 6, 2 // NFNLA_HOOK_FUNCTION_NAME, ..._MODULE_NAME, ..._CHAIN_INFO, NFNLA_HOOK_INFO_TYPE
	const ofNFTables = 1                            // NFNL_HOOK_TYPE_NFTABLES
	return Hook{
		Function: name(attrs, function), Module: name(attrs, module),
		Chain: number(attribute(attribute(attrs, info), kind)) == ofNFTables,
	}
}
