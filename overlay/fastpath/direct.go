package fastpath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/encap"
	"github.com/grapevine-net/grapevine/host/bypass"
	"github.com/grapevine-net/grapevine/host/ipsec"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// Underlay is where this host's VXLAN packets leave and arrive.
type Underlay struct {
	Device string
	VTEP   netip.Addr
	Port   uint16     // of VXLAN
	Encap  encap.Kind // zero: VXLAN
	// Encrypted: Device encrypts what it is given, which programs at a NIC would pass by.
	Encrypted bool
	// IPsec: what goes to other hosts is to be protected by IPsec, whose policies programs at a NIC would pass by.
	IPsec bool
	// marks: what arrives may have a mark, which something below Device has given it.
	marks bool
}

// directly makes packets between hosts direct in c, with the program at the NIC, or says
// why not. Until c is in force that program passes everything on.
func (p *Path) directly(in pipeline.Input, c *configValue) error {
	if !p.direct || in.TunnelPort == 0 {
		return nil
	}
	if err := p.NeverDirect(); err != nil {
		return err
	}
	u := p.cfg.Underlay
	nic, marks, bridged, err := plainNIC(u)
	if err != nil {
		return err
	}
	u.marks = marks
	if text, err := os.ReadFile("/proc/sys/net/ipv4/conf/lo/forwarding"); err != nil || strings.TrimSpace(string(text)) != "1" {
		return errors.New("the programs can look up routes only where net.ipv4.ip_forward and net.ipv4.conf.lo.forwarding are 1")
	}
	policies, err := ipsec.Policies(false)
	if err != nil {
		return err
	}
	if err := passedBy(policies, u, nic, in.VTEPs); err != nil {
		return err
	}
	least, end, err := sourcePorts()
	if err != nil {
		return err
	}
	var ports bypass.Ports
	if p.judged {
		p.peers = peersOf(in.VTEPs)
		err := p.cfg.Judge(bypass.Traffic{Device: u.Device, Index: int(nic), Tunnel: p.cfg.Tunnel, TunnelIndex: int(c.Tunnel), Own: u.VTEP, Port: u.Port, Peers: p.peers, LeastPort: least, EndPort: end})
		if err != nil {
			return err
		}
		if err := p.hold(); err != nil {
			return err
		}
		if p.cfg.Ports != nil {
			ports = p.cfg.Ports()
		}
	}
	if err := p.ways.set(p.objs.GvPorts, nic, ports.By); err != nil {
		return fmt.Errorf("by the ports of %s: %w", u.Device, err)
	}
	if p.ways.cut = ports.Why; !p.judged && bridged {
		p.ways.cut = errors.New("only where the agent looks at what this host does with packets (auto, look) they go to a port of the bridge at once")
	}
	if err := p.attach(u.Device, nic); err != nil {
		return err
	}
	c.VTEP, c.LeastPort, c.EndPort = u.VTEP.As4(), least, end
	if p.judged {
		c.Judged = nic
	} else {
		c.Underlay = nic
	}
	binary.BigEndian.PutUint16(c.Port[:], u.Port)
	return nil
}

// NeverDirect says why packets between hosts are not direct as long as this agent runs, whatever else changes. nil: they may be.
func (p *Path) NeverDirect() error {
	u := p.cfg.Underlay
	switch {
	case !u.Encap.Direct():
		return fmt.Errorf("what goes to other hosts is %s (GRAPEVINE_ENCAP), and direct packets have the headers of VXLAN", u.Encap.Title)
	case u.Encrypted:
		return errors.New("what goes to other hosts is encrypted (GRAPEVINE_ENCRYPTION=all), which it would pass by")
	case u.IPsec:
		return errors.New("what goes to other hosts is to go by IPsec (GRAPEVINE_IPSEC), which it would pass by")
	case !u.VTEP.Is4():
		return fmt.Errorf("the underlay %s is not IPv4", u.VTEP)
	}
	return link.HasTCX()
}

// nic is the index of the NIC by which packets are direct; 0: none is.
func (c configValue) nic() uint32 { return max(c.Underlay, c.Judged) }

// hold gives the programs at the NIC and at containers' interfaces those that end with this process.
func (p *Path) hold() error {
	for slot, prog := range map[uint32]*ebpf.Program{heldEndpoint: p.objs.GvAgain, heldUnderlay: p.objs.GvUnderlayJudged} {
		if err := put(p.objs.GvHeld, slot, prog); err != nil {
			return fmt.Errorf("hold the programs that take packets between hosts directly: %w", err)
		}
	}
	return nil
}

// portKey is struct port_key of the programs.
type portKey struct {
	Bridge uint32
	MAC    bypass.MAC
	_      [2]byte
}

// ways are the ports of a bridge by which packets leave.
type ways struct {
	ports map[portKey]uint32 // as the programs know them
	cut   error              // why packets do not leave by them
}

// set tells the programs of them. They count while what was judged does.
func (w *ways) set(m *ebpf.Map, nic uint32, by map[bypass.MAC]int) error {
	next := make(map[portKey]uint32, len(by))
	for mac, index := range by {
		next[portKey{Bridge: nic, MAC: mac}] = uint32(index)
	}
	for k := range w.ports {
		if _, stays := next[k]; stays {
			continue
		}
		if err := m.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("forget one: %w", err)
		}
		delete(w.ports, k)
	}
	for k, index := range next {
		if w.ports[k] == index {
			continue
		}
		if err := put(m, k, index); err != nil {
			return fmt.Errorf("send by one: %w", err)
		}
		w.ports[k] = index
	}
	return nil
}

// Cut says why what the kernel has still to segment is cut before it leaves by a bridge, where packets are direct; nil: it is not,
// but for what goes to hosts that the bridge has not learned of.
func Cut(p *Path) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ways.cut
}

// Slots of gv_held.
const (
	heldDeliver = iota
	heldEndpoint
	heldUnderlay
	heldLeave
	heldAgain
)

// Withdraw makes nothing direct until a Widen that has begun after it, where it is only so while Config.Judge lets it.
// It costs one system call, and waits for nobody who judges.
func (p *Path) Withdraw() error {
	if err := p.word.withdraw(); err != nil {
		return fmt.Errorf("take packets between hosts back to the VXLAN device (the programs were taken out instead): %w", err)
	}
	return nil
}

// Renew lets what was judged count for bypass.Lease from now on. It returns false if that had ended, and nothing is direct.
// It waits for nobody who judges.
func (p *Path) Renew() bool { return p.word.renew() }

// withdrawFor makes nothing direct, where that is judged, before the programs learn of a host of which it was not.
func (p *Path) withdrawFor(in pipeline.Input) error {
	if !p.judged || p.config.Judged == 0 || slices.Equal(p.peers, peersOf(in.VTEPs)) {
		return nil
	}
	without := p.config
	without.Judged = 0
	return p.configure(without)
}

// peersOf are the VTEPs of IPv4, in order.
func peersOf(vteps []pipeline.VTEP) (peers []netip.Addr) {
	for _, v := range vteps {
		if a := v.Addr.Unmap(); a.Is4() {
			peers = append(peers, a)
		}
	}
	slices.SortFunc(peers, netip.Addr.Compare)
	return peers
}

// plainNIC is the index of an Ethernet device that has the VTEP, of IPv4, whether it stands on others, and whether it is a bridge.
func plainNIC(u Underlay) (nic uint32, stacked, bridge bool, err error) {
	l, err := netlink.LinkByName(u.Device)
	if err != nil {
		return 0, false, false, fmt.Errorf("underlay %s: %w", u.Device, err)
	}
	if kind := l.Attrs().EncapType; kind != "ether" {
		return 0, false, false, fmt.Errorf("the underlay %s is no Ethernet device, but %s", u.Device, kind)
	}
	addrs, err := link.Dump(func() ([]netlink.Addr, error) { return netlink.AddrList(l, unix.AF_INET) })
	if err != nil {
		return 0, false, false, fmt.Errorf("addresses of %s: %w", u.Device, err)
	}
	if !slices.ContainsFunc(addrs, func(a netlink.Addr) bool { return a.IP.Equal(net.IP(u.VTEP.AsSlice())) }) {
		return 0, false, false, fmt.Errorf("%s does not have the VTEP's address %s (NAT?)", u.Device, u.VTEP)
	}
	return uint32(l.Attrs().Index), bypass.Stacked(l), l.Type() == "bridge", nil
}

// sourcePorts are those that the VXLAN device takes: the upper one is not among them.
func sourcePorts() (least, end uint16, err error) {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return 0, 0, fmt.Errorf("read the range of source ports: %w", err)
	}
	if _, err := fmt.Sscan(string(text), &least, &end); err != nil {
		return 0, 0, fmt.Errorf("read the range of source ports: %w", err)
	}
	return least, end, nil
}

// passedBy names a policy of IPsec that VXLAN packets between this host and another would
// be subject to, and direct ones are not.
func passedBy(policies []netlink.XfrmPolicy, u Underlay, nic uint32, vteps []pipeline.VTEP) error {
	for _, p := range policies {
		here, there := p.Src, p.Dst
		if p.Dir == netlink.XFRM_DIR_IN {
			here, there = p.Dst, p.Src
		}
		switch {
		case p.Dir != netlink.XFRM_DIR_IN && p.Dir != netlink.XFRM_DIR_OUT:
		case p.Action == netlink.XFRM_POLICY_ALLOW && len(p.Tmpls) == 0: // it wants nothing
		case p.Mark != nil && p.Mark.Value != 0 && !(u.marks && p.Dir == netlink.XFRM_DIR_IN): // our packets have none
		case p.Ifid != 0, p.Ifindex != 0 && p.Ifindex != int(nic):
		case p.Proto != 0 && p.Proto != unix.IPPROTO_UDP, p.DstPort != 0 && p.DstPort != int(u.Port):
		case !ipsec.Contains(here, u.VTEP):
		case slices.ContainsFunc(vteps, func(v pipeline.VTEP) bool { return ipsec.Contains(there, v.Addr) }):
			return fmt.Errorf("an IPsec policy (%s) is for VXLAN packets from %s to %s, and direct ones pass it by", p.Dir, p.Src, p.Dst)
		}
	}
	return nil
}

// sayDirect notes and logs what keeps packets from being direct, once.
func (p *Path) sayDirect(err error) {
	if p.judged {
		p.sayJudged(err)
		return
	}
	switch {
	case err != nil && (p.rests == nil || p.rests.Error() != err.Error()):
		p.log.Warn("packets between hosts take the VXLAN device, not the direct way", "error", err)
	case err == nil && p.rests != nil && p.direct:
		p.log.Info("packets between hosts take the direct way again")
	}
	p.rests = err
}

// sayJudged is sayDirect where a rule against it is nothing to be warned of, and comes and goes.
func (p *Path) sayJudged(err error) {
	p.rests = err
	if errors.Is(err, bypass.ErrLooking) {
		return
	}
	text := "direct"
	if err != nil {
		text = err.Error()
	}
	if p.said != text {
		p.log.Info("this host's rules are looked at for packets between hosts", "they are", text)
	}
	p.said = text
}

// leave takes the program from the NIC.
func (p *Path) leave(device string) error {
	if _, there := p.attached[device]; !there {
		return nil
	}
	if err := link.DetachTCX(device, link.Ingress, underlayProgram); err != nil {
		return err
	}
	delete(p.attached, device)
	return nil
}

// leaveUnderlays takes the program from all devices but one.
func (p *Path) leaveUnderlays(but string) error {
	list, err := link.List("")
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range list {
		if l.Name != but && !strings.HasPrefix(l.Name, p.cfg.Prefix) {
			errs = append(errs, link.DetachTCX(l.Name, link.Ingress, underlayProgram))
		}
	}
	return errors.Join(errs...)
}
