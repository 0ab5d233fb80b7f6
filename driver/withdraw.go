package driver

import (
	"context"
	"errors"
	"fmt"

	"github.com/grapevine-net/grapevine/host/docker"
)

// Withdraw is Driver.Withdraw.
func (d *applier) Withdraw(ctx context.Context) (kept []string, err error) {
	d.looking.Lock() // no look is under way
	defer d.looking.Unlock()
	d.withdrawn = true
	networks, err := d.core.docker.Networks(ctx)
	if err != nil {
		return nil, fmt.Errorf("find this driver's networks in docker: %w", err)
	}
	var errs []error
	for _, n := range networks {
		if !d.has(n.ID) {
			continue
		}
		err := d.removeInDocker(ctx, n)
		if err == nil && d.has(n.ID) {
			kept = append(kept, n.Name)
		}
		if errors.Is(err, docker.ErrNotFound) {
			err = nil
		}
		errs = append(errs, err)
	}
	return kept, errors.Join(errs...)
}

// has reports whether a network, by Docker's ID, is of this driver.
func (d *applier) has(id string) bool {
	d.core.mu.Lock()
	defer d.core.mu.Unlock()
	_, ok := d.core.local.networks[id]
	return ok
}
