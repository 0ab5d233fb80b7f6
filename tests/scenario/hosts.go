package scenario

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grapevine-net/grapevine/tests/lab"
)

// host1 to host9 are added by commands().
var hostCommands = map[string]command{
	"hosts":     hosts,
	"outside":   onOutside,
	"registry":  registry,
	"ovs":       ovs,
	"inventory": inventory,
	"unchanged": unchanged,
	"appears":   appears,
	"vanishes":  vanishes,
	"crowd":     crowd,
	"docs":      docs,
	"examples":  examples,
	"install":   install,
}

// hosts N [without agents] [with|without live-restore] [with bridge-ipv6] [GRAPEVINE_X=...]: a lab of N
// hosts, in one cluster. It sets $JOIN and $KEY to the settings of its agents.
func hosts(ctx context.Context, s *state, args []string) (string, error) {
	opts := s.opts
	agents := true
	if len(args) > 0 {
		opts.Hosts, _ = strconv.Atoi(args[0])
		args = args[1:]
	}
	for ; len(args) > 1 && (args[0] == "with" || args[0] == "without"); args = args[2:] {
		switch with := args[0] == "with"; args[1] {
		case "agents":
			agents = with
		case "live-restore":
			opts.Swarm = !with
		case "bridge-ipv6":
			opts.BridgeIPv6 = with
		default:
			opts.Hosts = 0
		}
	}
	opts.AgentEnv = slices.Concat(args, opts.AgentEnv) // of two the last one counts
	if opts.Hosts < 1 || opts.Hosts > 9 || s.lab != nil {
		return "", usageError("usage, once: hosts 1..9 [without agents] [with|without live-restore] [with bridge-ipv6] [GRAPEVINE_X=...]")
	}
	var err error
	if s.lab, err = lab.New(ctx, opts); err != nil {
		return "", err
	}
	for _, setting := range s.lab.Settings() {
		name, value, _ := strings.Cut(strings.TrimPrefix(setting, "GRAPEVINE_"), "=")
		s.setenv(name, value)
	}
	if !agents {
		return "", nil
	}
	if err := s.lab.StartAgents(ctx); err != nil {
		return "", err
	}
	return "", s.joined(ctx, 15*time.Second)
}

// joined waits until every host says that all is well with all of them.
func (s *state) joined(ctx context.Context, within time.Duration) error {
	want := fmt.Sprintf("%d of %d alive", len(s.lab.Hosts), len(s.lab.Hosts))
	return s.lab.Each(func(h *lab.Host) error {
		return lab.Eventually(ctx, within*s.patience(), func() error {
			out, err := h.Grapevine(ctx, "status")
			if err == nil && (!strings.Contains(out, want) || !strings.Contains(out, "All is well")) {
				err = fmt.Errorf("grapevine status does not say %q and that all is well:\n%s", want, out)
			}
			return err
		})
	})
}

// host finds a host of the lab by its name.
func (s *state) host(name string) (*lab.Host, error) {
	if s.lab == nil {
		return nil, usageError("the script has no hosts yet: begin with `hosts N`")
	}
	h, err := s.lab.Host(name)
	if err != nil {
		return nil, usageError(err.Error())
	}
	return h, nil
}

func (s *state) onHost(ctx context.Context, name string, args []string) (string, error) {
	h, err := s.host(name)
	if err != nil {
		return "", err
	}
	if len(args) == 0 {
		return "", usageError("usage: " + name + " PROGRAM ARGUMENTS..., or " + name + " fetch URL")
	}
	if args[0] == "fetch" && len(args) == 2 {
		return h.Fetch(ctx, args[1])
	}
	return h.Exec(ctx, args...)
}

func onOutside(ctx context.Context, s *state, args []string) (string, error) {
	if s.lab == nil || len(args) == 0 {
		return "", usageError("usage, after hosts: outside PROGRAM ARGUMENTS... or outside fetch URL")
	}
	if args[0] == "fetch" && len(args) == 2 {
		return s.lab.Outside.Fetch(ctx, args[1])
	}
	return s.lab.Outside.Exec(ctx, args...)
}

// registry start: an empty registry beyond the wire, at $registry.
func registry(ctx context.Context, s *state, args []string) (string, error) {
	if s.lab == nil || len(args) != 1 || args[0] != "start" {
		return "", usageError("usage, after hosts: registry start")
	}
	return "", s.lab.StartRegistry(ctx)
}

// install COMMIT|here HOST...: the grapevine program of that commit, or that under test.
func install(ctx context.Context, s *state, args []string) (string, error) {
	if len(args) < 2 {
		return "", usageError("usage: install COMMIT|here HOST...")
	}
	commit := strings.TrimPrefix(args[0], "here")
	return "", s.each(ctx, args[1:], func(h *lab.Host, ctx context.Context) error { return h.InstallAgent(ctx, commit) })
}

// ovs HOST ovs-vsctl ...: an Open vSwitch tool, with the agent's own daemons.
func ovs(ctx context.Context, s *state, args []string) (string, error) {
	if len(args) < 2 {
		return "", usageError("usage: ovs HOST ovs-vsctl|ovs-ofctl|... ARGUMENTS...")
	}
	return s.onHost(ctx, args[0], append([]string{"env", "OVS_RUNDIR=/run/grapevine/ovs"}, args[1:]...))
}

// appears NETWORK HOST...: within 5 s the hosts' Docker has the network.
func appears(ctx context.Context, s *state, args []string) (string, error) {
	return s.network(ctx, args, "appears", 5*time.Second, func(h *lab.Host) error {
		return lab.AskDocker(ctx, h, "/networks/"+url.PathEscape(args[0]), &struct{}{})
	})
}

// vanishes NETWORK HOST...: within 15 s the hosts' Docker no longer has it.
func vanishes(ctx context.Context, s *state, args []string) (string, error) {
	return s.network(ctx, args, "vanishes", 15*time.Second, func(h *lab.Host) error {
		var list []struct{ Name string }
		err := lab.AskDocker(ctx, h, "/networks", &list)
		if err == nil && slices.ContainsFunc(list, func(n struct{ Name string }) bool { return n.Name == args[0] }) {
			err = fmt.Errorf("%s still has the network %s", h.Name, args[0])
		}
		return err
	})
}

func (s *state) network(ctx context.Context, args []string, verb string, within time.Duration, holds func(*lab.Host) error) (string, error) {
	if len(args) < 2 {
		return "", usageError("usage: " + verb + " NETWORK HOST...")
	}
	return "", s.each(ctx, args[1:], func(h *lab.Host, ctx context.Context) error {
		return lab.Eventually(ctx, within*s.patience(), func() error { return holds(h) })
	})
}

// inventoryScript prints what of a host is its owner's: NICs, routes, rules,
// bridges, processes, files. Counters and times are left out.
const inventoryScript = `
ip -o link | awk '{print "link", $2}' | sed 's/@.*//' | sort
ip -o addr | awk '{print "addr", $2, $4}' | sort
for f in -4 -6; do ip $f route show table all | grep -v ' table local' | sed "s/^/route $f /"; ip $f rule | sed "s/^/rule $f /"; done
for p in iptables ip6tables; do $p-save | grep -v '^#' | sed -E 's/ ?\[[0-9]+:[0-9]+\]//' | sed "s/^/$p /"; done
nft list tables 2>/dev/null | sed 's/^/nft /' | sort
for f in ipv4/ip_forward ipv6/conf/all/forwarding; do echo "$f $(cat /proc/sys/net/$f)"; done
[ -S /run/openvswitch/db.sock ] && ovs-vsctl --columns=name list Bridge | sed 's/^/ovs /'
ls /run/docker/plugins | sed 's/^/plugin /'
find /var/lib/grapevine /run/grapevine 2>/dev/null | grep -v -e '/key$' -e '^/[a-z]*/\(lib/\)\?grapevine$' | sort
ps -eo comm= | grep -E '^(ovs-vswitchd|ovsdb-server|grapevine)' | sort | sed 's/^/process /'
true
`

// inventory HOST: remember what there is on a host.
func inventory(ctx context.Context, s *state, args []string) (string, error) {
	if len(args) != 1 {
		return "", usageError("usage: inventory HOST")
	}
	out, err := s.onHost(ctx, args[0], []string{"sh", "-c", inventoryScript})
	s.inventories[args[0]] = out
	return "", err
}

// unchanged HOST: there is on a host what there was at its inventory.
func unchanged(ctx context.Context, s *state, args []string) (string, error) {
	if len(args) != 1 || s.inventories[args[0]] == "" {
		return "", usageError("usage, after inventory HOST: unchanged HOST")
	}
	now, err := s.onHost(ctx, args[0], []string{"sh", "-c", inventoryScript})
	if err != nil {
		return "", err
	}
	if d := difference(s.inventories[args[0]], now); d != "" {
		return "", fmt.Errorf("%s has changed:\n%s", args[0], d)
	}
	return "", nil
}

// difference lists the lines that one text has and the other has not.
func difference(before, after string) string {
	count := map[string]int{}
	for line := range strings.Lines(before) {
		count[line]--
	}
	for line := range strings.Lines(after) {
		count[line]++
	}
	var b strings.Builder
	for _, line := range slices.Sorted(maps.Keys(count)) {
		switch {
		case count[line] < 0:
			b.WriteString("- " + line)
		case count[line] > 0:
			b.WriteString("+ " + line)
		}
	}
	return b.String()
}
