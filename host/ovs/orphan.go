package ovs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// RemoveOrphan removes the kernel's datapath that has the bridge, with all its ports, and
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
	return []string{systemDatapath + " with " + bridge}, nil
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
