package scenario

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/tests/lab"
)

var isolationCommands = map[string]command{"isolation": isolate}

// place is where a container is, on host1, or what is none: the host itself and the
// outside, which is a neighbour on the LAN that takes host1 for its router.
type place struct {
	name, kind string   // kind: see Isolation
	create     []string // docker network create
	run        []string // docker run, besides
	port       int      // of the host, published to 80; 0: none
	grapevine  bool
}

var places = []place{
	{name: "outside", kind: "outside"},
	{name: "host", kind: "host"},
	{name: "docker0", kind: "bridge", run: []string{"--network", "bridge"}, port: 8001},
	{name: "plain", kind: "bridge", create: []string{"--ipv6", "--subnet", "fd00:71::/64"}, port: 8002},
	{name: "late", kind: "bridge", create: []string{"--ipv6", "--subnet", "fd00:72::/64", "-o", "com.docker.network.bridge.name=latebridge"}, port: 8003},
	{name: "locked", kind: "internal bridge", create: []string{"--internal", "--ipv6", "--subnet", "fd00:73::/64"}},
	{name: "swarm", kind: "Swarm overlay", create: []string{"-d", "overlay", "--attachable", "--subnet", "10.66.0.0/24"}, port: 8004},
	{name: "mac", kind: "macvlan", create: []string{"-d", "macvlan", "--subnet", "192.0.2.0/24", "--ip-range", "192.0.2.128/28", "--gateway", "192.0.2.254", "--ipv6", "--subnet", "fd00:db8::/64", "--ip-range", "fd00:db8::1000/116", "--gateway", "fd00:db8::fe", "-o", "parent=eth0"}},
	{name: "blue", kind: "grapevine", create: []string{"--ipv6"}, port: 8005, grapevine: true},
	{name: "red", kind: "grapevine", create: []string{"--ipv6"}, port: 8006, grapevine: true},
	{name: "vault", kind: "internal grapevine", create: []string{"--ipv6", "--internal"}, port: 8008, grapevine: true},
	{name: "global", kind: "global grapevine", create: []string{"--ipv6", "-o", "vnid=0"}, port: 8007, grapevine: true},
}

// isolation is the state of the commands.
type isolation struct {
	there []place
	// before is what could be reached of Docker's own networks without grapevine.
	before  map[string]bool
	ours    bool // only what grapevine is part of is looked at
	noSwarm bool // there is none
	slow    bool // the kernels are: of several containers that start at once each would wait for all
	// patience is that of the hosts: what is not reached is waited for as long as that takes there.
	patience func() time.Duration
}

// isolate makes what the table Isolation speaks of, and sees that it holds.
//
//	isolation docker      Docker's own networks and their containers, on host1; what of them is
//	                      reached is noted. `isolation docker without swarm`: all but Swarm's overlay
//	isolation grapevine   ours; the network late is made anew, after the agent's start. `isolation grapevine DRIVER`: that is
//	                      the driver's name, as Docker has it
//	isolation holds       all of the table is so; of Docker's own networks, all is as noted
//	isolation ours-holds  the first half of it, where Docker's own rules are gone
//	isolation closed      nothing of it is reached that should not be: what is to be reached need not
func isolate(ctx context.Context, s *state, args []string) (string, error) {
	noSwarm := slices.Equal(args, []string{"docker", "without", "swarm"})
	if s.lab == nil || len(s.lab.Hosts) < 2 || len(args) != 1 && (len(args) != 2 || args[0] != "grapevine") && !noSwarm {
		return "", usageError("usage, after hosts 2: isolation docker [without swarm]|grapevine [DRIVER]|holds|ours-holds|closed")
	}
	if s.isolation == nil {
		s.isolation = &isolation{patience: s.patience, slow: s.opts.Kind == lab.UML}
	}
	h, neighbour := s.lab.Hosts[0], s.lab.Hosts[1]
	switch args[0] {
	case "docker":
		if s.isolation.noSwarm = noSwarm; !noSwarm {
			if err := beginSwarm(ctx, h); err != nil {
				return "", err
			}
		}
		if err := s.isolation.make(ctx, h, ""); err != nil {
			return "", err
		}
		if _, err := neighbour.Docker(ctx, append([]string{"run", "-d", "--name", "outside", "--network", "host", lab.Image}, serveTwice...)...); err != nil {
			return "", err
		}
		return s.isolation.note(ctx, h, neighbour)
	case "grapevine":
		if _, err := h.Exec(ctx, "sh", "-c", "docker rm -f late && docker network rm late"); err != nil {
			return "", err
		}
		return "", s.isolation.make(ctx, h, append(args, "grapevine")[1])
	case "holds", "ours-holds":
		s.isolation.ours = args[0] != "holds"
		return s.isolation.holds(ctx, h, neighbour, 20*time.Second*s.patience())
	case "closed":
		s.isolation.ours = true
		return s.isolation.closed(ctx, h, neighbour)
	}
	return "", usageError("isolation " + args[0])
}

// beginSwarm has the host be a swarm of its own.
func beginSwarm(ctx context.Context, h *lab.Host) error {
	// Overlay networks are of IPv4; the bridge by which their containers leave has both.
	gateway := []string{"network", "create", "--ipv6", "--subnet", "fd00:74::/64", "-o", "com.docker.network.bridge.name=docker_gwbridge",
		"-o", "com.docker.network.bridge.enable_icc=false", "docker_gwbridge"}
	if _, err := h.Docker(ctx, gateway...); err != nil {
		return err
	}
	_, err := h.Docker(ctx, "swarm", "init", "--advertise-addr", "192.0.2.1", "--data-path-port", "4791")
	return err
}

// make makes networks and containers: Docker's own, or, by the name of our driver, ours and the late one.
func (i *isolation) make(ctx context.Context, h *lab.Host, driver string) error {
	var g errgroup.Group
	if i.slow {
		g.SetLimit(1)
	}
	grapevine := driver != ""
	for _, p := range places {
		if p.grapevine != grapevine && (p.name != "late" || !grapevine) || i.noSwarm && p.name == "swarm" {
			continue
		}
		if p.name != "late" || !grapevine {
			i.there = append(i.there, p)
		}
		if p.name == "outside" {
			continue
		}
		g.Go(func() error { return p.make(ctx, h, driver) })
	}
	return g.Wait()
}

func (p place) make(ctx context.Context, h *lab.Host, driver string) error {
	network := p.run
	if p.name == "host" {
		network = []string{"--network", "host"}
	}
	if network == nil {
		create := []string{"network", "create"}
		if p.grapevine {
			create = append(create, "-d", driver, "--ipam-driver", driver)
		}
		if _, err := h.Docker(ctx, append(append(create, p.create...), p.name)...); err != nil {
			return err
		}
		network = []string{"--network", p.name}
	}
	run := append([]string{"run", "-d", "--restart", "always", "--name", p.name}, network...)
	if p.name != "host" {
		run = append(run, "--hostname", p.name)
	}
	if p.port != 0 {
		run = append(run, "-p", fmt.Sprintf("%d:80", p.port))
	}
	run = append(append(run, lab.Image), serveTwice...)
	_, err := h.Docker(ctx, run...)
	for tries := 1; err != nil && tries < attempts && strings.Contains(err.Error(), "attaching to network failed"); tries++ {
		_, _ = h.Docker(ctx, "rm", "-f", p.name) // it may be there, not started
		_, err = h.Docker(ctx, run...)
	}
	return err
}

// attempts is how often a container is attached to Swarm's overlay, whose manager has 20 seconds for it and no more, however
// busy the machine is.
const attempts = 5

// serveTwice has a container serve its name at port 80, which may be published, and at 81,
// which is not.
var serveTwice = []string{"sh", "-c", "hostname > /www/index.html; httpd -p 81 -h /www; exec httpd -f -p 80 -h /www"}

// target is an address that is somebody's, by itself or as a published port.
type target struct {
	place     place
	published bool
	v6        bool
	addr      string
	port      string // ":80" if it is that of the container that is published elsewhere
}

// survey asks everybody from everywhere, and returns who reached what: "from to", "from
// to:80", "from to/6" and "from to published".
func (i *isolation) survey(ctx context.Context, h, neighbour *lab.Host) (map[string]bool, []string, error) {
	containers := map[string]lab.Container{}
	var targets []target
	for _, p := range i.there {
		own := []netip.Addr{h.Addr(), h.Addr6()}
		switch p.name {
		case "outside":
			own = []netip.Addr{neighbour.Addr(), neighbour.Addr6()}
		case "host":
		default:
			c, err := h.Container(ctx, p.name)
			if err != nil && p.name == "swarm" { // at a boot Docker 20.10 may look for its overlay before its manager has it, and gives up
				if _, err = h.Docker(ctx, "start", p.name); err == nil {
					c, err = h.Container(ctx, p.name)
				}
			}
			if err != nil {
				return nil, nil, err
			}
			containers[p.name] = c
			if own, err = globals(ctx, c); err != nil {
				return nil, nil, err
			}
		}
		for _, a := range own {
			targets = append(targets, target{p, false, a.Is6(), net.JoinHostPort(a.String(), "81"), ""})
			if p.port != 0 {
				targets = append(targets, target{p, false, a.Is6(), net.JoinHostPort(a.String(), "80"), ":80"})
			}
		}
		if p.port != 0 {
			for _, a := range []netip.Addr{h.Addr(), h.Addr6()} {
				targets = append(targets, target{p, true, a.Is6(), net.JoinHostPort(a.String(), strconv.Itoa(p.port)), ""})
			}
		}
	}
	if err := routeBy(ctx, h, neighbour, targets); err != nil {
		return nil, nil, err
	}
	var addrs []string
	for _, t := range targets {
		addrs = append(addrs, t.addr)
	}
	said := make([]map[string]string, len(i.there))
	var g errgroup.Group
	for n, p := range i.there {
		g.Go(func() (err error) {
			within := i.patience() * 1500 * time.Millisecond
			switch c, there := containers[p.name]; {
			case there:
				said[n], err = c.Survey(ctx, within, addrs...)
			case p.name == "host":
				said[n], err = h.Survey(ctx, within, addrs...)
			default:
				said[n], err = neighbour.Survey(ctx, within, addrs...)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, nil, err
	}
	found, asked := map[string]bool{}, []string{}
	for n, from := range i.there {
		for _, t := range targets {
			if from.name == t.place.name {
				continue
			}
			cell := t.cell(from)
			asked = append(asked, cell)
			name, answered := said[n][t.addr]
			answered = answered && name != "" // docker-proxy takes connections for containers that it does not reach
			if answered && t.place.name != "host" && t.place.name != "outside" && name != t.place.name {
				return nil, nil, fmt.Errorf("%s: at %s answers %s", cell, t.addr, name)
			}
			found[cell] = found[cell] || answered // one of several addresses is enough to be in
		}
	}
	return found, asked, nil
}

// globals are the addresses of all the container's interfaces: Docker does not name those at
// docker_gwbridge. One that has not both families is an error: nothing is left out unsaid.
func globals(ctx context.Context, c lab.Container) ([]netip.Addr, error) {
	text, err := c.Exec(ctx, "ip", "-o", "addr", "show", "scope", "global")
	if err != nil {
		return nil, err
	}
	var all []netip.Addr
	families := map[bool]bool{}
	for _, word := range strings.Fields(text) {
		if p, err := netip.ParsePrefix(word); err == nil {
			all = append(all, p.Addr())
			families[p.Addr().Is6()] = true
		}
	}
	if len(families) != 2 {
		return nil, fmt.Errorf("container %s has not both an IPv4 and an IPv6 address: %v", c.Name, all)
	}
	return all, nil
}

func (t target) cell(from place) string {
	cell := from.name + " " + t.place.name + t.port
	if t.published {
		cell += " published"
	}
	if t.v6 {
		cell += "/6"
	}
	return cell
}

// routeBy has the neighbour send by host1 whatever is for its containers.
func routeBy(ctx context.Context, h, neighbour *lab.Host, targets []target) error {
	var b strings.Builder
	for _, t := range targets {
		addr := netip.MustParseAddrPort(t.addr).Addr()
		if t.published || t.place.name == "outside" || t.place.name == "host" || t.place.kind == "macvlan" {
			continue
		}
		via := h.Addr()
		if addr.Is6() {
			via = h.Addr6()
		}
		fmt.Fprintf(&b, "route replace %v via %v\n", netip.PrefixFrom(addr, addr.BitLen()), via)
	}
	_, err := neighbour.ExecInput(ctx, []byte(b.String()), "ip", "-batch", "-")
	return err
}

// note remembers what is reached without grapevine.
func (i *isolation) note(ctx context.Context, h, neighbour *lab.Host) (string, error) {
	i.before = map[string]bool{}
	for range 3 { // once is enough to know that something is reached
		found, _, err := i.survey(ctx, h, neighbour)
		if err != nil {
			return "", err
		}
		for cell, reached := range found {
			i.before[cell] = i.before[cell] || reached
		}
	}
	return i.print(i.before), nil
}

func (i *isolation) print(found map[string]bool) string {
	var b strings.Builder
	for _, cell := range slices.Sorted(maps.Keys(found)) {
		fmt.Fprintf(&b, "%v\t%s\n", found[cell], cell)
	}
	return b.String()
}

// wants says whether a cell is to be reached; known is false if nobody says.
func (i *isolation) wants(cell string) (want, known bool) {
	from, to, published := parseCell(cell)
	if !from.grapevine && !to.grapevine {
		want, known = i.before[cell]
		return want, known && !i.ours
	}
	return Isolation.want(from, to, published)
}

func parseCell(cell string) (from, to place, published bool) {
	text := strings.TrimSuffix(cell, "/6")
	text, published = strings.CutSuffix(text, " published")
	text = strings.TrimSuffix(text, ":80")
	a, b, _ := strings.Cut(text, " ")
	at := func(name string) place {
		return places[slices.IndexFunc(places, func(p place) bool { return p.name == name })]
	}
	return at(a), at(b), published
}

// judge returns the cells that should be reached and are not, and the other way about.
func (i *isolation) judge(found map[string]bool, asked []string) (shut, open []string) {
	for _, cell := range asked {
		switch want, known := i.wants(cell); {
		case !known:
		case found[cell] && !want:
			open = append(open, cell)
		case !found[cell] && want:
			shut = append(shut, cell)
		}
	}
	return shut, open
}

// closed sees that nothing is reached that is not to be.
func (i *isolation) closed(ctx context.Context, h, neighbour *lab.Host) (string, error) {
	found, asked, err := i.survey(ctx, h, neighbour)
	if err != nil {
		return "", err
	}
	_, open := i.judge(found, asked)
	return i.print(found), wrongCells(nil, open)
}

// holds waits until all is reached that is to be; what is not to be reached must not be at
// any moment.
func (i *isolation) holds(ctx context.Context, h, neighbour *lab.Host, within time.Duration) (string, error) {
	for end := time.Now().Add(within); ; time.Sleep(200 * time.Millisecond) {
		found, asked, err := i.survey(ctx, h, neighbour)
		shut, open := i.judge(found, asked)
		switch {
		case len(open) > 0:
			return i.print(found), wrongCells(shut, open)
		case err == nil && len(shut) == 0:
			return i.print(found), nil
		case time.Now().After(end):
			return i.print(found), errors.Join(err, wrongCells(shut, open))
		}
	}
}

// wrongCells is one line, so that any excerpt of a log has the cells; nil if there are none.
func wrongCells(shut, open []string) error {
	var parts []string
	for _, p := range []struct {
		what  string
		cells []string
	}{{"not reached, and should be: ", shut}, {"reached, and should not be: ", open}} {
		if len(p.cells) > 0 {
			parts = append(parts, p.what+strings.Join(p.cells, ", "))
		}
	}
	if parts == nil {
		return nil
	}
	return errors.New(strings.Join(parts, "; "))
}
