package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/tests/lab"
)

// What networks are asked for besides packets, all of it at the same time and under all faults: on blue a service of one
// replica a host, a port of every host for it, a service of whichever guests there are, and multicast; on red an egress with
// an address of its own, one of containers with a label, and limits.
const (
	serviceName, guestsName, egressName, labelEgress = "web", "guests", "mail", "smtp"

	exposedPort      = "8081"
	egressAddress    = "192.0.2.25"
	labelAddress     = "192.0.2.26" // of the egress of red's containers with egressLabel
	egressLabel      = "role=smtp"
	group            = "239.1.2.3:5000"
	limit            = "50mbit"
	caller, labelled = "caller", "labelled"
	// guestLabel is that of the containers which commands start.
	guestLabel = "tier=guest"
)

// options are those of a network that is always there.
var options = map[string][]string{
	"blue": {"-o", "multicast=on"},
	"red":  {"-o", "egress=" + limit, "-o", "ingress=" + limit},
}

// asks says whether these hosts can do it: User-Mode Linux has no nf_tables.
func (r *run) asks() bool { return r.kind == lab.Namespace }

// helpers are containers of each host beside those of the witnesses, and what they run.
var helpers = []struct {
	name, network string
	args, run     []string
}{
	// A replica of the service, which says who asks.
	{serviceName, "blue", []string{"-v", "/lab/bin/labhost:/bin/whoami", "-e", "GVLAB_ROLE=web"}, []string{"whoami", "[::]:80"}},
	{"ear", "blue", []string{"-v", "/lab/bin/labhost:/bin/cast", "-e", "GVLAB_ROLE=cast"}, []string{"cast", "hear", group}},
	// A guest that stays, so that the guests' service always leads to somebody.
	{"guest", "blue", []string{"-h", "guest", "--label", guestLabel}, nil},
	// They call the outside all the time, once their network has the egresses: port 80, and with the label port 81.
	{caller, "red", nil, []string{"sh", "-c", "while :; do timeout 2 wget -qO - http://" + lab.OutsideAddr + "/ >/dev/null 2>&1; sleep 0.5; done"}},
	{labelled, "red", []string{"--label", egressLabel}, []string{"sh", "-c", "while :; do nc -w 1 " + lab.OutsideAddr + " 81 </dev/null >/dev/null 2>&1; sleep 0.5; done"}},
}

// asking is a run as far as this goes.
type asking struct{ r *run }

// ask makes all of it.
func (a asking) ask(ctx context.Context) error {
	r := a.r
	if err := r.lab.Each(func(h *lab.Host) error {
		for _, c := range helpers {
			verb := []string{"run", "-d"}
			if c.network == "red" {
				verb = []string{"create"}
			}
			argv := slices.Concat(verb, []string{"--restart", "always", "--name", c.name, "--network", c.network}, c.args, []string{lab.Image}, c.run)
			if _, err := h.Docker(ctx, argv...); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	for i, argv := range [][]string{
		{"service", "create", serviceName, "--network", "blue", "--port", "80"},
		{"service", "create", guestsName, "--network", "blue", "--port", "80", "--label", guestLabel},
		{"service", "expose", serviceName, exposedPort + ":80"},
		{"egress", "create", egressName, "--network", "red", "--address", egressAddress},
		{"egress", "create", labelEgress, "--network", "red", "--label", egressLabel, "--address", labelAddress},
	} {
		if _, err := r.lab.Hosts[i%r.hosts].Grapevine(ctx, argv...); err != nil {
			return err
		}
	}
	if err := r.settle(ctx, r.patience()*time.Minute, func(ctx context.Context) error {
		return a.egress(ctx, egressName, egressAddress, "red", "http://"+lab.OutsideAddr+"/")
	}); err != nil {
		return err
	}
	// From here on nothing reaches the outside with another address.
	const count = `nft add table ip seen; nft add chain ip seen in '{ type filter hook input priority 0; }'
		nft add rule ip seen in tcp dport 80 ip saddr != ` + egressAddress + ` counter
		nft add rule ip seen in udp dport 80 ip saddr != ` + labelAddress + ` counter
		nft add rule ip seen in tcp dport 81 ip saddr != ` + labelAddress + ` counter
		nft add table ip right; nft add chain ip right in '{ type filter hook input priority 0; }'
		nft add rule ip right in tcp dport 80 ip saddr ` + egressAddress + ` counter
		nft add rule ip right in tcp dport 81 ip saddr ` + labelAddress + ` counter`
	if _, err := r.lab.Outside.Exec(ctx, "sh", "-ec", count); err != nil {
		return err
	}
	if err := r.lab.Each(func(h *lab.Host) error {
		_, err := h.Docker(ctx, "start", caller, labelled)
		return err
	}); err != nil {
		return err
	}
	return r.settle(ctx, r.patience()*time.Minute, a.asked)
}

// unask takes it away.
func (a asking) unask(ctx context.Context) error {
	r := a.r
	right, failed := r.lab.Outside.Exec(ctx, "nft", "list", "table", "ip", "right")
	if failed == nil && strings.Contains(right, "counter packets 0 ") {
		failed = errors.New("nothing was sent by an egress, so that nothing is shown: " + strings.Join(strings.Fields(right), " "))
	}
	err := errors.Join(failed, r.lab.Each(func(h *lab.Host) error {
		argv := []string{"rm", "-f"}
		for _, c := range helpers {
			argv = append(argv, c.name)
		}
		_, err := h.Docker(ctx, argv...)
		return err
	}))
	for i, argv := range [][]string{{"egress", "remove", labelEgress}, {"egress", "remove", egressName}, {"service", "remove", guestsName}, {"service", "remove", serviceName}} {
		_, next := r.lab.Hosts[i%r.hosts].Grapevine(ctx, argv...)
		err = errors.Join(err, next)
	}
	return err
}

// asked is nil if all hosts do what they were asked for.
func (a asking) asked(ctx context.Context) error {
	var g errgroup.Group
	checks := []func(context.Context) error{a.services, a.exposed, a.egresses, a.limits}
	if !forbids(a.r.asks(), a.r.seed) { // who has rules for what may be done to it gets no multicast
		checks = append(checks, a.cast)
	}
	for _, check := range checks {
		g.Go(func() error { return check(ctx) })
	}
	return g.Wait()
}

// addressOf is that of a service of blue.
func addressOf(ctx context.Context, l *lab.Lab, service string) (string, error) {
	text, err := l.Hosts[0].Grapevine(ctx, "service", "show", service)
	if err != nil {
		return "", err
	}
	for _, word := range strings.Fields(text) {
		if a, err := netip.ParseAddr(strings.Trim(word, ",;:.")); err == nil && a.Is4() {
			return a.String(), nil
		}
	}
	return "", fmt.Errorf("service %s has no address: %s", service, text)
}

// fromEach does something in a container of each host, at the same time.
func (a asking) fromEach(ctx context.Context, name string, do func(lab.Container) error) error {
	r := a.r
	return r.lab.Each(func(h *lab.Host) error {
		c, err := h.Container(ctx, name)
		if err == nil {
			err = do(c)
		}
		return err
	})
}

// services: each host's container is led to a replica, which sees that container's own address, and by the guests' service to
// a guest that there is.
func (a asking) services(ctx context.Context) error {
	r := a.r
	all, err := addressOf(ctx, a.r.lab, serviceName)
	if err != nil {
		return err
	}
	guests, err := addressOf(ctx, a.r.lab, guestsName)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	hosts, err := r.readAll(ctx)
	if err != nil {
		return err
	}
	for _, h := range hosts {
		for _, c := range h.Containers {
			there[c.Name] = c.Network == "blue"
		}
	}
	return a.fromEach(ctx, "blue", func(c lab.Container) error {
		said, err := c.Fetch(ctx, "http://"+all+"/")
		if own := c.Addrs["blue"][0].String(); err == nil && strings.TrimSpace(said) != own {
			err = fmt.Errorf("the replica saw %s, and not %s", strings.TrimSpace(said), own)
		}
		if err != nil {
			return fmt.Errorf("by service %s from %s: %w", serviceName, c.Host.Name, err)
		}
		for range guestCalls {
			said, err := c.Fetch(ctx, "http://"+guests+"/")
			if name := strings.TrimSpace(said); err == nil && !there[name] {
				err = fmt.Errorf("it led to %s, which is not there", name)
			}
			if err != nil {
				return fmt.Errorf("by service %s from %s: %w", guestsName, c.Host.Name, err)
			}
		}
		return nil
	})
}

// guestCalls is how often each host's container calls the guests' service at a time.
const guestCalls = 4

// exposed: each host answers the port, and the replica sees the outside's own address.
func (a asking) exposed(ctx context.Context) error {
	r := a.r
	return r.lab.Each(func(h *lab.Host) error {
		said, err := r.lab.Outside.Fetch(ctx, "http://"+h.Addr().String()+":"+exposedPort+"/")
		if err == nil && strings.TrimSpace(said) != lab.OutsideAddr {
			err = fmt.Errorf("the replica saw %s", strings.TrimSpace(said))
		}
		if err != nil {
			return fmt.Errorf("port %s of %s from outside: %w", exposedPort, h.Name, err)
		}
		return nil
	})
}

// egresses: containers of each host leave by the address of the one, or, with the label, of the other.
func (a asking) egresses(ctx context.Context) error {
	if err := a.egress(ctx, egressName, egressAddress, "red", "http://"+lab.OutsideAddr+"/"); err != nil {
		return err
	}
	return a.egress(ctx, labelEgress, labelAddress, labelled, "udp://"+lab.OutsideAddr+":80")
}

// egress: one host has its address, and a container of each host leaves by it.
func (a asking) egress(ctx context.Context, name, address, from, to string) error {
	r := a.r
	holders := make(chan string, r.hosts)
	if err := r.lab.Each(func(h *lab.Host) error {
		text, err := h.Exec(ctx, "ip", "-o", "-4", "addr")
		if err == nil && strings.Contains(text, " "+address+"/") {
			holders <- h.Name
		}
		return err
	}); err != nil {
		return err
	}
	close(holders)
	var who []string
	for h := range holders {
		who = append(who, h)
	}
	if len(who) != 1 {
		return fmt.Errorf("the address of egress %s is on %d hosts: %v", name, len(who), who)
	}
	return a.fromEach(ctx, from, func(c lab.Container) error {
		said, err := c.Fetch(ctx, to)
		if err == nil && strings.TrimSpace(said) != address {
			err = fmt.Errorf("it saw %s, and not %s", strings.TrimSpace(said), address)
		}
		if err != nil {
			return fmt.Errorf("the outside from %s on %s: %w", from, c.Host.Name, err)
		}
		return nil
	})
}

// castCopies is how many datagrams are sent to the group at a time.
const castCopies = 5

// cast: what each host's container sends to the group each host's member hears, each datagram once.
func (a asking) cast(ctx context.Context) error {
	r := a.r
	r.mu.Lock()
	r.casts++
	label := func(h *lab.Host) string { return fmt.Sprintf("from-%s-%d-", h.Name, r.casts) }
	labels := map[string]string{}
	for _, h := range r.lab.Hosts {
		labels[h.Name] = label(h)
	}
	r.mu.Unlock()
	if err := a.fromEach(ctx, "blue", func(c lab.Container) error {
		_, err := c.Cast(ctx, "send", group, labels[c.Host.Name], fmt.Sprint(castCopies))
		return err
	}); err != nil {
		return err
	}
	// Of red, which carries none; it may be heard by nobody.
	if err := a.fromEach(ctx, "red", func(c lab.Container) error {
		_, err := c.Cast(ctx, "send", group, strange, "1")
		return err
	}); err != nil {
		return err
	}
	return r.lab.Each(func(h *lab.Host) error {
		return lab.Eventually(ctx, r.patience()*time.Second, func() error {
			text, err := h.Docker(ctx, "logs", "--since", "2m", "ear")
			if err != nil {
				return err
			}
			for from, label := range labels {
				if n := strings.Count(text, label); n != castCopies {
					return fmt.Errorf("the member on %s heard %d of %d datagrams to %s from %s", h.Name, n, castCopies, group, from)
				}
			}
			return nil
		})
	})
}

// strange is what red's containers send to blue's group.
const strange = "of-another-network"

// limits: the queues of red's containers are there, on both ends.
func (a asking) limits(ctx context.Context) error {
	return a.fromEach(ctx, "red", func(c lab.Container) error {
		text, err := c.Exec(ctx, "tc", "qdisc", "show", "dev", "eth0")
		if err == nil && !limited.MatchString(text) {
			err = fmt.Errorf("its queue is %s", strings.TrimSpace(text))
		}
		if err != nil {
			return fmt.Errorf("the limit of red on %s: %w", c.Host.Name, err)
		}
		return nil
	})
}

// limited matches a queue with the limit: versions of tc write it in their own ways.
var limited = regexp.MustCompile(`tbf .*rate 50(Mbit|000Kbit)`)

// never looks for what must not be at any moment, whatever fault there is.
func (a asking) never(ctx context.Context) (wrong []string) {
	r := a.r
	text, err := r.lab.Outside.Exec(ctx, "nft", "list", "table", "ip", "seen")
	switch {
	case err != nil:
		wrong = append(wrong, err.Error())
	case strings.Count(text, "counter packets 0 ") != 3:
		wrong = append(wrong, "something of network red reached the outside with another address than that of its egress: "+strings.Join(strings.Fields(text), " "))
	}
	for _, h := range r.lab.Hosts {
		text, err := h.Docker(ctx, "logs", "ear")
		if err != nil {
			continue // its Docker may be away
		}
		heard := map[string]int{}
		for line := range strings.Lines(text) {
			if strings.Contains(line, strange) {
				wrong = append(wrong, fmt.Sprintf("a member on %s heard multicast of another network: %s", h.Name, strings.TrimSpace(line)))
			}
			if heard[line]++; heard[line] == 2 && strings.Contains(line, " from-") {
				wrong = append(wrong, fmt.Sprintf("a member on %s heard a datagram twice: %s", h.Name, strings.TrimSpace(line)))
			}
		}
	}
	return wrong
}
