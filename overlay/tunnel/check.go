package tunnel

import (
	"context"
	"errors"
	"fmt"

	"github.com/grapevine-net/grapevine/host/link"
)

// Devices names the tunnel's interfaces.
func (t *Tunnel) Devices() []string { return []string{Port, peer, t.wire()} }

// Missing says what Ensure would set right, for people, and sets nothing: another program
// has changed it. What cannot be looked at is left out.
func (t *Tunnel) Missing(context.Context) (list []string) {
	for _, name := range t.Devices() {
		switch l, err := link.Get(name); {
		case errors.Is(err, link.ErrNotFound):
			list = append(list, fmt.Sprintf("the tunnel's interface %s is gone", name))
		case err == nil && !l.Up:
			list = append(list, fmt.Sprintf("the tunnel's interface %s is down", name))
		case err == nil && l.MTU != t.cfg.MTU:
			list = append(list, fmt.Sprintf("the tunnel's interface %s has the MTU %d instead of %d", name, l.MTU, t.cfg.MTU))
		}
	}
	if len(list) > 0 {
		return list
	}
	for _, h := range t.hooks() {
		if id, err := link.AttachedTC(h.dev, h.at, h.prog); err == nil && id == 0 {
			list = append(list, fmt.Sprintf("the tunnel's program %s at %s is gone (tc)", h.prog, h.dev))
		}
	}
	return list
}
