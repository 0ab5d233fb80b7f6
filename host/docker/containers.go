package docker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/client"
)

// Attachment is a container's configured place on a network. EndpointID is ""
// while the container does not run; NetworkID may be while it never ran.
type Attachment struct {
	Network, NetworkID, EndpointID string
}

// Container is a container of this host, running or not.
type Container struct {
	ID, Name string
	State    string // created, running, paused, restarting, removing, exited or dead
	// Unready says that it is paused, or being stopped, or has a HEALTHCHECK which does not say that it is healthy.
	Unready bool
	// Sick says that it is paused, or that its HEALTHCHECK says that it is not healthy: not of one that only starts, or is being stopped.
	Sick bool
	// Paused says that Docker has frozen it: its kernel answers, and no program in it runs.
	Paused bool
	// Labels are nil where Docker did not tell them, as where it lists a network's containers.
	Labels   map[string]string
	Networks []Attachment
	// Within is the ID or name of the container whose network namespace it is in
	// (--network container:NAME); "": it has its own.
	Within string
}

// Containers lists all containers of the host, stopped ones too.
func (c *Client) Containers(ctx context.Context) ([]Container, error) {
	var out []Container
	err := c.do(ctx, "list containers", func(ctx context.Context, cli *client.Client) error {
		list, err := cli.ContainerList(ctx, container.ListOptions{All: true})
		for _, s := range list {
			one := containerOf(s)
			one.Unready = one.Unready || c.stops.of(one.ID)
			out = append(out, one)
		}
		return err
	})
	return out, err
}

func containerOf(s container.Summary) Container {
	out := Container{ID: s.ID, State: s.State, Labels: s.Labels}
	out.Paused = s.State == "paused"
	out.Sick = out.Paused || strings.HasSuffix(s.Status, "(unhealthy)") // Docker's list has health in words for people alone
	out.Unready = out.Sick || strings.HasSuffix(s.Status, "(health: starting)")
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	if within, ok := strings.CutPrefix(s.HostConfig.NetworkMode, "container:"); ok {
		out.Within = within
	}
	// Names also holds "/other/alias" for legacy links; the container's own has one slash.
	for _, n := range s.Names {
		if n = strings.TrimPrefix(n, "/"); !strings.Contains(n, "/") {
			out.Name = n
		}
	}
	if s.NetworkSettings == nil {
		return out
	}
	for name, e := range s.NetworkSettings.Networks {
		if e != nil {
			out.Networks = append(out.Networks, Attachment{Network: name, NetworkID: e.NetworkID, EndpointID: e.EndpointID})
		}
	}
	return out
}

// Details are what a list does not tell of a container.
type Details struct {
	Name string
	// Names are those that the container has on its networks, by endpoint: its aliases,
	// and what else the engine itself resolves there.
	Names map[string][]string
	// LinkLocal are the addresses of --link-local-ip, by endpoint, as the user wrote them.
	LinkLocal map[string][]string
	// Restarts says that it has a restart policy; Failed is why Docker's last attempt to
	// start it failed, "" if it did not.
	Restarts bool
	Failed   string
	// Publishes are the ports of the host that its configuration asks for by number (-p), whether it runs or not.
	Publishes []PortRange
	// NetAdmin says that it may change its own interfaces.
	NetAdmin bool
}

// PortRange are ports of the host, from First to Last.
type PortRange struct {
	Proto       string
	First, Last uint16
}

// published reads the ports that a container's configuration asks for. Those that Docker is to choose are left out.
func published(h *container.HostConfig) (list []PortRange) {
	for port, bindings := range h.PortBindings {
		for _, b := range bindings {
			from, to, run := strings.Cut(b.HostPort, "-")
			if !run {
				to = from
			}
			first, err := strconv.ParseUint(from, 10, 16)
			last, err2 := strconv.ParseUint(to, 10, 16)
			if err == nil && err2 == nil && first > 0 {
				list = append(list, PortRange{port.Proto(), uint16(first), uint16(last)})
			}
		}
	}
	return list
}

// Inspect asks for a container's details. It takes a lock that Docker holds while it
// starts a container or connects it, calling its network's driver meanwhile: only for
// goroutines that nobody waits for. A container that is gone is ErrNotFound.
func (c *Client) Inspect(ctx context.Context, id string) (d Details, err error) {
	err = c.do(ctx, "inspect container "+id, func(ctx context.Context, cli *client.Client) error {
		r, err := cli.ContainerInspect(ctx, id)
		if err == nil {
			d = detailsOf(r)
		}
		return err
	})
	return d, err
}

func detailsOf(r container.InspectResponse) Details {
	d := Details{Names: map[string][]string{}, LinkLocal: map[string][]string{}}
	if r.ContainerJSONBase != nil {
		d.Name = strings.TrimPrefix(r.Name, "/")
		d.Restarts = r.HostConfig != nil && !r.HostConfig.RestartPolicy.IsNone()
		if h := r.HostConfig; h != nil {
			d.Publishes = published(h)
			d.NetAdmin = h.Privileged || slices.ContainsFunc(h.CapAdd, func(c string) bool {
				c = strings.TrimPrefix(strings.ToUpper(c), "CAP_")
				return c == "ALL" || c == "NET_ADMIN"
			})
		}
		if r.State != nil {
			d.Failed = r.State.Error
		}
	}
	if r.NetworkSettings == nil {
		return d
	}
	for _, e := range r.NetworkSettings.Networks {
		if e != nil && e.EndpointID != "" {
			d.Names[e.EndpointID] = append(slices.Clone(e.Aliases), e.DNSNames...)
			if e.IPAMConfig != nil {
				d.LinkLocal[e.EndpointID] = e.IPAMConfig.LinkLocalIPs
			}
		}
	}
	return d
}

// startTimeout bounds Start: Docker calls the drivers of all the container's networks.
const startTimeout = time.Minute

// Start starts a container; one that runs is no error, one that is gone is ErrNotFound.
// Docker calls its network's driver meanwhile, and holds the lock that Inspect waits for.
func (c *Client) Start(ctx context.Context, id string) error {
	return c.within(ctx, startTimeout, "start container "+id, func(ctx context.Context, cli *client.Client) error {
		return cli.ContainerStart(ctx, id, container.StartOptions{})
	})
}

// Watch calls changed for each event of a network or container that may change
// a list, and once when the stream stands, not always from the same goroutine. It blocks until ctx ends (nil) or the
// stream breaks (an error; call again).
func (c *Client) Watch(ctx context.Context, changed func()) error {
	cli, err := c.dial()
	if err != nil {
		return fmt.Errorf("watch events: %w", err)
	}
	var asking sync.WaitGroup
	defer asking.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	args := filters.NewArgs(filters.Arg("type", "network"), filters.Arg("type", "container"))
	for _, e := range []string{"create", "connect", "disconnect", "destroy", "remove", "rename", "start", "kill", "die", "pause", "unpause", "health_status"} {
		args.Add("event", e)
	}
	msgs, errs := cli.Events(ctx, events.ListOptions{Filters: args})
	c.stops.clear() // whose end was missed would be stopping for ever
	changed()
	for {
		select {
		case m := <-msgs:
			if m.Type == events.ContainerEventType {
				switch id := m.Actor.ID; m.Action {
				case events.ActionStart, events.ActionDie, events.ActionDestroy:
					c.stops.end(id)
				case events.ActionKill:
					question := c.stops.ask(id)
					asking.Go(func() {
						if c.stops.answer(id, question, c.isStop(ctx, id, m.Actor.Attributes["signal"])) {
							changed()
						}
					})
					continue
				}
			}
			changed()
		case err := <-errs:
			c.Close()
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("watch events: docker at %s: %w", c.host, err)
		}
	}
}

func notFoundOK(err error) error {
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}
