package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
)

func newLimit() *cobra.Command {
	var r api.LimitRequest
	c := verb(&cobra.Command{
		Use:   "limit CONTAINER [--egress RATE] [--ingress RATE] [--delay TIME] [--jitter TIME] [--loss SHARE]",
		Short: "Change what a container may send and get, and how late, while it runs",
		Long: `Change the bandwidth of a running container of this host: what it sends (--egress), to whomever, and what it gets
(--ingress), from whomever. A rate is as tc(8) has it, from 64kbit to 100gbit; none takes the container's own limit
away, so that its network's options count.

For labs, each packet that it sends can be later (--delay 50ms), more or less by a time at random (--jitter 5ms), or
lost (--loss 1%), on a host whose kernel has netem (sch_netem). What it gets is as ever: give the other ones a delay, too.
"grapevine limit web --delay none --jitter none --loss none" ends it.

It lasts until the container starts again, or leaves the network: then the driver-opts egress, ingress, delay, jitter and
loss count that it was started with. CONTAINER is a container's name, NETWORK/NAME, an ID, the beginning of one, or an address.`,
		Example: `  grapevine limit web --egress 20mbit
  grapevine limit web --network blue --egress none --ingress 100mbit`,
		Args:              named("a container", 1, 1),
		ValidArgsFunction: complete(containerNames),
	}, patience, func(ctx context.Context, c *api.Client, args []string) (api.Done, error) {
		r.Container = args[0]
		return c.Limit(ctx, r)
	}, showDone)
	c.Flags().StringVar(&r.Egress, "egress", "", "what it may send, or none")
	c.Flags().StringVar(&r.Ingress, "ingress", "", "what it may get, or none")
	c.Flags().StringVar(&r.Delay, "delay", "", "how much later what it sends is, or none")
	c.Flags().StringVar(&r.Jitter, "jitter", "", "by how much more or less, at random, or none")
	c.Flags().StringVar(&r.Loss, "loss", "", "how much of what it sends is lost, or none")
	c.Flags().StringVar(&r.Network, "network", "", "on that network alone, and not on all of its networks")
	return c
}
