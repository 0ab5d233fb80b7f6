package plane

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/overlay"
)

// connectionRoom is for how many connections of containers with policies there is room: half of what the kernel's own connection tracking
// has, whose table it is on its datapath, and where the other half is the host's.
func connectionRoom() int {
	const usual = 262144 // of a kernel with 4 GB
	table := 0
	if text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_max"); err == nil {
		table, _ = strconv.Atoi(strings.TrimSpace(string(text)))
	}
	return max(cmp.Or(table, usual)/2, 1024)
}

// crowded says who begins no more connections, since there is little room for them.
func crowded(o *overlay.Overlay, snap *cluster.Snapshot) (list []api.Problem) {
	const do = "find out who opens so many: `grapevine traffic`; more room: `sysctl net.netfilter.nf_conntrack_max`, of which half is for these"
	most, full, has, room := o.Crowded()
	if full {
		list = append(list, api.Problem{Code: api.ConnectionsFull, Do: do, What: fmt.Sprintf("policies: of containers that they are about there are %d connections on this host, which has room for %d, and begins no more until there are fewer; those that are open go on", has, room)})
	}
	for _, c := range most {
		list = append(list, api.Problem{Code: api.ConnectionsFull, Do: do, What: fmt.Sprintf(
			"policies: %s has begun %d of the %d connections on this host of containers that they are about, and begins no more here until there are fewer, since there is room for %d; those that are open go on", whose(snap, c.Addrs[0]), c.Has, has, room)})
	}
	return list
}

// whose is a container's name and address, or the address alone.
func whose(snap *cluster.Snapshot, a netip.Addr) string {
	for e := range cluster.All[cluster.Endpoint](snap) {
		if slices.Contains(e.Addrs, a) && e.Name != "" {
			return "container " + e.Name + " (" + a.String() + ")"
		}
	}
	return a.String()
}
