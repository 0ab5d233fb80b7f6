package filter

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/nft"
)

// booting is the table of a host that has been booted and whose agent has set no rules yet.
const booting = "grapevine-boot"

// Boot has what is for containers, at these addresses, leave by the gateway or not at all, from now until an agent sets its
// rules: those are gone after a boot. Where they are there it does nothing. It replaces what it did before.
func Boot(gateway string, containers []netip.Prefix) (done bool, err error) {
	c, err := nft.Dial()
	if err != nil {
		return false, fmt.Errorf("%w: %w", errNoTables, err)
	}
	defer c.Close()
	if handles, err := c.Handles(nft.Table{Name: lasting, Family: nft.Inet}); err == nil && len(handles) > 0 {
		return false, nil
	}
	if err := c.Do(bootTable(gateway, outermost(containers)).Anew()); err != nil {
		return false, fmt.Errorf("make nftables table %s: %w", booting, err)
	}
	return true, nil
}

func bootTable(gateway string, containers []netip.Prefix) nft.Table {
	return nft.Table{
		Name: booting, Family: nft.Inet,
		Sets: []nft.Set{prefixSet(cluster, containers, false), prefixSet(cluster, containers, true)},
		Chains: []nft.Chain{{
			Name: "encrypted-last", Type: "filter", Hook: unix.NF_INET_POST_ROUTING, Priority: afterNAT + 1,
			Rules: []nft.Rule{toContainer(gateway, false), toContainer(gateway, true)},
		}},
	}
}

// booted ends what Boot did.
func (t *tables) booted() error {
	if err := t.conn.Do(nft.Table{Name: booting, Family: nft.Inet}.Remove()); err != nil && !isGone(err) {
		return fmt.Errorf("remove nftables table %s: %w", booting, err)
	}
	return nil
}
