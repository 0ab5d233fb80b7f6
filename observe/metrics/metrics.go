// Package metrics shows a host's agent to Prometheus. What a scrape finds is Facts, the bodies of
// package api; Exporter makes samples of them.
//
// No container, address or other host is a label: labels are closed sets, or the network or the policy, of which
// at most maxNetworks and maxPolicies are shown by name. Names follow Prometheus' conventions: base units, and
// _total on counters alone. docs/operate/metrics.md lists them.
package metrics

import (
	"cmp"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/grapevine-net/grapevine/api"
)

// Facts is what the agent knows at one moment.
type Facts struct {
	Status    api.Status
	Nodes     []api.Node
	Networks  []api.Network
	Endpoints []api.Endpoint
	Pools     []api.Pool
	BGP       api.BGP
	// Flows are the switch's; FlowsErr says why it does not tell.
	Flows    []api.Flow
	FlowsErr error
	// Policies are those of the cluster, and Rules what their rules have counted here; RulesErr says why that is not known.
	Policies []string
	Rules    []api.RuleCount
	RulesErr error
	// Connections are those that were counted here.
	Connections Connections
}

// Connections are how many there are, how many have ended by what became of them, and how many packets found no room to be counted.
type Connections struct {
	Open  int
	Ended map[string]uint64
	Lost  uint64
}

// Exporter makes samples of facts. Its methods may be called concurrently.
type Exporter struct {
	look func() Facts

	mu      sync.Mutex
	counted counted
	ruled   ruled
}

// New returns an exporter that calls look for each scrape, which may block for as long as look does.
func New(look func() Facts) *Exporter { return &Exporter{look: look} }

// Handler answers GET /metrics, two scrapes at a time.
func (e *Exporter) Handler() http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(e, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{MaxRequestsInFlight: 2})
}

// Describe says of each series what it is.
func (e *Exporter) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range all {
		ch <- m.desc
	}
}

// Collect looks, and sends the samples.
func (e *Exporter) Collect(ch chan<- prometheus.Metric) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f := e.look()
	label := labels(f)
	e.counted.add(f, label)
	send := func(m metric, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...)
	}
	host(f, send)
	clusterOf(f, send)
	networks(f, label, &e.counted, send)
	switchOf(f, &e.counted, send)
	bgp(f.BGP, send)
	names(f.Status.Names, send)
	connections(f.Connections, send)
	e.ruled.add(f)
	e.ruled.send(send)
}

type sender func(m metric, value float64, labels ...string)

// metric is a row of the table that docs/operate/metrics.md shows.
type metric struct {
	Name, Doc string
	Labels    []string
	desc      *prometheus.Desc
	kind      prometheus.ValueType
}

// all are the metrics, in the order of their declaration.
var all []metric

func gauge(name, doc string, labels ...string) metric {
	return declare(prometheus.GaugeValue, name, doc, labels)
}

func counter(name, doc string, labels ...string) metric {
	return declare(prometheus.CounterValue, name, doc, labels)
}

func declare(kind prometheus.ValueType, name, doc string, labels []string) metric {
	m := metric{"grapevine_" + name, doc, labels, prometheus.NewDesc("grapevine_"+name, doc, labels, nil), kind}
	all = append(all, m)
	return m
}

var (
	buildInfo = gauge("build_info", "Version of the agent; always 1.", "version", "goversion")
	nodeInfo  = gauge("node_info", "This host's place in its cluster; always 1.", "name", "node", "cluster", "vtep", "ovs", "datapath")
	startTime = gauge("start_time_seconds", "Unix time at which the agent started.")
	problems  = gauge("problems", "Problems that grapevine status names, by their codes (troubleshooting.md); 0 of those that there are not.", "code", "severity")
	leases    = gauge("leases", "Addresses that this host has handed out, of all networks.")

	hosts       = gauge("hosts", "Hosts of the cluster as this one sees them. Hosts that differ in it are cut off from each other.", "state")
	hostsKnown  = []string{"alive", "doubtful", "dead"}
	ways        = gauge("paths", "Other hosts that answer, by what becomes of containers' packets to and from them, both ways.", "state")
	waysKnown   = []string{"ok", "lossy", "narrow", "silent", "unknown"}
	refused     = counter("gossip_refused_total", "Gossip messages and records that were not accepted or were lost, by reason.", "reason")
	refusedAlso = []string{"bad-key", "not-encrypted", "garbage", "other-cluster", "replayed", "queue-full"} // there from the start, with 0

	networkCount = gauge("networks", "Networks of the cluster.")
	endpoints    = gauge("endpoints", "Containers' places in networks on this host.", "network")
	owned        = gauge("addresses_owned", "IPv4 addresses that this host may hand out.", "network")
	netBytes     = counter("network_bytes_total", "Bytes that this host's containers sent and received, Ethernet headers included.", "network", "direction")
	netPackets   = counter("network_packets_total", "Packets that this host's containers sent and received.", "network", "direction")

	switchUp    = gauge("switch_up", "Whether Open vSwitch answers.")
	switchFlows = gauge("switch_flows", "OpenFlow flows, by stage.", "stage")
	dropped     = counter("drops_total", "Packets that the switch dropped. class is meant (isolation at work), alien (nobody honest sends these) or noise.", "reason", "class")
	lookups     = counter("datapath_lookups_total", "Packets that the kernel's datapath looked up: hit, missed, and lost of these before ovs-vswitchd took them.", "result")
	fastPath    = gauge("fastpath_state", "1 for the state that the fast path is in.", "state")

	routers = gauge("bgp_routers", "Routers that are to be told by BGP which addresses are here, by whether they are.", "state")
	routes  = gauge("bgp_routes", "Prefixes of addresses here that routers are to be told of.")

	open    = gauge("connections_open", "Connections that this host's containers, or the host and the outside with them, have begun and that have not ended; 0 while they are not counted (GRAPEVINE_TRAFFIC).")
	ended   = counter("connections_total", "Connections that have ended, by what became of them; unknown is what only the other end's host has counted.", "outcome")
	missing = counter("traffic_lost_total", "Packets that found no room to be counted by their connection.")

	queries = counter("dns_queries_total", "Questions for names, by what became of them.", "outcome")
	served  = gauge("dns_containers", "Containers that the resolver serves in their own namespaces, and those that it cannot.", "served")
)

func host(f Facts, send sender) {
	s := f.Status
	vtep := ""
	if s.VTEP.IsValid() {
		vtep = s.VTEP.String()
	}
	send(buildInfo, 1, s.Version, runtime.Version())
	send(nodeInfo, 1, s.Name, s.Node, s.Cluster, vtep, s.OVS, s.Datapath)
	send(startTime, float64(s.Since.UnixMilli())/1000)
	count := map[api.Code]int{}
	for _, p := range s.Problems {
		count[p.Code]++
	}
	for _, k := range api.Kinds {
		send(problems, float64(count[k.Code]), string(k.Code), string(k.Severity))
	}
	send(leases, float64(s.Leases))
}

func clusterOf(f Facts, send sender) {
	states, paths := map[string]int{}, map[string]int{}
	for _, n := range f.Nodes {
		if n.Alive && !n.Self {
			paths[pathState(n.Path)]++
		}
		switch {
		case n.Doubtful:
			states["doubtful"]++
		case n.Alive:
			states["alive"]++
		default:
			states["dead"]++
		}
	}
	for _, s := range hostsKnown {
		send(hosts, float64(states[s]), s)
	}
	for _, s := range waysKnown {
		send(ways, float64(paths[s]), s)
	}
	reasons := map[string]uint64{}
	for _, r := range refusedAlso {
		reasons[r] = 0
	}
	for r, n := range f.Status.Refused {
		reasons[r] = n
	}
	for r, n := range reasons {
		send(refused, float64(n), r)
	}
}

// pathState is one of waysKnown, of what `grapevine nodes` says.
func pathState(text string) string {
	switch {
	case text == "":
		return "unknown"
	case text == "ok":
		return "ok"
	case strings.Contains(text, "large ones"):
		return "narrow"
	case strings.Contains(text, "%"):
		return "lossy"
	}
	return "silent"
}

// maxNetworks bounds the values of the label network: those with the most containers have their
// names, the others are otherNetworks together.
const (
	maxNetworks   = 64
	otherNetworks = "other"
)

// labels gives each network its label.
func labels(f Facts) map[string]string {
	here := map[string]int{}
	for _, e := range f.Endpoints {
		if e.Here {
			here[e.Network]++
		}
	}
	list := slices.Clone(f.Networks)
	slices.SortStableFunc(list, func(a, b api.Network) int {
		return cmp.Or(cmp.Compare(here[b.Name], here[a.Name]), cmp.Compare(a.Name, b.Name))
	})
	out := map[string]string{}
	for i, n := range list {
		if out[n.Name] = labelText(n.Name); i >= maxNetworks {
			out[n.Name] = otherNetworks
		}
	}
	return out
}

func labelText(network string) string { return strings.ToValidUTF8(network, "?") }

func networks(f Facts, label map[string]string, counted *counted, send sender) {
	send(networkCount, float64(len(f.Networks)))
	type sums struct{ here, owned float64 }
	of := map[string]sums{}
	for _, l := range label {
		of[l] = sums{}
	}
	for _, e := range f.Endpoints {
		if l, ok := label[e.Network]; ok && e.Here {
			s := of[l]
			s.here++
			of[l] = s
		}
	}
	for _, p := range f.Pools {
		if l, ok := label[p.Network]; ok && p.Prefix.Addr().Is4() {
			s := of[l]
			s.owned += ownedBy(f.Status.Node, p)
			of[l] = s
		}
	}
	for l, s := range of {
		send(endpoints, s.here, l)
		send(owned, s.owned, l)
	}
	for l := range of {
		for _, direction := range []string{sent, received} {
			n := counted.traffic[[2]string{l, direction}]
			send(netBytes, float64(n.bytes), l, direction)
			send(netPackets, float64(n.packets), l, direction)
		}
	}
}

func ownedBy(node string, p api.Pool) (sum float64) {
	for _, s := range p.Shares {
		if s.Node == node {
			for _, b := range s.Blocks {
				sum += float64(uint64(1) << (32 - b.Bits()))
			}
		}
	}
	return sum
}

func switchOf(f Facts, counted *counted, send sender) {
	up := 0.0
	if f.FlowsErr == nil {
		up = 1
	}
	send(switchUp, up)
	stages := map[string]int{}
	for _, fl := range f.Flows {
		stages[fl.Stage]++
	}
	for s, n := range stages {
		send(switchFlows, float64(n), s)
	}
	for d, n := range counted.drops {
		send(dropped, float64(n.packets), d.Reason, string(d.Class))
	}
	if k := f.Status.Kernel; k != nil {
		send(lookups, float64(k.Hit), "hit")
		send(lookups, float64(k.Missed), "missed")
		send(lookups, float64(k.Lost), "lost")
	}
	now := fastPathState(f.Status.FastPath)
	for _, s := range []string{"on", "direct", "off", "resting"} {
		is := 0.0
		if s == now {
			is = 1
		}
		send(fastPath, is, s)
	}
}

// fastPathState is the first word of what status says.
func fastPathState(text string) string {
	switch {
	case strings.HasPrefix(text, "rests"):
		return "resting"
	case strings.HasPrefix(text, "on"):
		return "on"
	case strings.HasPrefix(text, "direct"):
		return "direct"
	}
	return "off"
}

func bgp(b api.BGP, send sender) {
	up := 0.0
	for _, r := range b.Routers {
		if r.Up {
			up++
		}
	}
	send(routers, up, "up")
	send(routers, float64(len(b.Routers))-up, "down")
	send(routes, float64(len(b.Routes)))
}

func names(r api.Resolver, send sender) {
	send(queries, float64(r.Answered), "answered")
	send(queries, float64(r.Forwarded), "forwarded")
	send(queries, float64(r.Failed), "failed")
	send(queries, float64(r.Refused), "refused")
	send(served, float64(r.Inside), "inside")
	send(served, float64(r.Outside), "outside")
}

func connections(c Connections, send sender) {
	send(open, float64(c.Open))
	for outcome, n := range c.Ended {
		send(ended, float64(n), outcome)
	}
	send(missing, float64(c.Lost))
}
