package bypass

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/nft"
)

// MAC is an Ethernet address.
type MAC [6]byte

// Ports are of a bridge that has the underlay's address. Linux before 6.19 cuts what is in a tunnel at a bridge, as no bridge says
// that it need not (hw_enc_features). Where the bridge would do nothing but hand it to a port, it may go to that at once.
type Ports struct {
	By  map[MAC]int // the port behind which other hosts, or routers to them, are
	Why error       // what a bridge may do to packets that leave by it, so that none goes to a port at once
}

// bridge is what is to be heard of.
type bridge struct {
	ports  map[MAC]int
	behind map[int]bool       // those ports, and others behind which somebody is, by which nothing leaves at once
	hops   map[netip.Addr]MAC // whose MAC address it is; zero: it is not known
	all    bool               // it is being read: whatever happens may matter
	closed bool               // nothing goes to a port, whatever happens
}

// uses reports whether an interface is a port by which packets leave.
func (b *bridge) uses(index int) bool {
	return b != nil && !b.closed && (b.all || b.behind[index])
}

// moved reports whether it matters that a bridge has learned, or forgotten, behind which port a MAC address is.
func (b *bridge) moved(mac MAC, port int, gone bool) bool {
	if b == nil || b.closed {
		return false
	}
	if b.all {
		return true
	}
	if now, is := b.ports[mac]; is {
		return gone || now != port
	}
	for _, m := range b.hops {
		if m == mac {
			return !gone
		}
	}
	return false
}

// renumbered reports whether it matters that a neighbour has a MAC address.
func (b *bridge) renumbered(a netip.Addr, mac MAC) bool {
	if b == nil || b.closed {
		return false
	}
	was, is := b.hops[a]
	return b.all || is && was != mac
}

// bridgeOf is the bridge by which t leaves this host; nil: it leaves by none.
func bridgeOf(t Traffic) *netlink.Bridge {
	l, err := netlink.LinkByIndex(t.Index)
	if err != nil {
		return nil // which look says
	}
	nic, _ := l.(*netlink.Bridge)
	return nic
}

// portsOf reads the ports by which t leaves nic; nil: it is no bridge. Of what cannot be read, none are.
func portsOf(t Traffic, nic *netlink.Bridge) (Ports, *bridge) {
	if nic == nil {
		return Ports{Why: vlanOfBridge(t)}, nil
	}
	err := plainBridge(t, nic)
	if err == nil {
		var b *bridge
		if b, err = readPorts(t, nic); b != nil {
			return Ports{By: b.ports, Why: err}, b
		}
	}
	return Ports{Why: err}, &bridge{closed: true}
}

// vlanOfBridge says that t leaves by a VLAN of a bridge, which says of itself what the bridge does.
func vlanOfBridge(t Traffic) error {
	l, err := netlink.LinkByIndex(t.Index)
	if err != nil {
		return nil // which look says
	}
	if _, is := l.(*netlink.Vlan); !is {
		return nil
	}
	below, err := netlink.LinkByIndex(l.Attrs().ParentIndex)
	if err != nil || below.Type() != "bridge" {
		return nil
	}
	return fmt.Errorf("%s is a VLAN of the bridge %s", t.Device, below.Attrs().Name)
}

// readPorts reads behind which ports of nic others are. The error, beside a bridge, says why some are not among them.
func readPorts(t Traffic, nic *netlink.Bridge) (*bridge, error) {
	b := &bridge{ports: map[MAC]int{}, behind: map[int]bool{}, hops: map[netip.Addr]MAC{}}
	neighbours, err := link.Dump(func() ([]netlink.Neigh, error) { return netlink.NeighList(t.Index, unix.AF_INET) })
	if err != nil {
		return nil, fmt.Errorf("read the neighbours at %s: %w", t.Device, err)
	}
	for _, p := range t.Peers {
		routes, err := netlink.RouteGetWithOptions(net.IP(p.AsSlice()), &netlink.RouteGetOptions{SrcAddr: net.IP(t.Own.AsSlice())})
		if err != nil || len(routes) == 0 || routes[0].LinkIndex != t.Index {
			continue // not by the bridge, or not at all
		}
		hop := p
		if gw, ok := netip.AddrFromSlice(routes[0].Gw); ok {
			hop = gw.Unmap()
		}
		b.hops[hop] = MAC{}
	}
	wanted := map[MAC]bool{}
	for _, n := range neighbours {
		if a, ok := netip.AddrFromSlice(n.IP); ok && len(n.HardwareAddr) == len(MAC{}) {
			if _, is := b.hops[a.Unmap()]; is {
				b.hops[a.Unmap()] = MAC(n.HardwareAddr)
				wanted[MAC(n.HardwareAddr)] = true
			}
		}
	}
	forwarding, err := forwardingPorts(t.Index)
	if err != nil {
		return nil, err
	}
	entries, err := link.Dump(func() ([]netlink.Neigh, error) { return netlink.NeighList(0, unix.AF_BRIDGE) })
	if err != nil {
		return nil, fmt.Errorf("read behind which ports of %s other hosts are: %w", t.Device, err)
	}
	conn, err := nft.Dial()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	rules, err := conn.Ruleset(nft.Inet, familyNetdev)
	if err != nil {
		return nil, fmt.Errorf("read the rules of nftables: %w", err)
	}
	var why error
	for _, e := range entries {
		if len(e.HardwareAddr) != len(MAC{}) || !wanted[MAC(e.HardwareAddr)] || e.MasterIndex != t.Index || e.Flags&netlink.NTF_SELF != 0 || e.Vlan != 0 ||
			e.State&unix.NUD_PERMANENT != 0 {
			continue // not of this bridge, or an address of its own
		}
		if b.behind[e.LinkIndex] = true; !slices.Contains(forwarding, e.LinkIndex) {
			continue // where nothing leaves
		}
		if err := plainPort(rules, e.LinkIndex, nic.Attrs().MTU); err != nil {
			why = err
			continue
		}
		b.ports[MAC(e.HardwareAddr)] = e.LinkIndex
	}
	return b, why
}

// plainBridge names what a bridge may do to what its host sends but hand it to a port.
func plainBridge(t Traffic, nic *netlink.Bridge) error {
	if nic.VlanFiltering == nil || *nic.VlanFiltering {
		return fmt.Errorf("the bridge %s filters VLANs", t.Device)
	}
	if err := atBridge(t); err != nil {
		return err
	}
	what, err := link.FiltersBehind(t.Device)
	if err == nil && what != "" {
		err = fmt.Errorf("%s looks at what leaves by %s", what, t.Device)
	}
	if err != nil {
		return err
	}
	conn, err := nft.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	rules, err := conn.Ruleset(unix.NFPROTO_BRIDGE)
	if err != nil {
		return fmt.Errorf("read the rules of nftables for bridges: %w", err)
	}
	return bridgeRules(rules)
}

// Hooks of bridges (linux/netfilter_bridge.h) that what the host sends passes.
const (
	bridgeOutput      = 3 // NF_BR_LOCAL_OUT
	bridgePostrouting = 4 // NF_BR_POST_ROUTING
)

// bridgeRules names a chain of nftables, or of ebtables on it, for what a host sends by a bridge.
func bridgeRules(rules *nft.Ruleset) error {
	for _, table := range rules.Tables {
		for _, c := range table.Chains {
			if table.Family == unix.NFPROTO_BRIDGE && c.Base && (c.Hook == bridgeOutput || c.Hook == bridgePostrouting) {
				return fmt.Errorf("the chain %s of nftables' table %s looks at what bridges send", c.Name, table.Name)
			}
		}
	}
	return nil
}

// understoodAtBridges are functions that do nothing to what the host sends: br_netfilter's are of what is forwarded.
var understoodAtBridges = map[string]string{"br_nf_post_routing": "br_netfilter"}

// atBridge is of what the kernel tells no news: ebtables-legacy, other hooks of bridges but chains, and tcx programs.
func atBridge(t Traffic) error {
	what, err := link.ProgramsBehind(t.Index)
	if err == nil && what != "" {
		err = fmt.Errorf("%s looks at what leaves by %s", what, t.Device)
	}
	if err != nil {
		return err
	}
	if unlisted.Load() {
		return noEbtables()
	}
	conn, err := nft.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, n := range []uint32{bridgeOutput, bridgePostrouting} {
		list, err := conn.Hooks(unix.NFPROTO_BRIDGE, n, "")
		switch {
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EAFNOSUPPORT): // there is no such hook
			continue
		case err != nil:
			return fmt.Errorf("list the hooks of bridges: %w", err)
		}
		if err := unknownHook(list, understoodAtBridges); err != nil {
			return fmt.Errorf("at bridges: %w", err)
		}
	}
	return nil
}

// ebtables: this kernel has ebtables-legacy. Asked again, it would look for a module each time.
var ebtables atomic.Bool

// noEbtables is of a kernel that does not list its hooks: it may not even know ebtables-legacy.
func noEbtables() error {
	const getInfo = 128 // EBT_SO_GET_INFO
	errKnown := errors.New("the kernel has ebtables-legacy, which may look at what bridges send, and does not list its hooks")
	if ebtables.Load() {
		return errKnown
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return fmt.Errorf("ask for ebtables-legacy: %w", err)
	}
	defer unix.Close(fd)
	const size = 120 // of struct ebt_replace
	if err := sockopt(fd, getInfo, make([]byte, size)); !errors.Is(err, unix.ENOPROTOOPT) {
		ebtables.Store(true)
		return errKnown
	}
	return nil
}

// plainPort says why what a bridge sends by a port may not go there at once. Its qdisc, and tc programs at what leaves, see it all the same.
func plainPort(rules *nft.Ruleset, index, mtu int) error {
	l, err := netlink.LinkByIndex(index)
	if err != nil {
		return fmt.Errorf("port %d of a bridge: %w", index, err)
	}
	a := l.Attrs()
	if a.MTU < mtu {
		return fmt.Errorf("the port %s of the bridge has a smaller MTU", a.Name)
	}
	if err := atInterfaces(rules, Traffic{Device: a.Name, Tunnel: a.Name}); err != nil {
		return err
	}
	if unlisted.Load() {
		return nil
	}
	conn, err := nft.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	list, err := conn.Hooks(familyNetdev, atEgress, a.Name)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil
	}
	if err == nil {
		err = unknownHook(list, nil)
	}
	if err != nil {
		return fmt.Errorf("at the interface %s: %w", a.Name, err)
	}
	return nil
}

// forwardingPorts are the ports of a bridge that its spanning tree, or somebody, lets send.
func forwardingPorts(master int) ([]int, error) {
	const stateKind, forwarding = 1, 3 // IFLA_BRPORT_STATE, BR_STATE_FORWARDING
	return link.Dump(func() (out []int, err error) {
		req := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
		req.AddData(nl.NewIfInfomsg(unix.AF_BRIDGE))
		list, err := req.Execute(unix.NETLINK_ROUTE, 0)
		if err != nil {
			return nil, fmt.Errorf("read the ports of bridges: %w", err)
		}
		for _, m := range list {
			head := nl.DeserializeIfInfomsg(m)
			attrs, err := nl.ParseRouteAttr(m[head.Len():])
			if err != nil {
				return nil, fmt.Errorf("read the ports of bridges: %w", err)
			}
			of, state := 0, byte(0)
			for _, a := range attrs {
				switch a.Attr.Type &^ unix.NLA_F_NESTED {
				case unix.IFLA_MASTER:
					of = int(nl.NativeEndian().Uint32(a.Value))
				case unix.IFLA_PROTINFO:
					port, err := nl.ParseRouteAttr(a.Value)
					if err != nil {
						return nil, fmt.Errorf("read the ports of bridges: %w", err)
					}
					for _, p := range port {
						if p.Attr.Type == stateKind && len(p.Value) > 0 {
							state = p.Value[0]
						}
					}
				}
			}
			if of == master && state == forwarding {
				out = append(out, int(head.Index))
			}
		}
		return out, nil
	})
}
