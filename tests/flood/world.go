package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/grapevine-net/grapevine/tests/lab"
)

// world is a host with all that opens a socket, another host of its cluster, one without Docker, and who floods.
type world struct {
	lab         *lab.Lab
	host, other *lab.Host
	edge        *lab.Host
	near        lab.Container // on the host, of the overlay
	far         lab.Container // on the other host
	plain       lab.Container // on the host, of a plain bridge
}

// setUp has the agent open what it opens.
const setUp = `
ip addr add 203.0.113.80/32 dev lo
docker network create -d grapevine --ipam-driver grapevine -o encrypted -o multicast=on blue >/dev/null
docker run -d --name near --network blue --network-alias web -p 8080:80 -p 8080:80/udp -l grapevine.expose=4431:80/udp "$0" >/dev/null
docker run -d --name shut --network blue -l role=shut "$0" >/dev/null
docker network create plain >/dev/null
docker run -d --name plain --network plain "$0" >/dev/null
grapevine service create web --network blue --port 80 >/dev/null
grapevine service expose web 4430:80 >/dev/null
grapevine client add laptop --network blue >/dev/null
docker network create -d grapevine --ipam-driver grapevine red >/dev/null
docker run -d --name red --network red "$0" >/dev/null
grapevine egress create mail --network red --address 192.0.2.250 >/dev/null
grapevine policy apply -f - >/dev/null <<'YAML'
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: shut}
spec:
  tier: Admin
  priority: 1
  subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {role: shut}}}}
  ingress: [{action: Reject, from: [{namespaces: {}}]}]
YAML
setsid sh -c 'sleep 100000 | grapevine ui >/page.out 2>&1' >/dev/null 2>&1 </dev/null &
`

// settings are those by which the host has all that the agent opens.
var settings = []string{"GRAPEVINE_METRICS=0.0.0.0:9477", "GRAPEVINE_TRAFFIC=on", "GRAPEVINE_IPFIX=192.0.2.254:4739", "GRAPEVINE_EXPOSE=labels",
	"GRAPEVINE_BGP=192.0.2.254,as=64512,local-as=64513", "GRAPEVINE_BGP_ADDRESSES=203.0.113.80"}

// bird is the router that the host tells by BGP.
const bird = `
router id 192.0.2.254;
log stderr all;
protocol device {}
protocol bgp { local 192.0.2.254 as 64512; neighbor range 192.0.2.0/24 as 64513; ipv4 { import all; export all; }; ipv6 { import all; export all; }; }
`

func (w *world) prepare(ctx context.Context) error {
	if err := w.lab.StartBird(ctx, bird); err != nil {
		return err
	}
	if err := errors.Join(w.host.StartAgent(ctx, settings...), w.other.StartAgent(ctx), w.edge.StartAgent(ctx, "GRAPEVINE_DOCKER=none", "GRAPEVINE_NETWORKS=all")); err != nil {
		return err
	}
	if err := eventually(ctx, func() error {
		return says(ctx, w.host, "3 of 3 alive", "grapevine", "status")
	}); err != nil {
		return err
	}
	if _, err := w.host.Exec(ctx, "sh", "-ec", setUp, lab.Image); err != nil {
		return err
	}
	if err := eventually(ctx, func() error {
		_, err := w.other.Docker(ctx, "network", "inspect", "blue")
		return err
	}); err != nil {
		return err
	}
	if _, err := w.other.Docker(ctx, "run", "-d", "--name", "far", "--network", "blue", lab.Image); err != nil {
		return err
	}
	for _, c := range []struct {
		h    *lab.Host
		name string
		into *lab.Container
	}{{w.host, "near", &w.near}, {w.host, "plain", &w.plain}, {w.other, "far", &w.far}} {
		var err error
		if *c.into, err = c.h.Container(ctx, c.name); err != nil {
			return err
		}
	}
	return errors.Join(w.near.Reach(ctx, 30*time.Second, w.far.AllAddrs()...), eventually(ctx, func() error {
		return says(ctx, w.host, "All is well", "grapevine", "status")
	}))
}

func eventually(ctx context.Context, do func() error) error {
	return lab.Eventually(ctx, time.Minute, do)
}

func says(ctx context.Context, h *lab.Host, what string, argv ...string) error {
	text, err := h.Exec(ctx, argv...)
	if err == nil && !strings.Contains(text, what) {
		err = fmt.Errorf("%v does not say %q:\n%s", argv, what, text)
	}
	return err
}

// flood is who floods which socket with what.
type flood struct {
	at, from, how, to string
	run               func(context.Context, ...string) (string, error)
	shut              bool      // nothing is to get in
	others            bool      // somebody else decides when the agent lets go: the container that it connects to
	on                *lab.Host // whose agent's; nil: the host's
	page              bool      // what serves the page is looked at, and not the agent
}

// floods are all: of each socket by each way that there is to it.
func (w *world) floods(ctx context.Context) (all []flood, err error) {
	gateway, err := w.near.Exec(ctx, "sh", "-c", `ip route | sed -n 's/^default via \([0-9.]*\).*/\1/p'`)
	if err != nil {
		return nil, err
	}
	resolver, err := w.near.Exec(ctx, "sh", "-c", `sed -n 's/^nameserver //p' /etc/resolv.conf | head -1`)
	if err != nil {
		return nil, err
	}
	gateway, resolver = strings.TrimSpace(gateway), strings.TrimSpace(resolver)
	mac, err := w.host.Exec(ctx, "cat", "/sys/class/net/gv0/address")
	if err != nil {
		return nil, err
	}
	shut, err := w.host.Container(ctx, "shut")
	if err != nil {
		return nil, err
	}
	host, host6 := w.host.Addr().String(), "["+w.host.Addr6().String()+"]"
	reader := func(ctx context.Context, argv ...string) (string, error) {
		group := `exec setpriv --reuid 65534 --regid "$(stat -c %g /run/grapevine/read.sock)" --clear-groups "$@"`
		return w.host.Exec(ctx, append([]string{"sh", "-c", group, "sh"}, argv...)...)
	}
	const nobody, overlay, containers = "", "overlay", "containers"
	for _, s := range []struct {
		at, how, to string
		shut        string // to whom
	}{
		{"gossip, UDP", "datagrams", host + ":7947", containers},
		{"gossip, TCP", "silent", host + ":7947", containers},
		{"gossip, TCP", "talking", host + ":7947", containers},
		{"VXLAN", "datagrams", host + ":4789", containers},
		{"WireGuard of hosts", "datagrams", host + ":7948", nobody},
		{"WireGuard of clients", "datagrams", host + ":7949", nobody},
		{"metrics", "silent", host + ":9477", nobody},
		{"metrics", "talking", host + ":9477", nobody},
		{"a published port, UDP", "datagrams", host + ":8080", nobody},
		{"a published port, TCP", "silent", host + ":8080", nobody},
		{"an exposed port, UDP", "datagrams", host + ":4431", nobody},
		{"an exposed port, TCP", "silent", host + ":4430", overlay},
	} {
		all = append(all,
			flood{at: s.at, from: "outside", how: s.how, to: s.to, run: w.lab.Outside.Program},
			flood{at: s.at, from: "a container of the overlay", how: s.how, to: s.to, run: w.near.Exec, shut: s.shut != nobody},
			flood{at: s.at, from: "a container of a bridge", how: s.how, to: s.to, run: w.plain.Exec, shut: s.shut == containers})
	}
	for _, s := range []struct {
		at, from, how, to string
		run               func(context.Context, ...string) (string, error)
		shut, others      bool
	}{
		{"what a policy rejects", "a container of the overlay", "datagrams", shut.AllAddrs()[0].String() + ":80", w.near.Exec, false, false},
		{"what a policy rejects", "a container of the overlay", "silent", shut.AllAddrs()[0].String() + ":80", w.near.Exec, true, false},
		{"probes (`grapevine trace`)", "a container of the overlay", "frames", "eth0/" + strings.TrimSpace(mac) + "/88b5", w.near.Exec, true, false},
		{"multicast", "a container of the overlay", "datagrams", "239.1.2.3:5353", w.near.Exec, false, false},
		{"a published port, IPv6, UDP", "the other host", "datagrams", host6 + ":8080", w.other.Exec, false, false},
		{"a published port, IPv6, TCP", "the other host", "silent", host6 + ":8080", w.other.Exec, false, true},
		{"names at gv0, UDP", "a container of the overlay", "datagrams", gateway + ":53", w.near.Exec, false, false},
		{"names at gv0, TCP", "a container of the overlay", "silent", gateway + ":53", w.near.Exec, false, false},
		{"names at gv0, TCP", "a container of the overlay", "talking", gateway + ":53", w.near.Exec, false, false},
		{"names in a container, UDP", "that container", "datagrams", resolver + ":53", w.near.Exec, false, false},
		{"names in a container, TCP", "that container", "silent", resolver + ":53", w.near.Exec, false, false},
		{"read.sock", "a user who may look", "silent", "/run/grapevine/read.sock", reader, false, false},
		{"read.sock", "a user who may look", "talking", "/run/grapevine/read.sock", reader, false, false},
		{"the API's socket", "a user who may look", "silent", "/run/grapevine/grapevine.sock", reader, true, false},
		{"Docker's socket of the plugin", "a user who may look", "silent", "/run/docker/plugins/grapevine.sock", reader, true, false},
	} {
		all = append(all, flood{at: s.at, from: s.from, how: s.how, to: s.to, run: s.run, shut: s.shut, others: s.others})
	}
	for _, how := range []string{"silent", "talking"} {
		all = append(all, flood{at: "the page (`grapevine ui`)", from: "a user of the host", how: how, to: "127.0.0.1:7954", run: asNobody(w.host), page: true})
	}
	const names = "names on a host without Docker"
	return append(all,
		flood{at: names + ", UDP", from: "a user of that host", how: "datagrams", to: "127.0.0.79:53", run: asNobody(w.edge), on: w.edge},
		flood{at: names + ", TCP", from: "a user of that host", how: "silent", to: "127.0.0.79:53", run: asNobody(w.edge), on: w.edge},
		flood{at: "gossip of a host without Docker, TCP", from: "outside", how: "silent", to: w.edge.Addr().String() + ":7947", run: w.lab.Outside.Program, on: w.edge}), nil
}

// asNobody runs programs as a user who may nothing.
func asNobody(h *lab.Host) func(context.Context, ...string) (string, error) {
	return func(ctx context.Context, argv ...string) (string, error) {
		return h.Exec(ctx, append([]string{"setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"}, argv...)...)
	}
}

// sockets lists what the agent, its processes and the kernel in its place listen on: of the host, and of a container.
const sockets = `
list() { ss -Hlntup | awk '{ at = $5; sub(/.*:/, "", at); who = $7; if ($7 == "" || $7 ~ /grapevine|wireguard|ovs/) print $1, at, $5, who }'; }
list
nsenter -t "$(docker inspect -f '{{.State.Pid}}' near)" -n sh -c "$(declare -f list); list" | sed 's/^/inside /'
ss -Hlxp | awk '/"grapevine"/ { print "unix", $5 }'
ss -H0p | awk '/"grapevine"/ { print "packets", $0 }'
ss -Hwap | awk '/"grapevine"/ { print "raw", $0 }'
`

// flooded are those that a flood above goes to. Those of all packets at gv0 are of what policies reject, and of probes. Names at gv0 are asked at port 53, which leads to 7953. A socket's file was called
// otherwise when it was opened.
var flooded = regexp.MustCompile(`^(udp|tcp) (7947|9477|8080|4430|4431) |^tcp 7954 127\.0\.0\.1:|^packets p_raw +\d+ +\d+ +(\*|\[34997\]):gv0 |^(udp|tcp) 7953 .*%gv0:|^udp (4789|7948|7949) |^inside (udp|tcp) [0-9]+ 127\.0\.0\.11:|^inside tcp (80|81) |^unix (/run/grapevine|/run/docker/plugins)/(\.new-[0-9]+/)?(read|grapevine)\.sock$`)

// forgotten says which sockets there are that no flood was sent to.
func (w *world) forgotten(ctx context.Context, all []flood) error {
	text, err := w.host.Exec(ctx, "bash", "-c", sockets)
	if err != nil {
		return err
	}
	var errs []error
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); !flooded.MatchString(line) {
			errs = append(errs, fmt.Errorf("no flood was sent to the socket %s", line))
		}
	}
	if len(strings.Fields(text)) < 20 || len(all) == 0 {
		errs = append(errs, fmt.Errorf("few sockets were found:\n%s", text))
	}
	return errors.Join(errs...)
}
