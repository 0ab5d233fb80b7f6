package policy

import (
	"fmt"
	"net/netip"
	"slices"

	"pgregory.net/rapid"
)

// The worlds that are drawn are small and dense: three networks, two labels of three values, four
// ports, so that rules meet.

func drawLabels(t *rapid.T) map[string]string {
	l := map[string]string{}
	for _, k := range []string{"a", "b"} {
		if v := rapid.SampledFrom([]string{"", "", "x", "x", "y", "z"}).Draw(t, k); v != "" {
			l[k] = v
		}
	}
	return l
}

func drawSelector(t *rapid.T) (s Selector) {
	for range rapid.SampledFrom([]int{0, 0, 1, 1, 1, 2}).Draw(t, "requirements") {
		r := Requirement{Key: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key"), Op: rapid.SampledFrom([]Op{In, In, In, NotIn, Exists, DoesNotExist}).Draw(t, "op")}
		if r.Op == In || r.Op == NotIn {
			r.Values = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"x", "y", "z"}), 1, 2, rapid.ID).Draw(t, "values")
		}
		s = append(s, r)
	}
	return s
}

func drawNetworkSelector(t *rapid.T) Selector {
	if rapid.IntRange(0, 3).Draw(t, "by name") == 0 {
		return Selector{{Key: MetadataName, Op: In, Values: []string{rapid.SampledFrom([]string{"n0", "n1", "n2"}).Draw(t, "name")}}}
	}
	return drawSelector(t)
}

var drawnNames = []string{"web", "dns"}

func drawPorts(t *rapid.T, cluster bool) (list []Port) {
	for range rapid.IntRange(1, 2).Draw(t, "ports") {
		p := Port{Proto: rapid.SampledFrom([]uint8{TCP, UDP}).Draw(t, "proto")}
		switch rapid.IntRange(0, 3).Draw(t, "what") {
		case 0:
			p.To = 65535
		case 1:
			p.From = uint16(rapid.IntRange(1, 4).Draw(t, "from"))
			p.To = uint16(rapid.IntRange(int(p.From), 4).Draw(t, "to"))
		case 2:
			p.Name = rapid.SampledFrom(drawnNames).Draw(t, "name")
			if cluster {
				p.Proto = 0
			}
		default:
			p.From = uint16(rapid.IntRange(1, 4).Draw(t, "port"))
			p.To = p.From
		}
		list = append(list, p)
	}
	return list
}

func drawRules(t *rapid.T, p *Policy, d Direction, actions []Action) (list []Rule) {
	for range rapid.IntRange(0, 3).Draw(t, "rules") {
		r := Rule{Action: rapid.SampledFrom(actions).Draw(t, "action")}
		if r.AnyPeer = p.Kind != ClusterNetworkPolicy && rapid.IntRange(0, 3).Draw(t, "any peer") == 0; !r.AnyPeer {
			for range rapid.IntRange(1, 2).Draw(t, "peers") {
				if d == Egress && rapid.IntRange(0, 4).Draw(t, "domain") == 0 {
					r.Domains = append(r.Domains, rapid.SampledFrom([]Domain{"a.test", "b.test", "*.test", "*.b.test"}).Draw(t, "domain"))
					continue
				}
				if rapid.IntRange(0, 3).Draw(t, "block") == 0 {
					r.Blocks = append(r.Blocks, drawBlock(t))
					continue
				}
				s := Set{Endpoints: drawSelector(t)}
				if p.Kind == NetworkPolicy && rapid.Bool().Draw(t, "own network") {
					s.Network = p.Network
				} else {
					s.Networks = drawNetworkSelector(t)
				}
				r.Peers = append(r.Peers, s)
			}
		}
		if r.AnyPort = rapid.Bool().Draw(t, "any port"); !r.AnyPort {
			r.Ports = drawPorts(t, p.Kind == ClusterNetworkPolicy)
		}
		list = append(list, r)
	}
	return list
}

func drawBlock(t *rapid.T) Block {
	prefix := func(least int) netip.Prefix {
		bits := rapid.IntRange(least, 32).Draw(t, "bits")
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(rapid.SampledFrom([]int{0, 0, 1}).Draw(t, "net")), byte(rapid.IntRange(0, 15).Draw(t, "addr"))}), bits).Masked()
	}
	b := Block{Prefix: prefix(28)}
	for range rapid.IntRange(0, 2).Draw(t, "except") {
		if e := prefix(b.Prefix.Bits()); b.Prefix.Overlaps(e) {
			b.Except = append(b.Except, e)
		}
	}
	return b
}

func drawPolicy(t *rapid.T, name string) Policy {
	p := Policy{Key: Key{Name: name}}
	if rapid.Bool().Draw(t, "cluster") {
		p.Kind, p.Tier = ClusterNetworkPolicy, rapid.SampledFrom([]Tier{Admin, Admin, Baseline}).Draw(t, "tier")
		p.Priority = rapid.IntRange(0, 3).Draw(t, "priority")
		p.Subject = Set{Networks: drawNetworkSelector(t), Endpoints: drawSelector(t)}
		if rapid.IntRange(0, 2).Draw(t, "plain") == 0 {
			p.Kind, p.Network = rapid.SampledFrom([]Kind{Isolate, Label, Label, EgressNetworkPolicy}).Draw(t, "kind"), "n0"
			p.Text, p.Tier = rapid.SampledFrom([]string{"", "web"}).Draw(t, "text"), Admin
		}
		actions := []Action{Accept, Drop, Pass, Reject}
		p.Ingress, p.Egress = drawRules(t, &p, Ingress, actions), drawRules(t, &p, Egress, actions)
		return p
	}
	p.Kind, p.Network = NetworkPolicy, rapid.SampledFrom([]string{"n0", "n1", "n2"}).Draw(t, "network")
	p.Subject = Set{Network: p.Network, Endpoints: drawSelector(t)}
	if p.IsolatesIngress = rapid.Bool().Draw(t, "ingress"); p.IsolatesIngress {
		p.Ingress = drawRules(t, &p, Ingress, []Action{Accept})
	}
	if p.IsolatesEgress = rapid.Bool().Draw(t, "egress"); p.IsolatesEgress {
		p.Egress = drawRules(t, &p, Egress, []Action{Accept})
	}
	return p
}

// drawWorld draws a world. In one that is not known whole, endpoints and networks hide what they
// have.
func drawWorld(t *rapid.T, whole bool) (w World) {
	for i := range 3 {
		if whole || rapid.IntRange(0, 3).Draw(t, "network known") > 0 {
			w.Networks = append(w.Networks, Network{Name: fmt.Sprint("n", i), Labels: drawLabels(t)})
		}
	}
	for i := range rapid.IntRange(2, 6).Draw(t, "endpoints") {
		w.Endpoints = append(w.Endpoints, drawEndpoint(t, i, whole))
	}
	if !whole {
		w.Ranges = []Range{{Network: "n0", Prefix: netip.MustParsePrefix("10.0.0.10/31")}, {Network: "n0", Prefix: netip.MustParsePrefix("10.0.0.0/29")}}
		w.Ranges = w.Ranges[:rapid.IntRange(1, 2).Draw(t, "ranges")]
	}
	for i := range rapid.IntRange(0, 5).Draw(t, "policies") {
		w.Policies = append(w.Policies, drawPolicy(t, fmt.Sprint("p", i)))
		for _, r := range w.Policies[i].Egress {
			if (r.AnyPeer || len(r.Blocks) > 0) && slices.ContainsFunc(r.Ports, func(p Port) bool { return p.Name != "" }) {
				w.Ranges = w.Ranges[:min(1, len(w.Ranges))] // the switch denies a little more: all of the range
			}
		}
	}
	w.Answers = drawAnswers(t, w)
	return w
}

func drawEndpoint(t *rapid.T, i int, whole bool) Endpoint {
	e := Endpoint{
		ID: fmt.Sprint("e", i), Network: rapid.SampledFrom([]string{"n0", "n0", "n1", "n2"}).Draw(t, "network"), Known: whole || rapid.Bool().Draw(t, "known"),
		Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})}, Local: rapid.IntRange(0, 3).Draw(t, "local") > 0,
		Labels: drawLabels(t), Ports: map[string]NamedPort{},
	}
	if e.Network != "n0" { // whose range has what others do not
		e.Addrs[0] = netip.AddrFrom4([4]byte{10, 0, 1, byte(i)})
	}
	for _, n := range drawnNames {
		if rapid.IntRange(0, 2).Draw(t, n) == 0 {
			e.Ports[n] = NamedPort{rapid.SampledFrom([]uint8{TCP, UDP}).Draw(t, "proto"), uint16(rapid.IntRange(1, 4).Draw(t, "port"))}
		}
	}
	return e
}

func drawAnswers(t *rapid.T, w World) (list []Answer) {
	for range rapid.IntRange(0, 8).Draw(t, "answers") {
		list = append(list, Answer{
			Endpoint: rapid.SampledFrom(w.Endpoints).Draw(t, "endpoint").ID, Name: rapid.SampledFrom([]string{"a.test", "b.test", "c.b.test", "test"}).Draw(t, "name"),
			Addr: netip.MustParseAddr(rapid.SampledFrom([]string{"192.0.2.1", "10.0.0.13", "10.0.0.2"}).Draw(t, "addr")), Past: rapid.IntRange(0, 2).Draw(t, "past") == 0,
		})
	}
	return list
}

// connections calls for each connection in a drawn world.
func connections(w World, do func(from, to Peer, proto uint8, port uint16)) {
	var peers []Peer
	for _, e := range w.Endpoints {
		peers = append(peers, Peer{Endpoint: e.ID, Addr: e.Addrs[0]})
	}
	for _, outside := range []string{"10.0.0.10", "10.0.0.13", "192.0.2.1"} {
		peers = append(peers, Peer{Addr: netip.MustParseAddr(outside)})
	}
	for _, from := range peers {
		for _, to := range peers {
			for _, proto := range []uint8{TCP, UDP, ICMP} {
				for port := range uint16(5) {
					do(from, to, proto, port+1)
				}
			}
		}
	}
}
