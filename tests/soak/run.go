package main

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/tests/belongings"
	"github.com/grapevine-net/grapevine/tests/chaos/verdict"
	"github.com/grapevine-net/grapevine/tests/lab"
)

// settings of a run.
type settings struct {
	hosts    int
	during   time.Duration // 0: rounds says it
	rounds   int
	networks int // on each host in each round
	short    int // containers that live for a moment, on each host in each round
	many     int // networks that are there at once, in each round
	guest    int // a host comes and goes each so many rounds
	out      io.Writer
}

// run is a soak that runs.
type run struct {
	settings
	lab   *lab.Lab
	stay  []*lab.Host // the hosts that stay
	guest *lab.Host   // the one that does not
	begin time.Time
	died  int
	// warming is until the first inventory: few containers that live for a moment are enough.
	warming bool
	made    struct{ networks, containers, endpoints, left, died, again int }
}

// base is a network that is always there, with a container on each host.
const base = "base"

// soak runs it, and returns what was left behind; an error is of the harness.
func soak(ctx context.Context, s settings) (left []string, err error) {
	r := &run{settings: s, begin: time.Now()}
	if r.lab, err = lab.New(ctx, lab.Options{Hosts: s.hosts + 1}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.lab.Close()) }()
	r.stay, r.guest = r.lab.Hosts[:s.hosts], r.lab.Hosts[s.hosts]
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	// What is made once and stays is there after two rounds: both ways of a guest to go.
	r.warming = true
	for n := range 2 {
		if err := r.round(ctx, n); err != nil {
			r.tell(ctx)
			return nil, fmt.Errorf("round %d: %w", n, err)
		}
	}
	before, err := r.inventory(ctx)
	if err != nil {
		return nil, err
	}
	r.say("before: %s", before)
	r.warming = false
	warm := r.made
	start := time.Now()
	for n := 2; s.during > 0 && time.Since(start) < s.during || n < s.rounds+2; n++ {
		if err := r.round(ctx, n); err != nil {
			r.tell(ctx)
			return nil, fmt.Errorf("round %d: %w", n, err)
		}
		if n%20 == 0 {
			now, err := r.inventory(ctx)
			if err != nil {
				return nil, err
			}
			r.say("round %d: %s", n, now)
		}
	}
	after, left := r.compare(ctx, before)
	r.say("after: %s", after)
	r.say("%d networks, %d containers, %d endpoints, %d hosts that left, %d that died came and went in %s; %d asked again; %d things are left",
		r.made.networks-warm.networks, r.made.containers-warm.containers, r.made.endpoints-warm.endpoints, r.made.left-warm.left, r.made.died-warm.died,
		time.Since(start).Round(time.Second), r.made.again-warm.again, len(left))
	return left, nil
}

func (r *run) say(format string, args ...any) {
	fmt.Fprintf(r.out, "[%6.1f s] %s\n", time.Since(r.begin).Seconds(), fmt.Sprintf(format, args...))
}

// tell prints what hosts know, and the ends of their logs, when something went wrong.
func (r *run) tell(ctx context.Context) {
	for _, h := range r.lab.Hosts {
		text, err := h.Exec(ctx, "sh", "-c", "grapevine status; grapevine nodes; grapevine ring")
		r.say("%s: %s%v\n%s", h.Name, text, err, h.Log("agent", 40))
	}
}

// prepare starts the agents and the network that is always there.
func (r *run) prepare(ctx context.Context) error {
	if err := r.each(func(h *lab.Host) error { return h.StartAgent(ctx) }); err != nil {
		return err
	}
	if err := r.joined(ctx, r.stay...); err != nil {
		return err
	}
	if _, err := r.stay[0].Docker(ctx, "network", "create", "-d", "grapevine", "--ipam-driver", "grapevine", base); err != nil {
		return err
	}
	if err := r.ipv6(ctx); err != nil {
		return err
	}
	return r.each(func(h *lab.Host) error {
		if err := r.appears(ctx, h, base); err != nil {
			return err
		}
		if _, err := h.Docker(ctx, "run", "-d", "--name", base, "--network", base, lab.Image); err != nil {
			return err
		}
		// The first client of a host leaves its key file.
		_, err := h.Exec(ctx, "sh", "-ec", `grapevine client add "$0" --network "$1" >/dev/null; grapevine client remove "$0"`, h.Name, base)
		return err
	})
}

// ipv6 has each host have ip6tables' tables, which come with its first network with IPv6 and stay, empty, for as long as
// the agent: a host may see none of the first rounds' for long enough.
func (r *run) ipv6(ctx context.Context) error {
	const name = "six"
	if _, err := r.stay[0].Docker(ctx, "network", "create", "-d", "grapevine", "--ipam-driver", "grapevine", "--ipv6", name); err != nil {
		return err
	}
	if err := r.each(func(h *lab.Host) error {
		return lab.Eventually(ctx, 30*time.Second, func() error {
			_, err := h.Exec(ctx, "sh", "-c", "nft list table ip6 nat && nft list table ip6 filter")
			return err
		})
	}); err != nil {
		return err
	}
	_, err := r.stay[0].Docker(ctx, "network", "rm", name)
	return err
}

// each does the same on the hosts that stay, at once.
func (r *run) each(do func(*lab.Host) error) error {
	return r.lab.Each(func(h *lab.Host) error {
		if !slices.Contains(r.stay, h) {
			return nil
		}
		return do(h)
	})
}

// joined waits until all that is well on hosts that know of these alone.
func (r *run) joined(ctx context.Context, hosts ...*lab.Host) error {
	want := fmt.Sprintf("%d of %d alive", len(hosts), len(hosts))
	for _, h := range hosts {
		if err := lab.Eventually(ctx, time.Minute, func() error {
			out, err := h.Grapevine(ctx, "status")
			if err == nil && (!strings.Contains(out, want) || !strings.Contains(out, "All is well")) {
				err = fmt.Errorf("%s does not say %q and that all is well:\n%s", h.Name, want, out)
			}
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) appears(ctx context.Context, h *lab.Host, network string) error {
	return lab.Eventually(ctx, 20*time.Second, func() error {
		_, err := h.Docker(ctx, "network", "inspect", network)
		return err
	})
}

// script makes networks of all kinds on one host, one after the other, and removes each; on
// some is a container with a published port, an alias, and a second network.
//
//go:embed networks.sh
var script string

// used has one host make what a network can have: a service, a port that all hosts answer, an egress, a client,
// a policy, another network that it is one with. forsaken takes them away before the network goes, and
// behind what goes with the network or outlives it.
var (
	//go:embed used.sh
	used string
	//go:embed forsaken.sh
	forsaken string
)

// round lets all kinds of things come and go.
func (r *run) round(ctx context.Context, n int) error {
	var mu sync.Mutex
	if err := r.each(func(h *lab.Host) error {
		octet := strings.TrimPrefix(h.Name, "host")
		out, err := h.Exec(ctx, "sh", "-ec", script, "soak", h.Name, strconv.Itoa(n), strconv.Itoa(r.networks), octet, lab.Image)
		mu.Lock()
		defer mu.Unlock()
		r.made.networks += r.networks
		containers := strings.Count(out, "container\n")
		r.made.containers += containers
		r.made.endpoints += containers + strings.Count(out, "endpoint\n")
		return err
	}); err != nil {
		return err
	}
	if err := r.shortLived(ctx); err != nil {
		return fmt.Errorf("containers that live for a moment: %w", err)
	}
	if err := r.atTheSameTime(ctx); err != nil {
		return fmt.Errorf("networks that are there at the same time: %w", err)
	}
	if err := r.shared(ctx, n); err != nil {
		return fmt.Errorf("a network that all hosts share: %w", err)
	}
	if r.settings.guest > 0 && n%r.settings.guest == 0 {
		if err := r.visit(ctx); err != nil {
			return fmt.Errorf("a host that comes and goes: %w", err)
		}
	}
	return nil
}

// atOnce is how many containers that live for a moment are started at the same time on each host.
const atOnce = 4

// shortLived has containers come and go on all hosts at once, as a CI farm's do: each reaches, by its name, one that is always there, on
// any host, and ends.
func (r *run) shortLived(ctx context.Context) error {
	if r.settings.short == 0 {
		return nil
	}
	n := r.settings.short
	if r.warming {
		n = min(n, atOnce)
	}
	// One that was answered at its second try or later is told, and one that never was in full.
	const script = `seq "$0" | xargs -P "$1" -I{} docker run --rm --name moment-{} --network "$2" --network-alias m-{} "$3" sh -c '
		for i in 1 2 3; do
			said="$said $(ping -c 1 -W 3 "$0" 2>&1)" && { [ $i = 1 ] || echo again: moment-{}: $said; exit 0; }
		done
		{ echo "moment-{} reached no $0: $said"; nslookup "$0"; ip addr; ip route; ip neigh; cat /etc/resolv.conf; } >&2; exit 1' "$2"`
	r.made.containers += n * len(r.stay)
	r.made.endpoints += n * len(r.stay)
	var mu sync.Mutex
	return r.each(func(h *lab.Host) error {
		out, err := h.Exec(ctx, "sh", "-c", script, strconv.Itoa(n), strconv.Itoa(atOnce), base, lab.Image)
		mu.Lock()
		defer mu.Unlock()
		for line := range strings.Lines(out) {
			r.made.again++
			r.say("%s: %s", h.Name, strings.TrimSpace(line))
		}
		return err
	})
}

// usedOf is how many networks there are for each with a container, of those that are there at the same time.
const usedOf = 25

// atTheSameTime has all hosts have networks by the hundred. Each makes its share, and has a container on some of them; the next host removes them.
func (r *run) atTheSameTime(ctx context.Context) error {
	if r.many == 0 {
		return nil
	}
	each := r.many / len(r.stay)
	if r.warming {
		each = min(each, usedOf)
	}
	const make = `seq "$1" | xargs -P 2 -I{} docker network create -d grapevine --ipam-driver grapevine --ipam-opt prefixlen=28 "many-$0-{}" >/dev/null
		seq "$2" "$2" "$1" | xargs -P 2 -I{} docker run -d --name "many-{}" --network "many-$0-{}" "$3" >/dev/null`
	start := time.Now()
	if err := r.each(func(h *lab.Host) error {
		_, err := h.Exec(ctx, "sh", "-ec", make, h.Name, strconv.Itoa(each), strconv.Itoa(usedOf), lab.Image)
		return err
	}); err != nil {
		return err
	}
	r.made.networks += each * len(r.stay)
	r.made.containers += each / usedOf * len(r.stay)
	r.made.endpoints += each / usedOf * len(r.stay)
	made := time.Since(start)
	if err := r.haveMany(ctx, each*len(r.stay)); err != nil {
		return err
	}
	if !r.warming {
		now, err := r.inventory(ctx)
		if err != nil {
			return err
		}
		r.say("%d networks at once, made in %s, everywhere after %s: %s", each*len(r.stay), made.Round(time.Second), time.Since(start).Round(time.Second), now)
	}
	if err := r.each(func(h *lab.Host) error {
		_, err := h.Exec(ctx, "sh", "-ec", `seq "$1" "$1" "$0" | sed 's/^/many-/' | xargs -r docker rm -f >/dev/null`, strconv.Itoa(each), strconv.Itoa(usedOf))
		return err
	}); err != nil {
		return err
	}
	start = time.Now()
	if err := r.each(func(h *lab.Host) error {
		other := r.stay[(slices.Index(r.stay, h)+1)%len(r.stay)].Name
		_, err := h.Exec(ctx, "sh", "-ec", `seq "$1" | sed "s/^/many-$0-/" | xargs -n 20 docker network rm >/dev/null`, other, strconv.Itoa(each))
		return err
	}); err != nil {
		return err
	}
	if err := r.haveMany(ctx, 0); err != nil {
		return err
	}
	if !r.warming {
		r.say("removed everywhere in %s", time.Since(start).Round(time.Second))
	}
	return nil
}

// haveMany waits until each host has so many of those networks.
func (r *run) haveMany(ctx context.Context, want int) error {
	return r.each(func(h *lab.Host) error {
		return lab.Eventually(ctx, 3*time.Minute, func() error {
			out, err := h.Docker(ctx, "network", "ls", "-q", "--filter", "name=many-")
			if have := len(strings.Fields(out)); err == nil && have != want {
				err = fmt.Errorf("%s has %d of %d networks", h.Name, have, want)
			}
			return err
		})
	})
}

// shared makes a network with a container on each host, and removes it on another host than
// that which made it.
func (r *run) shared(ctx context.Context, n int) error {
	const name = "shared"
	if _, err := r.stay[n%len(r.stay)].Docker(ctx, "network", "create", "-d", "grapevine", "--ipam-driver", "grapevine", name); err != nil {
		return err
	}
	if err := r.each(func(h *lab.Host) error {
		if err := r.appears(ctx, h, name); err != nil {
			return err
		}
		_, err := h.Docker(ctx, "run", "-d", "--name", name, "--network", name, "--network-alias", "all", "-p", "81:80", "-l", "role=web", lab.Image)
		return err
	}); err != nil {
		return err
	}
	user := r.stay[n/len(r.stay)%len(r.stay)]
	if _, err := user.Exec(ctx, "sh", "-ec", used); err != nil {
		return err
	}
	if err := r.served(ctx, name); err != nil {
		return err
	}
	for i, h := range r.stay {
		from, err := h.Container(ctx, name)
		if err != nil {
			return err
		}
		to, err := r.stay[(i+1)%len(r.stay)].Container(ctx, name)
		if err != nil {
			return err
		}
		if err := from.Reach(ctx, 10*time.Second, to.AllAddrs()...); err != nil {
			return err
		}
	}
	alone := n%2 == 0 // what the network has goes before it
	if _, err := user.Exec(ctx, "sh", "-ec", forsaken, "soak", "before", strconv.FormatBool(alone)); err != nil {
		return err
	}
	if err := r.each(func(h *lab.Host) error {
		_, err := h.Docker(ctx, "rm", "-f", name)
		return err
	}); err != nil {
		return err
	}
	if _, err := r.stay[(n+1)%len(r.stay)].Docker(ctx, "network", "rm", name); err != nil {
		return err
	}
	r.made.networks++
	r.made.containers += len(r.stay)
	r.made.endpoints += len(r.stay)
	if err := r.each(func(h *lab.Host) error {
		return lab.Eventually(ctx, 30*time.Second, func() error {
			if _, err := h.Docker(ctx, "network", "inspect", name); err == nil {
				return fmt.Errorf("%s still has the network %s", h.Name, name)
			}
			return nil
		})
	}); err != nil {
		return err
	}
	_, err := user.Exec(ctx, "sh", "-ec", forsaken, "soak", "after", strconv.FormatBool(alone))
	return err
}

// served waits until every host's container reaches the service, and the outside the port that all hosts answer.
func (r *run) served(ctx context.Context, name string) error {
	return r.each(func(h *lab.Host) error {
		return lab.Eventually(ctx, 30*time.Second, func() error {
			if _, err := h.Docker(ctx, "exec", name, "timeout", "3", "wget", "-qO", "-", "http://all:8080/"); err != nil {
				return err
			}
			_, err := r.lab.Outside.Fetch(ctx, "http://"+h.Addr().String()+":4430/")
			return err
		})
	})
}

// visit has a host join, use the base network and one of its own, and leave or, each other
// time, die with all of it and be forgotten.
func (r *run) visit(ctx context.Context) error {
	h := r.guest
	if err := h.StartAgent(ctx); err != nil {
		return err
	}
	if err := r.joined(ctx, append(slices.Clone(r.stay), h)...); err != nil {
		return err
	}
	if err := r.appears(ctx, h, base); err != nil {
		return err
	}
	const own = "guests"
	for _, argv := range [][]string{
		{"network", "create", "-d", "grapevine", "--ipam-driver", "grapevine", own},
		{"run", "-d", "--name", "one", "--network", base, "--network-alias", "guest", "-p", "80", lab.Image},
		{"run", "-d", "--name", "two", "--network", own, lab.Image},
	} {
		if _, err := h.Docker(ctx, argv...); err != nil {
			return err
		}
	}
	r.made.networks++
	r.made.containers += 2
	r.made.endpoints += 2
	if r.died < r.made.left {
		r.died++
		return r.die(ctx, h, own)
	}
	r.made.left++
	for _, argv := range [][]string{{"docker", "rm", "-f", "one", "two"}, {"docker", "network", "rm", own}, {"grapevine", "leave"}} {
		if _, err := h.Exec(ctx, argv...); err != nil {
			return err
		}
	}
	return r.clean(ctx, h)
}

// die: the host loses its power, is forgotten, and is set up anew.
func (r *run) die(ctx context.Context, h *lab.Host, own string) error {
	r.made.died++
	if err := h.PowerOff(); err != nil {
		return err
	}
	if err := lab.Eventually(ctx, time.Minute, func() error {
		_, err := r.stay[r.died%len(r.stay)].Grapevine(ctx, "forget", h.Name)
		return err
	}); err != nil {
		return err
	}
	if _, err := r.stay[0].Docker(ctx, "network", "rm", own); err != nil {
		return err
	}
	// It boots as what it was, hears that it was forgotten, and goes for good.
	if err := h.Boot(ctx); err != nil {
		return err
	}
	if err := lab.Eventually(ctx, time.Minute, func() error {
		out, err := h.Grapevine(ctx, "status")
		if err == nil && !strings.Contains(out, "set aside") {
			err = fmt.Errorf("it was forgotten, and does not say so:\n%s", out)
		}
		return err
	}); err != nil {
		return err
	}
	if _, err := h.Exec(ctx, "sh", "-ec", `docker rm -f one two; docker network rm guests || true; grapevine leave --force`); err != nil {
		return err
	}
	return r.clean(ctx, h)
}

// clean takes all of grapevine away from a host that has left.
func (r *run) clean(ctx context.Context, h *lab.Host) error {
	if err := h.StopAgent(ctx); err != nil {
		return err
	}
	if _, err := h.Exec(ctx, "sh", "-ec", `n=$(docker network ls -q --filter driver=grapevine); [ -z "$n" ] || docker network rm $n || true; grapevine cleanup --purge`); err != nil {
		return err
	}
	// Docker goes on having what it could not remove without an agent: it starts without.
	if err := h.Stop(ctx, "dockerd", syscall.SIGTERM, 30*time.Second); err != nil {
		return err
	}
	if err := h.StartDocker(ctx); err != nil {
		return err
	}
	return r.joined(ctx, r.stay...)
}

// inventory is what all hosts that stay have.
type inventory struct {
	hosts    map[string]verdict.Belongings
	accounts map[string]account
	order    []string
}

func (r *run) inventory(ctx context.Context) (inventory, error) {
	var mu sync.Mutex
	all := inventory{hosts: map[string]verdict.Belongings{}, accounts: map[string]account{}}
	for _, h := range r.stay {
		all.order = append(all.order, h.Name)
	}
	return all, r.each(func(h *lab.Host) error {
		b, err := belongings.Of(ctx, h)
		if err != nil {
			return err
		}
		for kind, argv := range map[string]string{"names": "endpoints", "hosts": "nodes"} {
			text, err := h.Grapevine(ctx, argv)
			if err != nil {
				return err
			}
			b.Lines[kind] = strings.Split(strings.TrimSpace(text), "\n")
		}
		if b.Lines["ring"], err = r.ring(ctx, h); err != nil {
			return err
		}
		a, err := accountOf(ctx, h)
		mu.Lock()
		defer mu.Unlock()
		all.hosts[h.Name], all.accounts[h.Name] = b, a
		return err
	})
}

// ring is what each host owns of each network, and of the cluster's ranges what is not as it
// should be: hosts may have more or less than before of what they make networks of, but only
// those that are there, and no piece in which no network fits.
func (r *run) ring(ctx context.Context, h *lab.Host) (lines []string, err error) {
	text, err := h.Grapevine(ctx, "ring", "-o", "json")
	if err != nil {
		return nil, err
	}
	var pools []api.Pool
	if err := json.Unmarshal([]byte(text), &pools); err != nil {
		return nil, fmt.Errorf("read the ring: %w", err)
	}
	var used []netip.Prefix
	for _, p := range pools {
		if p.Network != "" {
			used = append(used, p.Prefix)
		}
	}
	for _, p := range pools {
		usual := map[bool]int{true: 22, false: 64}[p.Prefix.Addr().Is4()]
		for _, s := range p.Shares {
			there := slices.ContainsFunc(r.stay, func(h *lab.Host) bool { return h.Name == s.Host })
			for _, b := range s.Blocks {
				small := b.Bits() > usual && !slices.ContainsFunc(used, b.Overlaps)
				if p.Network != "" || small || !there {
					lines = append(lines, fmt.Sprintf("%s: %s has %s", cmp.Or(p.Network, "cluster"), s.Host, b))
				}
			}
		}
	}
	return lines, nil
}

// String is the amounts, host by host.
func (i inventory) String() string {
	var b strings.Builder
	for _, name := range i.order {
		h, a := i.hosts[name], i.accounts[name]
		fmt.Fprintf(&b, "\n  %s: %d flows, %d rules, %d links, %d files, %d leases, %d claims, %d live records, %d tombstones of %d kB, state file %d kB, agent %d MB (heap %d), %d goroutines, %d descriptors, ovs-vswitchd %d MB",
			name, len(h.Lines["flows"]), len(h.Lines["rules"]), len(h.Lines["links"]), len(h.Lines["files"]), h.Amounts["leases"],
			a.live[cluster.KindClaim], sum(a.live)-a.live[cluster.KindClaim], a.tombstones(), a.bytes>>10, a.file>>10,
			h.Amounts["agent's MB"], h.Amounts["heap MB"], h.Amounts["goroutines"], h.Amounts["descriptors"], h.Amounts["ovs-vswitchd's MB"])
	}
	return b.String()
}

func sum[K comparable](of map[K]int) (n int) {
	for _, v := range of {
		n += v
	}
	return n
}

// compare waits until nothing is left, and says what is if that does not come.
func (r *run) compare(ctx context.Context, before inventory) (after inventory, left []string) {
	err := lab.Eventually(ctx, 90*time.Second, func() (err error) {
		if after, err = r.inventory(ctx); err != nil {
			return err
		}
		left = nil
		for _, name := range after.order {
			left = append(left, verdict.Left(name, before.hosts[name], after.hosts[name])...)
			left = append(left, after.accounts[name].left(name, before.accounts[name])...)
		}
		if len(left) > 0 {
			return errors.New("something is left")
		}
		return nil
	})
	if err != nil && len(left) == 0 {
		left = []string{err.Error()}
	}
	return after, left
}
