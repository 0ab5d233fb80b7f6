package ovs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Running lists the daemons of this Open vSwitch that run.
func (e *Embedded) Running() (names []string) {
	server, vswitchd := e.daemons()
	for _, d := range []daemon{server, vswitchd} {
		if p := d.find(); p != nil {
			p.release()
			names = append(names, d.name)
		}
	}
	return names
}

// systemDatapath is the one that ovs-vswitchd makes in the kernel.
const systemDatapath = "ovs-system"

// RemoveOrphan removes the kernel's datapath that has the bridge, with all its ports and its tunnels' devices, and
// returns their names, if no ovs-vswitchd runs on this host: a daemon that was killed leaves
// it, and no other program can remove what is in it.
func RemoveOrphan(bridge string) (gone []string, err error) {
	l, err := netlink.LinkByName(bridge)
	if _, none := errors.AsType[netlink.LinkNotFoundError](err); none || err == nil && l.Type() != "openvswitch" {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", bridge, err)
	}
	if running("ovs-vswitchd") {
		return nil, nil
	}
	tunnels, err := tunnelsOf(systemDatapath)
	if err != nil {
		return nil, err
	}
	family, err := netlink.GenlFamilyGet("ovs_datapath")
	if err != nil {
		return nil, fmt.Errorf("find the kernel's openvswitch module: %w", err)
	}
	// struct genlmsghdr, struct ovs_header and OVS_DP_ATTR_NAME of linux/openvswitch.h.
	const deleteDatapath, version, attrName = 2, 2, 1
	request := nl.NewNetlinkRequest(int(family.ID), unix.NLM_F_ACK)
	request.AddData(&nl.Genlmsg{Command: deleteDatapath, Version: version})
	request.AddRawData(make([]byte, 4))
	name := nl.NewRtAttr(attrName, nl.ZeroTerminated(systemDatapath))
	request.AddRawData(name.Serialize())
	if _, err := request.Execute(unix.NETLINK_GENERIC, 0); err != nil {
		return nil, fmt.Errorf("delete the kernel's datapath %s: %w", systemDatapath, err)
	}
	gone = []string{systemDatapath + " with " + bridge}
	for _, t := range tunnels {
		if err := netlink.LinkDel(t); err != nil {
			return gone, fmt.Errorf("delete the tunnel's device %s: %w", t.Attrs().Name, err)
		}
		gone = append(gone, t.Attrs().Name)
	}
	return gone, nil
}

// tunnelsOf are the devices that ovs-vswitchd made for a datapath's tunnels (vxlan_sys_4789, gre_sys). They do not go with
// it, and have the port of UDP until they do.
func tunnelsOf(datapath string) (tunnels []netlink.Link, err error) {
	master, err := netlink.LinkByName(datapath)
	if err != nil {
		return nil, fmt.Errorf("find the kernel's datapath %s: %w", datapath, err)
	}
	all, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("find the tunnels of the kernel's datapath %s: %w", datapath, err)
	}
	for _, l := range all {
		if a := l.Attrs(); a.MasterIndex == master.Attrs().Index && tunnelName.MatchString(a.Name) {
			tunnels = append(tunnels, l)
		}
	}
	return tunnels, nil
}

// tunnelName is what Open vSwitch calls these devices, and nobody else one in its datapath.
var tunnelName = regexp.MustCompile(`^[a-z0-9]+_sys(_\d+)?$`)

// userspaceTap is the tap that an ovs-vswitchd with a datapath in userspace makes.
const userspaceTap = "ovs-netdev"

// tapTaken says that somebody else's interface has the name of that tap, without which there is no such datapath; nil: none has.
func tapTaken() error {
	l, err := netlink.LinkByName(userspaceTap)
	if err != nil || l.Type() == "tuntap" || l.Type() == "tun" {
		return nil
	}
	return fmt.Errorf("there is a %[2]s of somebody else's called %[1]s, as an interface is that Open vSwitch makes: remove or rename it", userspaceTap, l.Type())
}

// RemoveOrphanTap removes the tap of the userspace datapath if no process has it, and returns its name: it
// is a persistent one, which stays when a daemon ends while its database still has bridges, and which none
// of another Open vSwitch has, since a network namespace has one.
func RemoveOrphanTap() (gone []string, err error) {
	l, err := netlink.LinkByName(userspaceTap)
	if _, none := errors.AsType[netlink.LinkNotFoundError](err); none || err == nil && l.Type() != "tuntap" && l.Type() != "tun" {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", userspaceTap, err)
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun to remove interface %s: %w", userspaceTap, err)
	}
	defer func() { _ = unix.Close(fd) }()
	request, err := unix.NewIfreq(userspaceTap)
	if err != nil {
		return nil, err
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	// Who has it keeps it: the kernel gives it to no second one. With its last holder it goes.
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); errors.Is(err, unix.EBUSY) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("take interface %s: %w", userspaceTap, err)
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 0); err != nil {
		return nil, fmt.Errorf("remove interface %s: %w", userspaceTap, err)
	}
	return []string{userspaceTap}, nil
}

// running reports whether a process of that name runs.
func running(program string) bool {
	files, _ := filepath.Glob("/proc/[0-9]*/comm") // the pattern is well formed
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(text)) == program {
			return true
		}
	}
	return false
}
