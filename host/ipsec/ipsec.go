// Package ipsec reads the kernel's IPsec policies (XFRM, RFC 4301's security policy database) and says whether they protect
// what a host's VXLAN sends and takes. It sets none: policies and keys are an administrator's, or a daemon's.
package ipsec

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link"
)

// Policies are those of a family; a kernel without XFRM has none. netlink's own list takes prefixes of IPv6 that end in
// zeros for IPv4.
func Policies(v6 bool) ([]netlink.XfrmPolicy, error) {
	family := byte(unix.AF_INET)
	if v6 {
		family = unix.AF_INET6
	}
	messages, err := link.Dump(func() ([][]byte, error) {
		req := nl.NewNetlinkRequest(nl.XFRM_MSG_GETPOLICY, unix.NLM_F_DUMP)
		req.AddData(nl.NewIfInfomsg(int(family)))
		return req.Execute(unix.NETLINK_XFRM, nl.XFRM_MSG_NEWPOLICY)
	})
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for IPsec policies: %w", err)
	}
	var list []netlink.XfrmPolicy
	for _, m := range messages {
		p, of, err := parse(m)
		if err != nil {
			return nil, fmt.Errorf("read an IPsec policy: %w", err)
		}
		if of == family {
			list = append(list, p)
		}
	}
	return list, nil
}

// parse reads a struct xfrm_userpolicy_info and its attributes (linux/xfrm.h), and says of which family it is.
func parse(m []byte) (p netlink.XfrmPolicy, family byte, err error) {
	if len(m) < nl.SizeofXfrmUserpolicyInfo {
		return p, 0, errors.New("it is too short")
	}
	info := nl.DeserializeXfrmUserpolicyInfo(m)
	p = netlink.XfrmPolicy{
		Dir: netlink.Dir(info.Dir), Action: netlink.PolicyAction(info.Action), Priority: int(info.Priority), Index: int(info.Index),
		Src: prefix(info.Sel.Saddr, info.Sel.PrefixlenS, byte(info.Sel.Family)), Dst: prefix(info.Sel.Daddr, info.Sel.PrefixlenD, byte(info.Sel.Family)),
		Proto: netlink.Proto(info.Sel.Proto), SrcPort: int(nl.Swap16(info.Sel.Sport)), DstPort: int(nl.Swap16(info.Sel.Dport)), Ifindex: int(info.Sel.Ifindex),
	}
	attrs, err := nl.ParseRouteAttr(m[nl.SizeofXfrmUserpolicyInfo:])
	if err != nil {
		return p, 0, err
	}
	for _, a := range attrs {
		switch {
		case a.Attr.Type == nl.XFRMA_TMPL:
			for b := a.Value; len(b) >= nl.SizeofXfrmUserTmpl; b = b[nl.SizeofXfrmUserTmpl:] {
				t := nl.DeserializeXfrmUserTmpl(b[:nl.SizeofXfrmUserTmpl])
				p.Tmpls = append(p.Tmpls, netlink.XfrmPolicyTmpl{Proto: netlink.Proto(t.XfrmId.Proto), Mode: netlink.Mode(t.Mode), Optional: int(t.Optional)})
			}
		case a.Attr.Type == nl.XFRMA_MARK && len(a.Value) >= nl.SizeofXfrmMark:
			mark := nl.DeserializeXfrmMark(a.Value)
			p.Mark = &netlink.XfrmMark{Value: mark.Value, Mask: mark.Mask}
		case a.Attr.Type == nl.XFRMA_IF_ID && len(a.Value) >= 4:
			p.Ifid = int(binary.NativeEndian.Uint32(a.Value))
		}
	}
	return p, byte(info.Sel.Family), nil
}

// prefix is one of that family, whatever its bytes are.
func prefix(a nl.XfrmAddress, bits uint8, family byte) *net.IPNet {
	if family == unix.AF_INET6 {
		return &net.IPNet{IP: a[:], Mask: net.CIDRMask(int(bits), 128)}
	}
	return &net.IPNet{IP: a[:4], Mask: net.CIDRMask(int(bits), 32)}
}

// Way is where VXLAN packets go between two hosts: by UDP, to Port, from any port.
type Way struct {
	Here, There netip.Addr
	Port        uint16
	Device      int // the index of this host's interface
}

// ErrBare is of a policy by which packets pass with a transformation that encrypts nothing: who asks whether there is one
// takes them for protected.
var ErrBare = errors.New("asks for no ESP")

// Unprotected says why packets one way or the other may pass in the clear, or would not pass at all; nil: of all of them
// the policies ask for ESP. Which algorithms, and whether there are keys, is not looked at. It is pure.
func Unprotected(policies []netlink.XfrmPolicy, w Way) error {
	if err := unprotected(policies, netlink.XFRM_DIR_OUT, w.Here, w.There, w); err != nil {
		return err
	}
	return unprotected(policies, netlink.XFRM_DIR_IN, w.There, w.Here, w)
}

// unprotected looks at the policies of one direction in the order in which the kernel asks them: the lowest priority
// first. Of several with the same one, all have to do.
func unprotected(policies []netlink.XfrmPolicy, dir netlink.Dir, from, to netip.Addr, w Way) error {
	var asked []netlink.XfrmPolicy
	for _, p := range policies {
		if p.Dir == dir && touches(p, from, to, w) {
			asked = append(asked, p)
		}
	}
	slices.SortStableFunc(asked, func(a, b netlink.XfrmPolicy) int { return cmp.Compare(a.Priority, b.Priority) })
	covered, at := false, 0
	for _, p := range asked {
		if covered && p.Priority > at {
			break
		}
		if !esp(p) {
			return fmt.Errorf("the IPsec policy %s from %s to %s (priority %d) %w", dir, network(p.Src), network(p.Dst), p.Priority, without(p))
		}
		if p.SrcPort == 0 { // VXLAN sends from any port
			covered, at = true, p.Priority
		}
	}
	if !covered {
		return fmt.Errorf("no IPsec policy %s is for UDP port %d from %s to %s", dir, w.Port, from, to)
	}
	return nil
}

// touches reports whether some of the packets are for the policy.
func touches(p netlink.XfrmPolicy, from, to netip.Addr, w Way) bool {
	switch {
	case p.Mark != nil && p.Mark.Value&p.Mark.Mask != 0, p.Ifid != 0, p.Ifindex != 0 && p.Ifindex != w.Device: // ours have neither
		return false
	case p.Proto != 0 && p.Proto != unix.IPPROTO_UDP, p.DstPort != 0 && p.DstPort != int(w.Port):
		return false
	}
	return Contains(p.Src, from) && Contains(p.Dst, to)
}

// esp reports whether a policy lets pass what ESP protects, and nothing else.
func esp(p netlink.XfrmPolicy) bool {
	if p.Action != netlink.XFRM_POLICY_ALLOW {
		return false
	}
	return slices.ContainsFunc(p.Tmpls, func(t netlink.XfrmPolicyTmpl) bool { return t.Proto == netlink.XFRM_PROTO_ESP && t.Optional == 0 })
}

var (
	errBlocks   = errors.New("lets nothing pass (action block)")
	errPasses   = errors.New("lets packets pass as they are")
	errOptional = errors.New("asks for ESP only where there are keys (level use)")
)

// without says what a policy does that does not ask for ESP alone.
func without(p netlink.XfrmPolicy) error {
	switch {
	case p.Action != netlink.XFRM_POLICY_ALLOW:
		return errBlocks
	case slices.ContainsFunc(p.Tmpls, func(t netlink.XfrmPolicyTmpl) bool { return t.Optional == 0 }):
		return ErrBare
	case len(p.Tmpls) == 0:
		return errPasses
	}
	return errOptional
}

// Contains reports whether an end of a policy is for an address: one that says nothing is for all.
func Contains(n *net.IPNet, a netip.Addr) bool { return n == nil || n.Contains(a.AsSlice()) }

func network(n *net.IPNet) string {
	if n == nil {
		return "anywhere"
	}
	return n.String()
}

// Disabled says why a device passes IPsec by, whatever the policies are; nil: it does not
// (disable_xfrm and disable_policy of ip-sysctl in the kernel's documentation).
func Disabled(device string) error {
	for _, at := range [][2]string{{device, "disable_xfrm"}, {"all", "disable_xfrm"}, {device, "disable_policy"}, {"all", "disable_policy"}} {
		text, err := os.ReadFile("/proc/sys/net/ipv4/conf/" + at[0] + "/" + at[1])
		if err == nil && strings.TrimSpace(string(text)) == "1" {
			return fmt.Errorf("net.ipv4.conf.%s.%s is 1", at[0], at[1])
		}
	}
	return nil
}
