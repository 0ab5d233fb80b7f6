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
loss count that it was started with, or "grapevine network limit". CONTAINER is a container's name, NETWORK/NAME, an ID, the beginning of one, or an address.`,
		Example: `  grapevine limit web --egress 20mbit
  grapevine limit web --network blue --egress none --ingress 100mbit`,
		Args:              named("a container", 1, 1),
		ValidArgsFunction: complete(containerNames),
	}, patience, func(ctx context.Context, c *api.Client, args []string) (api.Done, error) {
		r.Container = args[0]
		return c.Limit(ctx, r)
	}, showDone)
	limitFlags(c, &r, "none")
	c.Flags().StringVar(&r.Network, "network", "", "on that network alone, and not on all of its networks")
	return c
}

// limitFlags are what can be limited.
func limitFlags(c *cobra.Command, r *api.LimitRequest, or string) {
	c.Flags().StringVar(&r.Egress, "egress", "", "what it may send, or "+or)
	c.Flags().StringVar(&r.Ingress, "ingress", "", "what it may get, or "+or)
	c.Flags().StringVar(&r.Delay, "delay", "", "how much later what it sends is, or "+or)
	c.Flags().StringVar(&r.Jitter, "jitter", "", "by how much more or less, at random, or "+or)
	c.Flags().StringVar(&r.Loss, "loss", "", "how much of what it sends is lost, or "+or)
}

func newNetworkLimit() *cobra.Command {
	var r api.LimitRequest
	c := verb(&cobra.Command{
		Use:   "limit NETWORK [--egress RATE] [--ingress RATE] [--delay TIME] [--jitter TIME] [--loss SHARE]",
		Short: "Change what each container of a network may send and get, while they run",
		Long: `Change what each container of a network may send and get, on all hosts, in place of what the network was made with (-o egress=...):
those that run, and those that come later. None: no limit, whatever it was made with. Made: what it was made with. Without
any it says what holds. A container's own limits (driver-opts, "grapevine limit CONTAINER") come first.

It lasts for as long as the network is there. The values are as with "grapevine limit". A host with an older agent holds to what the
network was made with.`,
		Example: `  grapevine network limit cameras --egress 20mbit --ingress none
  grapevine network limit cameras --egress made
  grapevine network limit cameras`,
		Args:              named("a network", 1, 1),
		ValidArgsFunction: complete(networkNames),
	}, patience, func(ctx context.Context, c *api.Client, args []string) (api.Done, error) {
		r.Network = args[0]
		return c.Limit(ctx, r)
	}, showDone)
	limitFlags(c, &r, "none, or made")
	return c
}
