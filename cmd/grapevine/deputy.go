package main

import (
	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/agent"
	"github.com/grapevine-net/grapevine/config"
)

// deputyVerb is the verb by which an agent that ends has somebody answer Docker.
const deputyVerb = "deputy"

// deputyCommand runs this program as that, even if its file has been replaced meanwhile.
func deputyCommand(cfg config.Config) []string {
	return []string{"/proc/self/exe", deputyVerb, cfg.PluginSocket}
}

// newDeputy is what the agent runs at its end.
func newDeputy() *cobra.Command {
	return &cobra.Command{
		Use: deputyVerb + " SOCKET", Short: "Answer Docker while no agent runs", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return agent.Deputise(c.Context(), args[0]) },
	}
}
