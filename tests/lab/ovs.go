package lab

import (
	"context"
	"fmt"
	"time"
)

// StartOVS starts Open vSwitch's daemons as the distribution's service does, for
// an agent with GRAPEVINE_OVS=host. The database is on the host's disk.
func (h *Host) StartOVS(ctx context.Context) error {
	if h.lab.opts.Kind == UML {
		if err := awaitUptime(ctx, h, 11*time.Second); err != nil {
			return err
		}
	}
	_, err := h.Exec(ctx, "sh", "-c",
		"mkdir -p /run/openvswitch && exec /usr/share/openvswitch/scripts/ovs-ctl start --system-id=random --no-monitor")
	return err
}

// StopOVS stops those daemons.
func (h *Host) StopOVS(ctx context.Context) error {
	_, err := h.Exec(ctx, "/usr/share/openvswitch/scripts/ovs-ctl", "stop")
	return err
}

// awaitUptime waits until the kernel has run for so long: Open vSwitch 3.1 takes
// the number of CPUs for 0 in the first 10 s, and loses every upcall then.
func awaitUptime(ctx context.Context, h *Host, least time.Duration) error {
	var up float64
	text, err := h.Exec(ctx, "cat", "/proc/uptime")
	if err != nil {
		return err
	}
	if _, err := fmt.Sscan(text, &up); err != nil {
		return fmt.Errorf("read /proc/uptime: %w", err)
	}
	select {
	case <-time.After(least - time.Duration(up*float64(time.Second))):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
