package main

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/grapevine-net/grapevine/tests/lab"
)

const settle = 15 * time.Second

func (d *demo) startHosts(ctx context.Context) (string, error) {
	if err := requireRoot(); err != nil {
		return "", err
	}
	var mu sync.Mutex
	l, err := lab.New(ctx, lab.Options{Hosts: 3, Progress: func(line string) {
		mu.Lock()
		defer mu.Unlock()
		d.progress(line)
	}})
	if err != nil {
		return "", err
	}
	d.lab, d.ends = l, map[string]lab.Container{}
	version, err := l.Hosts[0].Docker(ctx, "version", "--format", "{{.Server.Version}}")
	return "three hosts with Docker Engine " + strings.TrimSpace(version), err
}

func (d *demo) startAgents(ctx context.Context) (string, error) {
	if err := d.lab.StartAgents(ctx); err != nil {
		return "", err
	}
	err := d.lab.Each(func(h *lab.Host) error {
		return lab.Eventually(ctx, settle, func() error {
			out, err := h.Grapevine(ctx, "status")
			if err == nil && !strings.Contains(out, "3 of 3 alive") {
				err = fmt.Errorf("it does not see three hosts:\n%s", out)
			}
			return err
		})
	})
	return "three hosts of three see each other", err
}

// create makes a network on one host and waits until all have it.
func (d *demo) create(ctx context.Context, on int, name string, options ...string) error {
	args := append([]string{"network", "create", "-d", "grapevine", "--ipam-driver", "grapevine"}, options...)
	d.progress(d.lab.Hosts[on].Name + "# docker " + strings.Join(append(args, name), " "))
	if _, err := d.lab.Hosts[on].Docker(ctx, append(args, name)...); err != nil {
		return err
	}
	return d.lab.Each(func(h *lab.Host) error {
		return lab.Eventually(ctx, settle, func() error {
			_, err := h.Docker(ctx, "network", "inspect", name)
			return err
		})
	})
}

func (d *demo) createBlue(ctx context.Context) (string, error) {
	return "docker network inspect blue answers on all three", d.create(ctx, 0, "blue")
}

// start runs a container and notes its address.
func (d *demo) start(ctx context.Context, on int, name, network string) error {
	h := d.lab.Hosts[on]
	if _, err := h.Docker(ctx, "run", "-d", "--name", name, "--network", network, lab.Image); err != nil {
		return err
	}
	c, err := h.Container(ctx, name)
	if err != nil {
		return err
	}
	d.ends[name] = c
	d.progress(fmt.Sprintf("%s# docker run -d --name %s --network %s ...   has %s", h.Name, name, network, text(c.AllAddrs())))
	return nil
}

func text(addrs []netip.Addr) string {
	var words []string
	for _, a := range addrs {
		words = append(words, a.String())
	}
	return strings.Join(words, ", ")
}

var blue = []string{"app", "db", "web"}

func (d *demo) runContainers(ctx context.Context) (string, error) {
	for i, name := range blue {
		if err := d.start(ctx, i, name, "blue"); err != nil {
			return "", err
		}
	}
	return "app, db and web run on host1, host2 and host3", nil
}

// reach has one container ping others.
func (d *demo) reach(ctx context.Context, from string, to ...string) error {
	for _, name := range to {
		if name == from {
			continue
		}
		if err := d.ends[from].Reach(ctx, settle, d.ends[name].AllAddrs()...); err != nil {
			return fmt.Errorf("%s does not reach %s: %w", from, name, err)
		}
	}
	return nil
}

func (d *demo) mesh(ctx context.Context) (string, error) {
	for _, from := range blue {
		if err := d.reach(ctx, from, blue...); err != nil {
			return "", err
		}
	}
	page, err := d.ends["app"].Fetch(ctx, "http://"+d.ends["db"].AllAddrs()[0].String()+"/")
	if err != nil {
		return "", fmt.Errorf("app gets no answer over TCP from db: %w", err)
	}
	return fmt.Sprintf("6 of 6 pairs ping; over HTTP db answered app: %s", strings.TrimSpace(page)), nil
}

func (d *demo) isolation(ctx context.Context) (string, error) {
	if err := d.create(ctx, 1, "red"); err != nil {
		return "", err
	}
	if err := d.start(ctx, 1, "spy", "red"); err != nil {
		return "", err
	}
	if err := d.start(ctx, 2, "spy2", "red"); err != nil {
		return "", err
	}
	if err := d.reach(ctx, "spy", "spy2"); err != nil {
		return "", err // or its silence towards blue would prove nothing
	}
	for _, name := range blue {
		if err := d.ends["spy"].Silent(ctx, time.Second, d.ends[name].AllAddrs()...); err != nil {
			return "", fmt.Errorf("spy reaches %s: %w", name, err)
		}
		if err := d.ends[name].Silent(ctx, time.Second, d.ends["spy"].AllAddrs()...); err != nil {
			return "", fmt.Errorf("%s reaches spy: %w", name, err)
		}
	}
	return "spy reaches spy2, and neither app, db nor web; nor they spy", nil
}

// names has app ask for its network's containers by name, and spy, of another one.
func (d *demo) names(ctx context.Context) (string, error) {
	ask := func(from, name string, want ...netip.Addr) error {
		return lab.Eventually(ctx, settle, func() error {
			got, err := d.ends[from].Lookup(ctx, name)
			if err == nil && text(got) != text(want) {
				err = fmt.Errorf("%s takes %s for %q, not %q", from, name, text(got), text(want))
			}
			return err
		})
	}
	for _, name := range blue {
		if err := ask("app", name, d.ends[name].AllAddrs()...); err != nil {
			return "", err
		}
	}
	if err := ask("spy", "spy2", d.ends["spy2"].AllAddrs()...); err != nil {
		return "", err // or its not knowing the others would prove nothing
	}
	return "app knows db and web; spy knows spy2, and not db", ask("spy", "db")
}

func (d *demo) global(ctx context.Context) (string, error) {
	if err := d.create(ctx, 2, "global", "-o", "vnid=0"); err != nil {
		return "", err
	}
	if err := d.start(ctx, 2, "monitor", "global"); err != nil {
		return "", err
	}
	others := append([]string{"spy"}, blue...)
	if err := d.reach(ctx, "monitor", others...); err != nil {
		return "", err
	}
	for _, name := range others {
		if err := d.reach(ctx, name, "monitor"); err != nil {
			return "", err
		}
	}
	return "monitor and app, db, web, spy reach each other", nil
}

func (d *demo) outside(ctx context.Context) (string, error) {
	for i, name := range blue {
		saw, err := d.ends[name].Fetch(ctx, "http://"+lab.OutsideAddr+"/")
		if err != nil {
			return "", fmt.Errorf("%s does not reach it: %w", name, err)
		}
		if saw = strings.TrimSpace(saw); saw != d.lab.Hosts[i].Addr().String() {
			return "", fmt.Errorf("it saw %s come from %s, and not from its host's address %s", name, saw, d.lab.Hosts[i].Addr())
		}
	}
	return "it sees app, db and web by the addresses of their hosts", nil
}

func (d *demo) status(ctx context.Context) (string, error) {
	for _, verb := range []string{"status", "nodes", "networks", "endpoints"} {
		out, err := d.lab.Hosts[0].Grapevine(ctx, verb)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(d.out, "\n    host1# grapevine %s\n%s\n", verb, indent(out))
	}
	fmt.Fprintln(d.out)
	return "the cluster as host1 sees it", nil
}
