package nat

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/nft"
)

// Others are the tables of nftables, as nft names them ("inet firewalld"), that this host has beside iptables' and the
// agent's own. A kernel that does not tell has none.
func Others() (list []string) {
	conn, err := nft.Dial()
	if err != nil {
		return nil
	}
	defer conn.Close()
	for _, family := range []struct {
		number byte
		name   string
	}{{nft.Inet, "inet"}, {unix.NFPROTO_IPV4, "ip"}, {unix.NFPROTO_IPV6, "ip6"}} {
		tables, err := conn.Bases(family.number)
		if err != nil {
			return nil
		}
		for _, name := range tables {
			iptables := family.name != "inet" && slices.Contains([]string{"filter", "nat", "mangle", "raw", "security"}, name)
			if !iptables && !strings.HasPrefix(name, "grapevine") {
				list = append(list, family.name+" "+name)
			}
		}
	}
	return list
}
