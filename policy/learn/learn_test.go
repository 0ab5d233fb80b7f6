package learn

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/policy"
	"github.com/grapevine-net/grapevine/policy/k8s"
	"github.com/grapevine-net/grapevine/policy/plain"
)

var (
	gateway = netip.MustParseAddr("10.1.0.1")
	outside = netip.MustParseAddr("203.0.113.7")
)

func endpoint(network, addr, project, service, name string) policy.Endpoint {
	labels := map[string]string{plain.NameLabel: name}
	if service != "" {
		labels[plain.ProjectLabel], labels[plain.ServiceLabel] = project, service
	}
	return policy.Endpoint{ID: name, Network: network, Addrs: []netip.Addr{netip.MustParseAddr(addr)}, Labels: labels, Known: true, Local: true}
}

// shop is a network with a stack on it, and a second one that it is one with.
func shop() map[string]policy.Endpoint {
	all := map[string]policy.Endpoint{}
	for _, e := range []policy.Endpoint{
		endpoint("shop", "10.1.0.2", "s", "web", "s-web-1"), endpoint("shop", "10.1.0.3", "s", "web", "s-web-2"), endpoint("shop", "10.1.0.4", "s", "db", "s-db-1"),
		endpoint("shop", "10.1.0.5", "", "", "lone"), endpoint("mon", "10.2.0.2", "m", "scrape", "m-scrape-1"),
	} {
		all[e.ID] = e
	}
	return all
}

// TestJustThat: what was seen passes, of other replicas as well, and nothing else does.
func TestJustThat(t *testing.T) {
	all := shop()
	end := func(name string) End {
		if a, err := netip.ParseAddr(name); err == nil {
			return End{Addr: a}
		}
		return End{Addr: all[name].Addrs[0], Container: true, Name: name}
	}
	s := Seen{Network: "shop", Host: func(a netip.Addr) bool { return a == gateway }}
	for _, e := range all {
		s.Endpoints = append(s.Endpoints, e)
	}
	see := func(from, to string, proto uint8, port uint16, failed string) {
		s.Connections = append(s.Connections, Connection{From: end(from), To: end(to), Proto: proto, Port: port, Failed: failed})
	}
	see("s-web-1", "s-db-1", policy.TCP, 5432, "")
	see("s-web-1", "s-db-1", policy.UDP, 5432, "")
	see("m-scrape-1", "s-db-1", policy.TCP, 9100, "")
	see(outside.String(), "s-web-1", policy.TCP, 80, "")
	see("s-web-2", outside.String(), policy.TCP, 443, "")
	see(gateway.String(), "s-db-1", policy.TCP, 22, "") // its host, which may anyway
	see("s-db-1", gateway.String(), policy.UDP, 53, "")
	see("s-db-1", "s-web-1", policy.TCP, 8080, "refused")
	see("s-db-1", "s-web-1", policy.ICMP, 0, "")
	s.Connections = append(s.Connections,
		Connection{From: End{Addr: netip.MustParseAddr("10.1.0.9"), Container: true, Name: "was"}, To: end("s-db-1"), Proto: policy.TCP, Port: 1},
		Connection{From: End{Addr: all["lone"].Addrs[0], Container: true, Name: "before"}, To: end("s-db-1"), Proto: policy.TCP, Port: 2})
	l := Of(s)
	if l.Seen != 5 {
		t.Errorf("%d connections are let through, want 5", l.Seen)
	}
	for _, want := range []string{"no connection of lone was seen", "pings of s-db to s-web", "s-db to s-web at port 8080, which was refused", "10.1.0.9 to s-db, of which one has gone", "lone to s-db, of which one has gone"} {
		if !slices.ContainsFunc(l.Notes, func(n string) bool { return strings.Contains(n, want) }) {
			t.Errorf("%q is not among\n%s", want, Comment(l.Notes))
		}
	}
	text := append([]byte(Comment(l.Notes)), k8s.FormatAll(l.Policies)...)
	read, err := k8s.Parse(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var names []string
	for _, p := range read {
		names = append(names, p.Name)
	}
	if !slices.Equal(names, []string{"learned-s-db", "learned-s-web"}) {
		t.Errorf("policies %q", names)
	}
	w := policy.World{Networks: []policy.Network{{Name: "shop"}, {Name: "mon"}}, Endpoints: s.Endpoints, Policies: read}
	peer := func(name string) policy.Peer {
		if a, err := netip.ParseAddr(name); err == nil {
			return policy.Peer{Addr: a}
		}
		return policy.Peer{Endpoint: name, Addr: all[name].Addrs[0]}
	}
	type asked struct {
		from, to string
		proto    uint8
		port     uint16
	}
	passes := map[asked]bool{}
	for _, web := range []string{"s-web-1", "s-web-2"} {
		passes[asked{web, "s-db-1", policy.TCP, 5432}], passes[asked{web, "s-db-1", policy.UDP, 5432}] = true, true
		passes[asked{outside.String(), web, policy.TCP, 80}], passes[asked{web, outside.String(), policy.TCP, 443}] = true, true
	}
	passes[asked{"m-scrape-1", "s-db-1", policy.TCP, 9100}] = true
	ends := []string{"s-web-1", "s-web-2", "s-db-1", "lone", "m-scrape-1", outside.String(), "203.0.113.8"}
	for _, from := range ends {
		for _, to := range ends {
			for _, proto := range []uint8{policy.TCP, policy.UDP} {
				for _, port := range []uint16{80, 443, 5432, 8080, 9100, 1, 2} {
					if from == to || !strings.HasPrefix(from, "s-") && !strings.HasPrefix(to, "s-") {
						continue // no policy is about them
					}
					a := asked{from, to, proto, port}
					if got := w.Verdict(peer(from), peer(to), proto, port).Allowed; got != passes[a] {
						t.Errorf("%+v: %v, want %v", a, got, passes[a])
					}
				}
			}
		}
	}
}

// TestComment: whatever a container is called, the notes about it are comments, and nothing that a terminal heeds.
func TestComment(t *testing.T) {
	const open = "kind: NetworkPolicy\napiVersion: networking.k8s.io/v1\nmetadata: {name: open, namespace: blue}\nspec: {podSelector: {}, ingress: [{}]}"
	for _, end := range []string{"\n", "\r", "\r\n", "\u0085", "\u2028", "\u2029", "\v", "\f", "\x00"} {
		note := "container a" + end + "---" + end + strings.ReplaceAll(open, "\n", end) + end + "---" + end + "# \x1b[2J"
		text := Comment([]string{note})
		if list, err := k8s.Parse([]byte(text)); len(list) > 0 || strings.ContainsAny(text, "\x1b\u0085\u2028\u2029\v\f\x00\r") || strings.Count(text, "\n") != 1 {
			t.Errorf("%q: %q is read as %v, %v", end, text, list, err)
		}
	}
}
