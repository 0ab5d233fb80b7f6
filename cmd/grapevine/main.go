// Command grapevine is the agent of a host (grapevine agent) and the command
// line that asks it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/config"
)

// version is set by the linker (-X main.version=...).
var version string

// The main goroutine keeps the main thread, so that no other one gets it: one that leaves its thread in another network namespace
// would leave /proc/self/net and /proc/net there, for as long as the process lives.
func init() { runtime.LockOSThread() }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := newRoot().ExecuteContext(ctx)
	stop()
	if code, ok := errors.AsType[exitError](err); ok {
		os.Exit(int(code))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "grapevine:", err)
		os.Exit(1)
	}
}

func newRoot() *cobra.Command {
	cobra.EnableCommandSorting = false // what is needed most stands first
	root := &cobra.Command{
		Use:   "grapevine",
		Short: "One network over many Docker hosts, with no master",
		Long: `grapevine is a network and IPAM driver for Docker: containers on many hosts on
one network, over Open vSwitch, and no master. Each host runs one agent, which the other
commands ask: that of this host, or, with -H, that of another host by ssh. Only root may
change anything. Users who may use Docker may look as well.`,
		Example: `  grapevine status                                                                 # is all well?
  grapevine ps                                                                     # who is where
  grapevine -H ssh://root@nuc1 ps                                                  # from a laptop
  docker network create -d grapevine:latest --ipam-driver grapevine:latest blue    # the plugin's driver
  docker network create -d grapevine --ipam-driver grapevine blue                  # the service's`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          isVerb,
		RunE: func(c *cobra.Command, _ []string) error {
			if yes, err := c.Flags().GetBool("version"); yes || err != nil {
				return errors.Join(err, printVersion(c))
			}
			return c.Help()
		},
	}
	// Not cobra's own, which is worded by a template (TestNoTemplates).
	root.Flags().BoolP("version", "v", false, "print the version of this program")
	root.SetFlagErrorFunc(flagError)
	config.AddFlags(root.PersistentFlags(), "run")
	root.PersistentFlags().StringP("host", "H", "", "ask the agent of another host, by ssh://HOST or ssh://USER@HOST:PORT")
	root.PersistentPreRunE = refuseHost
	root.PersistentFlags().StringP("output", "o", "table", "table or json")
	for _, g := range []struct {
		title string
		verbs []*cobra.Command
	}{
		{"See:", []*cobra.Command{
			newStatus(), newDoctor(), newPing(), newPS(), newShow(), newNodes(), newNetworks(), newEndpoints(), newRing(), newFlows(), newDrops(), newTrace(), newTraffic(), newCapture(), newMirror(), newUI(), newMetrics(), newBGP(), newWait(), newReport(),
		}},
		{"Change:", []*cobra.Command{newPolicy(), newNetwork(), newService(), newEgress(), newLimit(), newClientVerb(), newFastPath(), newKeys(), newForget(), newLeave(), newJoin()}},
		{"Set up:", []*cobra.Command{
			newJoinCommand(), newAgent(), newBackup(), newRestore(), newCleanup(), newCompletion(), newVersion(),
		}},
	} {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, v := range g.verbs {
			v.GroupID = g.title
			root.AddCommand(v)
		}
	}
	root.AddCommand(newDialStdio(), newDeputy(), newWireGuardDevice(), newWireGuardSandbox(), newBootGuard())
	root.SetHelpCommandGroupID("Set up:")
	root.CompletionOptions.DisableDefaultCmd = true // ours has examples
	return root
}

// programVersion is the linker's, else what the Go toolchain knows of the source.
func programVersion() string {
	if version != "" {
		return version
	}
	info, _ := debug.ReadBuildInfo()
	if info == nil || info.Main.Version == "" {
		return "(unknown)"
	}
	return info.Main.Version
}
