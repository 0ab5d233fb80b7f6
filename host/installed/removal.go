package installed

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Removal says how grapevine is removed from a host that has left, in the order in which
// nothing waits for anything: Docker gives a driver that does not answer minutes.
func (a *Agent) Removal(ctx context.Context) string {
	p, err := a.Plugin(ctx)
	containers, networks := a.inDocker(ctx, cmp.Or(p.Name, a.serviceName()))
	var lines []string
	if len(containers) > 0 {
		lines = append(lines, "docker rm -f "+strings.Join(containers, " "))
	}
	if len(networks) > 0 {
		lines = append(lines, "docker network rm "+strings.Join(networks, " "))
	}
	switch name := cmp.Or(p.Name, "grapevine"); {
	case a.ID != "" || err != nil:
		lines = append(lines, "docker plugin disable "+name, "docker plugin rm "+name, filepath.Join(a.cfg.State, ProgramFile)+" cleanup --purge")
	default:
		lines = append(lines, "scripts/uninstall-service, or systemctl disable --now grapevine; grapevine cleanup --purge")
	}
	return "To remove grapevine from it, in this order:\n  " + strings.Join(lines, "\n  ")
}

// inDocker lists what Docker has of the driver's networks, and the containers on them.
func (a *Agent) inDocker(ctx context.Context, name string) (containers, networks []string) {
	if a.docker == nil {
		return nil, nil
	}
	list, err := a.docker.Networks(ctx)
	if err != nil {
		a.log.Warn("look what Docker has of this host's networks", "err", err)
	}
	for _, n := range list {
		if n.Driver != name {
			continue
		}
		networks = append(networks, n.Name)
		attached, _ := a.docker.Attached(ctx, n.ID) // who has gone meanwhile is not there
		for _, c := range attached {
			containers = append(containers, c.Name)
		}
	}
	slices.Sort(containers)
	slices.Sort(networks)
	return slices.Compact(containers), networks
}

// DriverName is what Docker knows the drivers by, "" if it does not say.
func (a *Agent) DriverName(ctx context.Context) string {
	if a.docker == nil {
		return ""
	}
	if a.ID == "" {
		return a.serviceName()
	}
	if name := a.name.Load(); name != nil {
		return *name
	}
	ctx, cancel := context.WithTimeout(ctx, pluginPatience)
	defer cancel()
	p, err := a.Plugin(ctx)
	if err != nil || p.Name == "" {
		return ""
	}
	a.name.Store(&p.Name)
	return p.Name
}

// pluginPatience bounds the question for the plugin's name.
const pluginPatience = time.Second

// serviceName is the driver's name where it is no managed plugin.
func (a *Agent) serviceName() string {
	if a.cfg.DriverName != "" && a.cfg.DriverName != "auto" {
		return a.cfg.DriverName
	}
	return strings.TrimSuffix(filepath.Base(a.cfg.PluginSocket), ".sock")
}
