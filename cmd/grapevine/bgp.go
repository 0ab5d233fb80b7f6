package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
)

func newBGP() *cobra.Command {
	return verb(&cobra.Command{
		Use:   "bgp",
		Short: "Show which routers are told by BGP, and of what",
		Long: `Show the routers that GRAPEVINE_BGP names, whether this host has a session with them, and which addresses they are told of:
those of egresses that this host holds, its ranges of the networks of GRAPEVINE_BGP_NETWORKS, and those of
GRAPEVINE_BGP_ADDRESSES that it has. Nothing is learned from routers. docs/use/bgp.md has more.`,
		Example: `  grapevine bgp
  grapevine bgp -o json | jq -r '.routers[] | select(.up | not) | .router'`,
		Args: noNames,
	}, patience, list((*api.Client).BGP), showBGP)
}

func showBGP(w io.Writer, b api.BGP) error {
	if len(b.Routers) == 0 {
		_, err := fmt.Fprintln(w, "No router is told anything: GRAPEVINE_BGP names none (docs/use/bgp.md).")
		return err
	}
	err := table(w, "ROUTER\tAS\tAS HERE\tSESSION\tTOLD\tKEEPS\tNOTE", func(row func(string, ...any)) {
		for _, r := range b.Routers {
			state, told, keeps := "down", "-", "-"
			if r.Up {
				state, told = "up", fmt.Sprint(r.Told)
			}
			if r.Keeps > 0 {
				keeps = (time.Duration(r.Keeps) * time.Second).String()
			}
			row("%s\t%d\t%d\t%s since %s\t%s\t%s\t%s", r.Router, r.AS, r.LocalAS, state, r.Since.Local().Format(time.DateTime), told, keeps, dash(r.Error))
		}
	})
	if err != nil || len(b.Routes) == 0 {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return table(w, "PREFIX\tLEADS TO", func(row func(string, ...any)) {
		for _, r := range b.Routes {
			row("%s\t%s", r.Prefix, r.For)
		}
	})
}
