package driver

import (
	"net/netip"
)

// Another host may end a network at the moment at which it begins to be used here, since it
// has not heard of that yet. Docker has the network still, so its user must not notice: the
// network is announced again, and whoever ends it after that has heard.

// Reannounce is Driver.Reannounce.
func (d *endpoints) Reannounce(p netip.Prefix) error {
	if err := d.networks.takeUpPrefix(p); err != nil {
		return err
	}
	d.core.mu.Lock()
	n, ok := d.core.local.withPrefix(p)
	d.core.mu.Unlock()
	if !ok {
		return nil
	}
	if err := d.core.mayBegin(n); err != nil {
		return err
	}
	return d.core.noteUse(n.ID, true)
}
