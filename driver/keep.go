package driver

import (
	"context"
	"net/netip"
)

// Another host may end a network at the moment at which it begins to be used here, since it
// has not heard of that yet. Docker has the network still, so its user must not notice: the
// network is announced again, and whoever ends it after that has heard.

// Keep announces the network of this host again that has the subnet p. It is no error if
// there is none.
func (d *Driver) Keep(p netip.Prefix) error {
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

// keeping does f, which fails if the network (by Docker's ID) is not in the cluster. After a
// failure it announces the network and tries again.
func (d *Driver) keeping(ctx context.Context, network string, f func() error) error {
	const tries = 3
	for try := 1; ; try++ {
		err := f()
		if err == nil || try == tries || ctx.Err() != nil {
			return err
		}
		if err := d.noteUse(network, true); err != nil {
			return err
		}
	}
}
