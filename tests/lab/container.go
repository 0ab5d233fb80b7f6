package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Container is a running container, as it was when it was looked at.
type Container struct {
	Host *Host
	Name string
	PID  int // of its first process, in the host
	// Addrs are its addresses, by the name of the network.
	Addrs map[string][]netip.Addr
	// MACs are its interfaces', by the name of the network.
	MACs map[string]string
}

// Container looks at a running container.
func (h *Host) Container(ctx context.Context, name string) (Container, error) {
	var is struct {
		State           struct{ Pid int }
		NetworkSettings struct {
			Networks map[string]struct{ IPAddress, GlobalIPv6Address, MacAddress string }
		}
	}
	if err := AskDocker(ctx, h, "/containers/"+url.PathEscape(name)+"/json", &is); err != nil {
		return Container{}, fmt.Errorf("look at container %s: %w", name, err)
	}
	c := Container{Host: h, Name: name, PID: is.State.Pid, Addrs: map[string][]netip.Addr{}, MACs: map[string]string{}}
	if c.PID == 0 {
		return Container{}, fmt.Errorf("container %s does not run on %s", name, h.Name)
	}
	for network, at := range is.NetworkSettings.Networks {
		c.MACs[network] = at.MacAddress
		for _, text := range []string{at.IPAddress, at.GlobalIPv6Address} {
			if addr, err := netip.ParseAddr(text); err == nil {
				c.Addrs[network] = append(c.Addrs[network], addr)
			}
		}
	}
	return c, nil
}

// AllAddrs are the container's addresses on all of its networks.
func (c Container) AllAddrs() []netip.Addr {
	var all []netip.Addr
	for _, addrs := range c.Addrs {
		all = append(all, addrs...)
	}
	return all
}

// Exec runs one of the host's programs in the container's network namespace. It
// does not need dockerd.
func (c Container) Exec(ctx context.Context, argv ...string) (string, error) {
	return c.exec(ctx, nil, argv)
}

func (c Container) exec(ctx context.Context, env, argv []string) (string, error) {
	return c.Host.machine.server().run(ctx, request{Argv: c.enter(argv), Env: env})
}

func (c Container) enter(argv []string) []string {
	return append([]string{"nsenter", "--net", "--target", strconv.Itoa(c.PID), "--"}, argv...)
}

var pingEnv = []string{roleVar + "=" + rolePing}

// Reach pings all the addresses until each has answered; one that has not within
// the time is an error that names it.
func (c Container) Reach(ctx context.Context, within time.Duration, to ...netip.Addr) error {
	return c.ping(ctx, within, "all", to)
}

// Silent pings all the addresses for the given time; an answer is an error.
func (c Container) Silent(ctx context.Context, during time.Duration, to ...netip.Addr) error {
	return c.ping(ctx, during, "none", to)
}

func (c Container) ping(ctx context.Context, within time.Duration, want string, to []netip.Addr) error {
	args := []string{"-within", within.String(), "-want", want}
	for _, addr := range to {
		args = append(args, addr.String())
	}
	if _, err := c.inside(ctx, rolePing, args...); err != nil {
		return fmt.Errorf("ping from %s on %s: %w", c.Name, c.Host.Name, err)
	}
	return nil
}

// Fetch gets an URL from inside the container's network namespace.
func (c Container) Fetch(ctx context.Context, url string) (string, error) {
	return c.Host.machine.server().run(ctx, fetchRequest(c.PID, url, c.enter([]string{labhost})...))
}

// Pinging is a stream of echo requests from a container.
type Pinging struct {
	from Container
	name string
}

// StartPinging pings an address every interval, until Stop. It needs neither
// dockerd nor the agent.
func (c Container) StartPinging(ctx context.Context, to netip.Addr, interval time.Duration) (*Pinging, error) {
	p := &Pinging{from: c, name: fmt.Sprintf("ping-%s-%d", c.Name, time.Now().UnixNano())}
	argv := c.enter([]string{labhost, "-stream", interval.String(), to.String()})
	return p, c.Host.Start(ctx, p.name, pingEnv, argv...)
}

// Stop ends the stream and says what became of it.
func (p *Pinging) Stop(ctx context.Context) (PingResult, error) {
	h := p.from.Host
	if err := h.Stop(ctx, p.name, syscall.SIGTERM, 10*time.Second); err != nil {
		return PingResult{}, err
	}
	log := tail(filepath.Join(h.logDir(), p.name+".log"), 1)
	var result PingResult
	if err := json.NewDecoder(strings.NewReader(log)).Decode(&result); err != nil {
		return PingResult{}, fmt.Errorf("the pinger from %s ended with: %s", p.from.Name, log)
	}
	return result, nil
}
