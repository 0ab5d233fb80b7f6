package gateway

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link"
)

// Purge removes our rules and routes, of whichever agent, and returns what it has removed. It tells them by their form: the numbers of
// tables and priorities are an administrator's as well.
func Purge() (gone []string, err error) {
	var errs []error
	for family, name := range map[int]string{unix.AF_INET: "IPv4", unix.AF_INET6: "IPv6"} {
		for _, p := range pairs {
			did, err := purge(family, name, p)
			gone, errs = append(gone, did...), append(errs, err)
		}
	}
	return gone, errors.Join(errs...)
}

func purge(family int, name string, p pair) (gone []string, err error) {
	rules, err := rulesOf(family, p)
	errs := []error{err}
	for range rules {
		if err := removeRule(family, p.table, p.priority); err != nil {
			errs = append(errs, err)
			continue
		}
		gone = append(gone, fmt.Sprintf("%s rule for table %d", name, p.table))
	}
	routes, err := link.Dump(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(family, &netlink.Route{Table: p.table}, netlink.RT_FILTER_TABLE)
	})
	errs = append(errs, err)
	for _, r := range routes {
		if nowhere := r.Type == unix.RTN_UNREACHABLE && r.Priority == behind; !nowhere && link.Name(r.LinkIndex) != Port {
			continue
		}
		if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("remove the route to %v from table %d: %w", r.Dst, p.table, err))
			continue
		}
		gone = append(gone, fmt.Sprintf("%s routes of table %d", name, p.table))
	}
	return gone, errors.Join(errs...)
}
