package lead

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/service/expose"
)

const host1, host2 = cluster.NodeID("00000000000000aa"), cluster.NodeID("00000000000000bb")

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// world has app and web1 on host1, web2 and db on host2, a service, two exposed ports and an egress.
func world(t *testing.T, more ...cluster.Body) Facts {
	t.Helper()
	s, other := cluster.New(host1), cluster.New(host2)
	put := func(bodies ...cluster.Body) {
		for _, b := range bodies {
			at := s
			if e, is := b.(cluster.Endpoint); is && e.Host == host2 {
				at = other
			}
			if n, is := b.(cluster.Node); is && n.ID == host2 {
				at = other
			}
			if _, _, err := at.Put(b); err != nil {
				t.Fatal(err)
			}
		}
	}
	endpoint := func(id, name, network string, host cluster.NodeID, at string) cluster.Endpoint {
		return cluster.Endpoint{ID: strings.Repeat(id, 64), Container: strings.Repeat(id, 64), Network: network, Name: name, Host: host, Addrs: []netip.Addr{addr(at)}, MAC: "0a:00:00:00:00:01"}
	}
	web1, web2 := endpoint("b", "web1", "blue", host1, "10.1.0.2"), endpoint("c", "web2", "blue", host2, "10.1.1.1")
	web1.Aliases, web2.Aliases = []string{"web"}, []string{"web"}
	web := cluster.Service{Network: "blue", Name: "web", Select: "web", Addrs: []netip.Addr{addr("10.1.0.99")}, Ports: []cluster.ServicePort{{Proto: "tcp", Port: 80, Target: 8080}}, Exposed: []cluster.ServicePort{{Proto: "tcp", Port: 443, Target: 80}}}
	put(cluster.Node{ID: host1, Name: "host1", VTEP: addr("192.0.2.1"), Exposes: true}, cluster.Node{ID: host2, Name: "host2", VTEP: addr("192.0.2.2"), Exposes: true},
		cluster.Network{Name: "blue", VNID: 1}, cluster.Network{Name: "red", VNID: 2},
		cluster.Subnet{Network: "blue", Prefix: netip.MustParsePrefix("10.1.0.0/16"), Gateway: addr("10.1.255.254")}, cluster.Subnet{Network: "red", Prefix: netip.MustParsePrefix("10.2.0.0/16"), Gateway: addr("10.2.255.254")},
		endpoint("a", "app", "blue", host1, "10.1.0.1"), web1, web2, endpoint("d", "db", "red", host2, "10.2.1.1"), web,
		cluster.Egress{Name: "mail", Networks: []string{"red"}, Addrs: []netip.Addr{addr("192.0.2.25")}})
	put(more...)
	var recs []cluster.Record
	for r := range other.Snapshot().Records() {
		recs = append(recs, r)
	}
	if _, err := s.Merge(recs); err != nil {
		t.Fatal(err)
	}
	return Facts{
		Snap: s.Snapshot(),
		Services: []api.Service{{Network: "blue", Name: "web", Addrs: web.Addrs, Ports: []string{"80:8080/tcp"}, Replicas: []api.Replica{
			{Name: "web1", Host: "host1", Addrs: web1.Addrs, In: true}, {Name: "web2", Host: "host2", Addrs: web2.Addrs, Why: "it is paused, being stopped, or not healthy"}}}},
		Egresses: []api.Egress{{Name: "mail", Networks: []string{"red"}, Holder: "host2"}},
		Door:     func(cluster.Node, netip.AddrPort, string) (expose.Door, error) { return expose.Door{}, nil },
	}
}

func text(l api.Lead) string {
	var list []string
	for _, b := range l.Backs {
		in := "+"
		if !b.In {
			in = "-"
		}
		list = append(list, fmt.Sprintf("%s%s %s:%d@%s %s", in, b.Name, b.Addr, b.Port, b.Host, b.Why))
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s [%s] %s", l.Kind, l.Addr, strings.Join(list, "; "), l.Wrong))
}

// TestService: a service's name or address is led to its containers; what is wrong with it is named.
func TestService(t *testing.T) {
	const led = "service 10.1.0.99 [+web1 10.1.0.2:8080@host1 ; -web2 10.1.1.1:8080@host2 it is paused, being stopped, or not healthy]"
	ask := func(from, to string, port uint16) api.TraceRequest {
		return api.TraceRequest{From: from, To: to, Port: port}
	}
	for _, c := range []struct {
		r      api.TraceRequest
		change func(*Facts)
		want   string
	}{
		{ask("app", "web", 80), nil, led},
		{ask("app", "blue/WEB", 80), nil, led},
		{ask("10.1.0.1", "10.1.0.99", 80), nil, led},
		{ask("app", "web", 0), nil, "service 10.1.0.99 [+web1 10.1.0.2:0@host1 ; -web2 10.1.1.1:0@host2 it is paused, being stopped, or not healthy]"},
		{ask("app", "web1", 80), nil, "invalid IP []"},
		{ask("app", "web", 81), nil, "service 10.1.0.99 [] service blue/web has no port 81/tcp, only 80:8080/tcp: a connection to it is refused"},
		{ask("db", "10.1.0.99", 80), nil, "service 10.1.0.99 [+web1 10.1.0.2:8080@host1 ; -web2 10.1.1.1:8080@host2 it is paused, being stopped, or not healthy] service blue/web is for containers on network blue alone, and db is not on it"},
		{ask("198.51.100.7", "10.1.0.99", 80), nil, "service 10.1.0.99 [+web1 10.1.0.2:8080@host1 ; -web2 10.1.1.1:8080@host2 it is paused, being stopped, or not healthy] the address of service blue/web is for containers on network blue alone"},
		{ask("app", "web", 80), func(f *Facts) { f.Services[0].Replicas = nil }, "service 10.1.0.99 [] no container is behind service blue/web: a connection to it is refused"},
		{ask("app", "web", 80), func(f *Facts) { f.Services[0].Addrs = []netip.Addr{addr("10.9.0.99")} }, "service 10.9.0.99 [+web1 10.1.0.2:8080@host1 ; -web2 10.1.1.1:8080@host2 it is paused, being stopped, or not healthy] 10.9.0.99 is no address of network blue any more"},
		{ask("app", "web", 80), func(f *Facts) { f.Services[0].Replicas[0].In = false }, "service 10.1.0.99 [-web1 10.1.0.2:8080@host1 ; -web2 10.1.1.1:8080@host2 it is paused, being stopped, or not healthy] no container behind service blue/web that has an address of the family of 10.1.0.99 gets new connections"},
	} {
		f := world(t)
		if c.change != nil {
			c.change(&f)
		}
		if l := Of(f, c.r); text(l) != c.want || (l.Wrong == "") != (l.Do == "") {
			t.Errorf("%+v:\n%s\n%s\nto do: %s", c.r, text(l), c.want, l.Do)
		}
	}
}

// TestHost: a port of a host is led to the containers that the asked host chooses, or to the one that has it published;
// containers of the cluster are told what to connect to instead.
func TestHost(t *testing.T) {
	published := func(n cluster.Node, at netip.AddrPort, proto string) (expose.Door, error) {
		if n.ID == host2 && proto == "tcp" && at == netip.MustParseAddrPort("192.0.2.2:8080") {
			return expose.Door{Endpoint: strings.Repeat("d", 64), To: netip.MustParseAddrPort("10.2.1.1:80")}, nil
		}
		return expose.Door{}, nil
	}
	for _, c := range []struct {
		from, to string
		port     uint16
		change   func(*Facts)
		want     string
	}{
		{"198.51.100.7", "192.0.2.1", 443, nil, "exposed 192.0.2.1 [+web1 10.1.0.2:8080@host1 ; -web2 10.1.1.1:8080@host2 host host1 leads to its own while it has some]"},
		{"outside", "host2", 443, nil, "exposed 192.0.2.2 [-web1 10.1.0.2:8080@host1 host host2 leads to its own while it has some; +web2 10.1.1.1:8080@host2 ]"},
		{"outside", "host1", 443, func(f *Facts) {
			f.Stand = func(id cluster.NodeID) cluster.Standing {
				return map[cluster.NodeID]cluster.Standing{host1: cluster.Gone}[id]
			}
		},
			"exposed 192.0.2.1 [-web1 10.1.0.2:8080@host1 its host is in doubt, or does not answer; +web2 10.1.1.1:8080@host2 ] host host1 does not answer"},
		{"outside", "host1", 443, func(f *Facts) {
			f.Door = func(cluster.Node, netip.AddrPort, string) (expose.Door, error) {
				return expose.Door{Refuses: "nginx has the port"}, nil
			}
		}, "exposed 192.0.2.1 [+web1 10.1.0.2:8080@host1 ; -web2 10.1.1.1:8080@host2 host host1 leads to its own while it has some] host host1 does not answer it: nginx has the port"},
		{"app", "192.0.2.1", 443, nil, "exposed 192.0.2.1 [] ports of all hosts are not for containers of the cluster"},
		{"outside", "host2", 8080, nil, "published 192.0.2.2 [+db 10.2.1.1:80@host2 ]"},
		{"outside", "host1", 8080, nil, "published 192.0.2.1 [] nothing of grapevine is behind it: no container has it published, and no service is exposed by it"},
		{"app", "192.0.2.2", 8080, nil, "192.0.2.2 []"},
	} {
		f := world(t)
		f.Door = published
		if c.change != nil {
			c.change(&f)
		}
		l := Of(f, api.TraceRequest{From: c.from, To: c.to, Port: c.port})
		if text(l) != c.want || (l.Wrong == "") != (l.Do == "") {
			t.Errorf("%s to %s:%d:\n%s\n%s", c.from, c.to, c.port, text(l), c.want)
		}
		if (l.From == "203.0.113.1") != (c.from == Outside) {
			t.Errorf("from %s: %s", c.from, l.From)
		}
	}
	f := world(t)
	f.Door = published
	for to, want := range map[string]string{"192.0.2.2:8080": "192.0.2.2 is host host2 itself, where this port is published for container db: it leads to its port 80, and who calls it from a container is somebody from outside there", "192.0.2.1:9": "192.0.2.1 is host host1 itself"} {
		at := netip.MustParseAddrPort(to)
		if l := Of(f, api.TraceRequest{From: "app", To: at.Addr().String(), Port: at.Port()}); len(l.Notes) != 1 || l.Notes[0] != want {
			t.Errorf("%s: %q", to, l.Notes)
		}
	}
	f.Door = func(cluster.Node, netip.AddrPort, string) (expose.Door, error) {
		return expose.Door{}, errors.New("its agent is of an older version")
	}
	l := Of(f, api.TraceRequest{From: "outside", To: "192.0.2.2", Port: 9})
	if text(l) != "192.0.2.2 []" || !strings.Contains(strings.Join(l.Notes, "; "), "is not known: its agent is of an older version") {
		t.Errorf("%s %q", text(l), l.Notes)
	}
}

// TestEgress: what leaves by an egress is told, and when nothing does.
func TestEgress(t *testing.T) {
	ask := func(f Facts, from, to string) string {
		l := Of(f, api.TraceRequest{From: from, To: to, Port: 443})
		if l.Egress == nil {
			return text(l)
		}
		return fmt.Sprintf("%s %s %s: %s", l.Egress.Name, l.Egress.Addr, l.Egress.Holder, l.Egress.Wrong)
	}
	f := world(t)
	for _, c := range []struct{ from, to, want string }{
		{"db", "198.51.100.7", "mail 192.0.2.25 host2: "},
		{"db", "2001:db8::7", "mail invalid IP host2: it has no address of the family of 2001:db8::7, and so nothing leaves for there"},
		{"app", "198.51.100.7", "invalid IP []"},
		{"db", "10.1.0.1", "invalid IP []"},
		{"db", "192.0.2.1", "exposed 192.0.2.1 [] ports of all hosts are not for containers of the cluster"},
	} {
		if got := ask(f, c.from, c.to); got != c.want {
			t.Errorf("%s to %s: %s, want %s", c.from, c.to, got, c.want)
		}
	}
	f.Egresses = []api.Egress{{Name: "mail", Notes: []string{"no gateway has a subnet with it"}}}
	if got := ask(f, "db", "198.51.100.7"); got != "mail 192.0.2.25 : no gateway has a subnet with it" {
		t.Error(got)
	}
	// One that asks for labels comes before it, whether they are known or not.
	smtp := cluster.LabelEgress{Name: "smtp", Networks: []string{"red"}, Addrs: []netip.Addr{addr("192.0.2.26")}, Labels: []string{"role=smtp"}}
	if got := ask(world(t, smtp), "db", "198.51.100.7"); !strings.HasPrefix(got, "smtp 192.0.2.26 : it asks for labels, and those of the container are not known") {
		t.Error(got)
	}
	db := cluster.Endpoint{ID: strings.Repeat("d", 64), Container: strings.Repeat("d", 64), Network: "red", Name: "db", Host: host2, Addrs: []netip.Addr{addr("10.2.1.1")}, MAC: "0a:00:00:00:00:01", Labelled: true}
	if got := ask(world(t, smtp, db), "db", "198.51.100.7"); got != "mail 192.0.2.25 host2: " {
		t.Error(got)
	}
	db.Labels = map[string]string{"role": "smtp"}
	f = world(t, smtp, db)
	f.Egresses = append(f.Egresses, api.Egress{Name: "smtp", Holder: "host1"})
	if got := ask(f, "db", "198.51.100.7"); got != "smtp 192.0.2.26 host1: " {
		t.Error(got)
	}
}

// TestHostThatEncrypts: a host that encrypts all has no VTEP, and is known by its address and its name all the same.
func TestHostThatEncrypts(t *testing.T) {
	f := world(t, cluster.Node{ID: host2, Name: "secret", WireGuard: make([]byte, cluster.WireGuardKeySize), WireGuardAt: netip.MustParseAddrPort("192.0.2.3:7948")})
	for _, text := range []string{"secret", "192.0.2.3"} {
		if n, at, ok := f.host(text); !ok || n.Name != "secret" || at != addr("192.0.2.3") {
			t.Errorf("%s: %+v, %v, %v", text, n, at, ok)
		}
	}
}
