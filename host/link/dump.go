package link

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// dumps is how often a list is tried. A change of the kernel's tables while they
// are read interrupts it, and a host that starts many containers at once changes
// them all the time.
const dumps = 20

// Dump returns what list does, tried again while the kernel says that what it
// listed may be incomplete (NLM_F_DUMP_INTR, netlink(7)).
func Dump[T any](list func() ([]T, error)) (all []T, err error) {
	for range dumps {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}
