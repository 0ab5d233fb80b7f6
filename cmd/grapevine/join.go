package main

import (
	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
)

func newJoin() *cobra.Command {
	return verb(&cobra.Command{
		Use:   "join",
		Short: "Bring a host back that has left",
		Long: `Bring a host back that has left: it joins the cluster that its settings name, as a new host.
So it does by itself when it is started with another GRAPEVINE_JOIN or GRAPEVINE_KEY than
before, and when the plugin is installed anew.`,
		Example: "  grapevine join",
	}, patience, list((*api.Client).Join), showDone)
}
