package gossip

import (
	"fmt"
	"net/netip"
)

// Foreign is a host of another cluster that has met this one.
type Foreign struct { //nolint:errname // a host that has come, more than an error
	ID, Name string     // Name is empty until it is known
	Addr     netip.Addr // invalid: not known
	Cluster  string
	// Hosts is how many hosts of its cluster it has named, 0: not known.
	Hosts int
}

// Error says why the host is refused.
func (f Foreign) Error() string {
	return fmt.Sprintf(refusedMark+"host %s%s belongs to cluster %s", f.ID, place(f.Addr), f.Cluster)
}

// foreign begins the keys of problems with hosts of other clusters.
const foreign = "cluster "
