package main

import (
	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/host/wireguard"
	"github.com/grapevine-net/grapevine/leisure"
)

// newWireGuardDevice is the process that encrypts where the kernel does not; the agent starts it.
func newWireGuardDevice() *cobra.Command {
	return &cobra.Command{
		Use: wireguard.Verb + " SOCKET MTU NAME", Short: "Be the device that encrypts, for the agent", Hidden: true,
		RunE: func(c *cobra.Command, args []string) error {
			leisure.Prompt() // it is to carry packets
			return wireguard.Serve(c.Context(), args)
		},
	}
}

// newWireGuardSandbox is the process whose network namespace has the device by which clients come; the agent starts it.
func newWireGuardSandbox() *cobra.Command {
	return &cobra.Command{
		Use: wireguard.SandboxVerb + " SOCKET", Short: "Be the sandbox by which clients come, for the agent", Hidden: true,
		RunE: func(c *cobra.Command, args []string) error {
			leisure.Prompt()
			return wireguard.ServeSandbox(c.Context(), args)
		},
	}
}
