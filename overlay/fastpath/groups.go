package fastpath

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// Groups that the programs know, of which there may be twice as many in between; and to how many members, and to how many hosts,
// they copy.
const (
	maxGroups  = 4096
	maxMembers = 32
	maxHosts   = 16
)

// Group is who gets what is for a multicast group, or a broadcast address, of a network. Its zero value says: the
// switch decides.
type Group struct {
	MAC     [6]byte // where its frames go
	Members [maxMembers]uint32
	Hosts   [maxHosts]netip.Addr // VTEPs
}

// groupValue is struct group of bpf/fastpath.c, groupName struct group_key.
type (
	groupValue struct {
		MAC            [6]byte
		_              uint16
		Slot           uint32
		Members, Hosts uint32
		Member         [maxMembers]uint32
		Host           [maxHosts]address
	}

	groupName struct {
		Addr address
		VNID uint32
	}
)

func nameOf(k pipeline.GroupKey) groupName { return groupName{addressOf(k.Addr), k.VNID} }

func (n groupName) key() pipeline.GroupKey {
	return pipeline.GroupKey{VNID: n.VNID, Addr: n.Addr.addr()}
}

// groupsOf are those of in that the programs may copy for: all members here are plain, or plain but for rules, which are about
// connections, and there are no more than they know. What is encrypted is the switch's.
func groupsOf(in pipeline.Input, devices map[string]uint32) map[pipeline.GroupKey]Group {
	groups := map[pipeline.GroupKey]Group{}
	if len(in.Groups) == 0 {
		return groups
	}
	ports := make(map[uint32]uint32, len(in.Ports))
	for _, p := range in.Ports {
		if (p.Plain || p.Guarded) && !p.Bare {
			ports[p.OFPort] = devices[p.Endpoint]
		}
	}
	known := make(map[netip.Addr]bool, len(in.VTEPs))
	for _, v := range in.VTEPs {
		known[v.Addr] = in.TunnelPort != 0
	}
	for _, g := range in.Groups {
		if len(groups) == maxGroups {
			break
		}
		if one := groupOf(g, ports, known); one != (Group{}) {
			groups[g.Key()] = one
		}
	}
	return groups
}

func groupOf(g pipeline.Group, ports map[uint32]uint32, known map[netip.Addr]bool) Group {
	one, hosts := Group{MAC: [6]byte(pipeline.GroupMAC(g.Addr))}, 0
	if g.Encrypted || len(g.Ports) > maxMembers {
		return Group{}
	}
	for i, p := range g.Ports {
		if one.Members[i] = ports[p]; one.Members[i] == 0 {
			return Group{}
		}
	}
	for _, v := range g.VTEPs {
		if !known[v] {
			continue // as in the flows
		}
		if hosts == maxHosts {
			return Group{}
		}
		one.Hosts[hosts] = v
		hosts++
	}
	if len(g.Ports)+hosts == 0 {
		return Group{}
	}
	return one
}

// writeGroups makes the map hold want: what is set first, what is deleted last.
func (t *tables) writeGroups(want map[pipeline.GroupKey]Group) error {
	if maps.Equal(t.held.Groups, want) {
		return nil
	}
	for k, g := range want {
		if old, there := t.held.Groups[k]; !there || old != g {
			if err := t.setGroup(k, g); err != nil {
				return err
			}
		}
	}
	for k := range t.held.Groups {
		if _, wanted := want[k]; wanted {
			continue
		}
		if err := t.remove(t.groups, nameOf(k)); err != nil {
			return fmt.Errorf("take group %s of VNID %d out of the fast path: %w", k.Addr, k.VNID, err)
		}
		delete(t.held.Groups, k)
		t.slots.release(k)
	}
	return nil
}

func (t *tables) setGroup(k pipeline.GroupKey, g Group) error {
	value := groupValue{MAC: g.MAC}
	var err error
	if value.Slot, err = t.slot(k); err != nil {
		g, value = Group{}, groupValue{} // there are more than are counted: the switch does
	}
	for i, m := range g.Members {
		if value.Member[i] = m; m != 0 {
			value.Members++
		}
	}
	for i, v := range g.Hosts {
		if value.Host[i] = addressOf(v); v.IsValid() {
			value.Hosts++
		}
	}
	if err := t.put(t.groups, nameOf(k), value); err != nil {
		return fmt.Errorf("put group %s of VNID %d into the fast path: %w", k.Addr, k.VNID, err)
	}
	t.held.Groups[k] = g
	return nil
}

// readGroups is read of groups.
func (t *tables) readGroups() error {
	t.held.Groups = map[pipeline.GroupKey]Group{}
	if t.groups == nil {
		return nil
	}
	var n groupName
	var v groupValue
	it := t.groups.Iterate()
	for it.Next(&n, &v) {
		g := Group{MAC: v.MAC}
		copy(g.Members[:], v.Member[:min(v.Members, maxMembers)])
		for i := range min(v.Hosts, maxHosts) {
			g.Hosts[i] = v.Host[i].addr()
		}
		t.held.Groups[n.key()] = g
		t.slots.adopt(n.key(), v.Slot)
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("read the fast path's groups: %w", err)
	}
	return nil
}

// Copy is one of a packet for a group: to a container here, with the MAC address of the group, or to a VTEP.
type Copy struct {
	Ifindex uint32
	MAC     [6]byte
	VTEP    netip.Addr
	VNID    uint32
}

func (c Copy) String() string {
	if c.VTEP.IsValid() {
		return fmt.Sprintf("VTEP %s VNID %d", c.VTEP, c.VNID)
	}
	return fmt.Sprintf("device %d MAC %x", c.Ifindex, c.MAC)
}

// Copies are all of a packet, in order: of two that are the same the texts are.
func Copies(list []Copy) (text string) {
	slices.SortFunc(list, func(a, b Copy) int { return slices.Compare([]byte(a.String()), []byte(b.String())) })
	for _, c := range list {
		text += c.String() + "\n"
	}
	return text
}

// spread is Verdict of what a container, or a host, of a network sends to a group.
func (c Contents) spread(p Packet, vnid uint32) Verdict {
	const udp = 17
	g := c.Groups[pipeline.GroupKey{VNID: vnid, Addr: p.Dst}]
	if p.Protocol != udp || p.Fragment || vnid == 0 {
		return Verdict{}
	}
	var list []Copy
	for _, m := range g.Members {
		if m != 0 && m != p.Ifindex {
			list = append(list, Copy{Ifindex: m, MAC: g.MAC})
		}
	}
	for _, v := range g.Hosts {
		if v.IsValid() && !p.From.IsValid() {
			list = append(list, Copy{VTEP: v, VNID: vnid})
		}
	}
	return Verdict{Copies: Copies(list)}
}
