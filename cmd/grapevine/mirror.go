package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
)

func newMirror() *cobra.Command {
	var r api.MirrorRequest
	var long time.Duration
	c := verb(&cobra.Command{
		Use:   "mirror CONTAINER --to CONTAINER [--for 10m]",
		Short: "Copy all packets of a container to another one of its host, for a while",
		Long: `Copy all packets that a container sends and gets to another container of the same host: an intrusion detection
system, a recorder. They are taken inside the first one's sandbox, where all of them pass, and come by an interface of
the other one's own, mirror0, which packet sockets see (tcpdump -i mirror0). Its network stack is given none of them,
and what it sends there goes nowhere.

A mirror ends by itself, as --for says, when one of the two containers ends, leaves a network or is called otherwise,
and with the agent. It is for root. CONTAINER is a container's name, NETWORK/NAME, an ID, the beginning of one, or an
address.`,
		Example: `  grapevine mirror web --to ids --for 8h
  grapevine mirror list
  grapevine mirror stop web`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 1 || r.To == "" {
				return errors.New("`grapevine mirror` wants two containers: `grapevine mirror CONTAINER --to CONTAINER`, or `grapevine mirror list`, `grapevine mirror stop CONTAINER`")
			}
			return nil
		},
		ValidArgsFunction: complete(containerNames),
	}, patience, func(ctx context.Context, c *api.Client, args []string) (api.Done, error) {
		if long <= 0 {
			return api.Done{}, fmt.Errorf("mirror the packets of %s: --for %v is no time, and a mirror always has an end: say --for 10m", args[0], long)
		}
		r.Container, r.Seconds = args[0], long.Seconds()
		return c.Mirrors().Start(ctx, r)
	}, showDone)
	c.Flags().StringVar(&r.To, "to", "", "the container that gets the copies")
	c.Flags().DurationVar(&long, "for", 10*time.Minute, "end after that time, 24h at most")
	c.AddCommand(newMirrorList(), newMirrorStop())
	return c
}

func newMirrorList() *cobra.Command {
	return verb(&cobra.Command{
		Use:   "list",
		Short: "List the mirrors of this host",
		Example: `  grapevine mirror list
  grapevine mirror list -o json | jq -r '.[] | select(.lost > 0) | .container'`,
		Args: noNames,
	}, patience, list(of((*api.Client).Mirrors, api.MirrorCalls.List)), showMirrors)
}

func showMirrors(w io.Writer, all []api.Mirror) error {
	return table(w, "CONTAINER\tTO\tINTERFACE\tENDS IN\tPACKETS\tLOST", func(row func(string, ...any)) {
		for _, m := range all {
			row("%s\t%s\t%s\t%s\t%d\t%d", m.Container, m.To, m.Interface, max(0, time.Until(m.Until)).Round(time.Second), m.Packets, m.Lost)
		}
	})
}

func newMirrorStop() *cobra.Command {
	var all bool
	c := verb(&cobra.Command{
		Use:   "stop CONTAINER",
		Short: "End a mirror",
		Long:  `End the mirror of a container of this host, or with --all all of them.`,
		Example: `  grapevine mirror stop web
  grapevine mirror stop --all`,
		Args: func(c *cobra.Command, args []string) error {
			if (len(args) == 1) == all {
				return errors.New("`grapevine mirror stop` wants a container, or --all: `grapevine mirror stop CONTAINER`")
			}
			return nil
		},
		ValidArgsFunction: complete(mirrorNames),
	}, patience, func(ctx context.Context, c *api.Client, args []string) (api.Done, error) {
		r := api.StopMirrorRequest{All: all}
		if !all {
			r.Container = args[0]
		}
		return c.Mirrors().Stop(ctx, r)
	}, showDone)
	c.Flags().BoolVar(&all, "all", false, "all mirrors of this host")
	return c
}

func mirrorNames(ctx context.Context, c *api.Client) (map[string]string, error) {
	all, err := c.Mirrors().List(ctx)
	names := map[string]string{}
	for _, m := range all {
		names[m.Container] = fmt.Sprintf("to %s until %s", m.To, m.Until.Format(time.DateTime))
	}
	return names, err
}
