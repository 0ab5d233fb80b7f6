package gateway

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link"
)

// Purge removes our rules and routes, of whichever agent, and returns what it has removed.
func Purge() (gone []string, err error) {
	var errs []error
	for family, name := range map[int]string{unix.AF_INET: "IPv4", unix.AF_INET6: "IPv6"} {
		for _, table := range Tables() {
			did, err := purge(family, name, table)
			gone, errs = append(gone, did...), append(errs, err)
		}
	}
	return gone, errors.Join(errs...)
}

func purge(family int, name string, table int) (gone []string, err error) {
	rules, err := link.Dump(func() ([]netlink.Rule, error) {
		return netlink.RuleListFiltered(family, &netlink.Rule{Table: table}, netlink.RT_FILTER_TABLE)
	})
	errs := []error{err}
	for _, r := range rules {
		r.Family = family
		if err := netlink.RuleDel(&r); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("remove the routing rule for table %d: %w", table, err))
			continue
		}
		gone = append(gone, fmt.Sprintf("%s rule for table %d", name, table))
	}
	routes, err := link.Dump(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(family, &netlink.Route{Table: table}, netlink.RT_FILTER_TABLE)
	})
	errs = append(errs, err)
	for _, r := range routes {
		if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("remove the route to %v from table %d: %w", r.Dst, table, err))
			continue
		}
		gone = append(gone, fmt.Sprintf("%s routes of table %d", name, table))
	}
	return gone, errors.Join(errs...)
}
