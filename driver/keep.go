package driver

import (
	"net/netip"
)

// Another host may end a network at the moment at which it begins to be used here, since it
// has not heard of that yet. Docker has the network still, so its user must not notice: the
// network is announced again, and whoever ends it after that has heard.

// Keep announces the network of this host again that has the subnet p. It is no error if
// there is none.
func (d *endpoints) Keep(p netip.Prefix) error {
	if err := d.takeUpPrefix(p); err != nil {
		return err
	}
	d.mu.Lock()
	n, ok := d.local.withPrefix(p)
	d.mu.Unlock()
	if !ok {
		return nil
	}
	if err := d.mayBegin(n); err != nil {
		return err
	}
	return d.noteUse(n.ID, true)
}
