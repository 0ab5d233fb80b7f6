package dns

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/dns/names"
)

const (
	hostA = cluster.NodeID("aaaaaaaaaaaaaaaa")
	hostB = cluster.NodeID("bbbbbbbbbbbbbbbb")
)

// container is an endpoint record: its ID and its container's are made of i, and
// one with the same i on another network is the same container.
func container(i int, host cluster.NodeID, network, name string, addrs []string, aliases ...string) cluster.Endpoint {
	e := cluster.Endpoint{
		ID: fmt.Sprintf("%060x%04x", i, len(network)), Network: network, Host: host, MAC: "02:00:00:00:00:01",
		Container: fmt.Sprintf("%012x%052x", i, i), Name: name, Aliases: aliases,
	}
	for _, a := range addrs {
		e.Addrs = append(e.Addrs, netip.MustParseAddr(a))
	}
	return e
}

// town is what the tests of this package ask about: app is on blue, and on secret,
// which is internal; loner only on secret; db and two replicas of web on blue.
func town(t testing.TB, more ...cluster.Body) *cluster.State {
	t.Helper()
	s := cluster.New(hostA)
	for _, b := range append([]cluster.Body{
		cluster.Network{Name: "blue", VNID: 1},
		cluster.Network{Name: "secret", VNID: 2, Internal: true},
		cluster.Subnet{Prefix: netip.MustParsePrefix("10.1.0.0/24"), Network: "blue", Gateway: netip.MustParseAddr("10.1.0.1")},
		cluster.Subnet{Prefix: netip.MustParsePrefix("10.2.0.0/24"), Network: "secret"},
		cluster.Subnet{Prefix: netip.MustParsePrefix("fd00:1::/64"), Network: "blue"},
		container(1, hostA, "blue", "app", []string{"10.1.0.2", "fd00:1::2"}),
		container(1, hostA, "secret", "app", []string{"10.2.0.2"}),
		container(2, hostA, "blue", "Db", []string{"10.1.0.3"}, "postgres"),
		container(3, hostA, "blue", "shop-web-1", []string{"10.1.0.4", "fd00:1::4"}, "web"),
		container(4, hostA, "blue", "shop-web-2", []string{"10.1.0.5", "fd00:1::5"}, "web"),
		container(5, hostA, "secret", "loner", []string{"10.2.0.5"}),
		container(6, hostA, "green", "hidden", []string{"10.3.0.2"}),
	}, more...) {
		if _, _, err := s.Put(b); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func indexOf(s *cluster.State) *names.Index {
	x := names.New()
	x.Advance(s.Snapshot())
	return x
}

func query(name string, qtype uint16) *dns.Msg {
	return new(dns.Msg).SetQuestion(dns.Fqdn(name), qtype)
}

func wireOf(t testing.TB, m *dns.Msg) []byte {
	t.Helper()
	wire, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return wire
}

// says is a reply in one line: what it says and what it has.
func says(t testing.TB, wire []byte, v verdict) string {
	t.Helper()
	switch v {
	case forward:
		return "forward"
	case dropped:
		return "dropped"
	}
	var m dns.Msg
	if err := m.Unpack(wire); err != nil {
		t.Fatalf("the reply cannot be read: %v", err)
	}
	words := []string{dns.RcodeToString[m.Rcode]}
	for _, rr := range m.Answer {
		words = append(words, strings.Fields(rr.String())[4])
	}
	return strings.Join(words, " ")
}

func TestRespond(t *testing.T) {
	x := indexOf(town(t))
	for _, c := range []struct {
		from, name string
		qtype      uint16
		want       string
	}{
		{"10.1.0.2", "db", dns.TypeA, "NOERROR 10.1.0.3"},
		{"10.1.0.2", "DB", dns.TypeA, "NOERROR 10.1.0.3"},
		{"10.1.0.2", "postgres", dns.TypeA, "NOERROR 10.1.0.3"},
		{"10.1.0.2", "db.blue", dns.TypeA, "NOERROR 10.1.0.3"},
		{"10.1.0.2", "db.secret", dns.TypeA, "forward"},
		{"10.1.0.2", "db.green", dns.TypeA, "forward"},
		{"10.1.0.2", "000000000002", dns.TypeA, "NOERROR 10.1.0.3"},
		{"10.1.0.2", "db", dns.TypeAAAA, "NOERROR"},
		{"10.1.0.2", "db", dns.TypeMX, "NOERROR"},
		{"10.1.0.2", "db", dns.TypeHTTPS, "NOERROR"},
		{"10.1.0.2", "loner", dns.TypeA, "NOERROR 10.2.0.5"},
		{"10.1.0.3", "loner", dns.TypeA, "forward"},
		{"10.1.0.3", "hidden", dns.TypeA, "forward"},
		{"10.1.0.3", "app", dns.TypeA, "NOERROR 10.1.0.2"},
		{"10.2.0.2", "app", dns.TypeA, "NOERROR 10.2.0.2"},
		{"10.2.0.5", "app", dns.TypeA, "NOERROR 10.2.0.2"},
		{"10.2.0.5", "app", dns.TypeAAAA, "NOERROR"},
		{"10.2.0.5", "example.com", dns.TypeA, "REFUSED"}, // internal networks only
		{"10.2.0.2", "example.com", dns.TypeA, "forward"}, // on another one as well
		{"10.9.9.9", "db", dns.TypeA, "REFUSED"},
		{"10.1.0.2", "app", dns.TypeAAAA, "NOERROR fd00:1::2"},
		{"fd00:1::2", "app", dns.TypeAAAA, "NOERROR fd00:1::2"},
		{"10.1.0.2", "3.0.1.10.in-addr.arpa", dns.TypePTR, "NOERROR Db.blue."},
		{"10.1.0.2", "5.0.2.10.in-addr.arpa", dns.TypePTR, "NOERROR loner.secret."},
		{"10.1.0.3", "5.0.2.10.in-addr.arpa", dns.TypePTR, "forward"},
		{"10.1.0.3", "2.0.3.10.in-addr.arpa", dns.TypePTR, "forward"},
		{"10.1.0.2", "77.0.1.10.in-addr.arpa", dns.TypePTR, "NXDOMAIN"},
		{"10.1.0.2", "8.8.8.8.in-addr.arpa", dns.TypePTR, "forward"},
		{"10.1.0.2", "4.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.1.0.0.0.0.0.d.f.ip6.arpa", dns.TypePTR, "NOERROR shop-web-1.blue."},
		{"10.1.0.2", "3.0.1.10.in-addr.arpa", dns.TypeA, "NOERROR"},
	} {
		q := &question{wire: wireOf(t, query(c.name, c.qtype)), network: "udp", who: names.Asker{Addr: netip.MustParseAddr(c.from)}}
		wire, v := respond(q, x, nil)
		if got := says(t, wire, v); got != c.want {
			t.Errorf("%s asks for %s %s: got %q, want %q", c.from, dns.TypeToString[c.qtype], c.name, got, c.want)
		}
	}
}

// A negative answer says that it is not to be kept (RFC 2308), and which question
// it is to, in the letters in which it was asked.
func TestNegativeAnswer(t *testing.T) {
	q := &question{wire: wireOf(t, query("dB", dns.TypeAAAA)), network: "udp", who: names.Asker{Addr: netip.MustParseAddr("10.1.0.2")}}
	wire, _ := respond(q, indexOf(town(t)), nil)
	var m dns.Msg
	if err := m.Unpack(wire); err != nil {
		t.Fatal(err)
	}
	soa, ok := m.Ns[0].(*dns.SOA)
	if len(m.Ns) != 1 || !ok || soa.Hdr.Ttl != 0 || soa.Minttl != 0 || soa.Hdr.Name != "dB." || m.Question[0].Name != "dB." {
		t.Errorf("got %s", m.String())
	}
}

func TestDeadHost(t *testing.T) {
	b := cluster.New(hostB)
	rec, _, err := b.Put(container(7, hostB, "blue", "shop-web-3", []string{"10.1.0.6"}, "web", "far"))
	if err != nil {
		t.Fatal(err)
	}
	s := town(t)
	if _, err := s.Merge([]cluster.Record{rec}); err != nil {
		t.Fatal(err)
	}
	x := indexOf(s)
	for standing, want := range map[cluster.Standing]string{cluster.Answers: "NOERROR 10.1.0.6", cluster.Doubtful: "NOERROR 10.1.0.6", cluster.Gone: "forward"} {
		q := &question{wire: wireOf(t, query("far", dns.TypeA)), network: "udp", who: names.Asker{Addr: netip.MustParseAddr("10.1.0.2")}}
		wire, v := respond(q, x, func(cluster.NodeID) cluster.Standing { return standing })
		if got := says(t, wire, v); got != want {
			t.Errorf("the host stands at %d: got %q, want %q", standing, got, want)
		}
	}
}

// Answers that are too long for the asker say so, and are whole over TCP.
func TestTruncation(t *testing.T) {
	var many []cluster.Body
	for i := range 200 {
		many = append(many, container(100+i, hostA, "blue", fmt.Sprintf("many-%d", i), []string{fmt.Sprintf("10.1.1.%d", i)}, "many"))
	}
	x := indexOf(town(t, many...))
	for _, c := range []struct {
		network  string
		edns     uint16
		max      int
		complete bool
	}{{"udp", 0, 512, false}, {"udp", 4096, maxUDP, false}, {"udp", 100, 512, false}, {"tcp", 0, dns.MaxMsgSize, true}} {
		m := query("many", dns.TypeA)
		if c.edns > 0 {
			m.SetEdns0(c.edns, false)
		}
		q := &question{wire: wireOf(t, m), network: c.network, who: names.Asker{Addr: netip.MustParseAddr("10.1.0.2")}}
		wire, _ := respond(q, x, nil)
		var r dns.Msg
		if err := r.Unpack(wire); err != nil {
			t.Fatal(err)
		}
		if len(wire) > c.max || r.Truncated == c.complete || (len(r.Answer) == 200) != c.complete || (r.IsEdns0() != nil) != (c.edns > 0) {
			t.Errorf("%+v: %d bytes, %d answers, truncated %v", c, len(wire), len(r.Answer), r.Truncated)
		}
	}
}

// All replicas come first at some time.
func TestRoundRobin(t *testing.T) {
	x := indexOf(town(t))
	first := map[string]int{}
	for range 200 {
		q := &question{wire: wireOf(t, query("web", dns.TypeA)), network: "udp", who: names.Asker{Addr: netip.MustParseAddr("10.1.0.2")}}
		wire, v := respond(q, x, nil)
		words := strings.Fields(says(t, wire, v))
		if len(words) != 3 {
			t.Fatalf("got %v", words)
		}
		first[words[1]]++
	}
	if len(first) != 2 || first["10.1.0.4"] < 40 || first["10.1.0.5"] < 40 {
		t.Errorf("of 200 answers the first was %v", first)
	}
}

func TestBadVersion(t *testing.T) {
	m := query("db", dns.TypeA)
	m.SetEdns0(1232, false)
	m.IsEdns0().SetVersion(1)
	q := &question{wire: wireOf(t, m), network: "udp", who: names.Asker{Addr: netip.MustParseAddr("10.1.0.2")}}
	wire, v := respond(q, indexOf(town(t)), nil)
	if got := says(t, wire, v); got != "BADVERS" && got != "BADSIG" {
		t.Errorf("got %q", got)
	}
}

// No bytes whatever crash the server; what it replies can be read, is a response to
// the same ID, and no longer than the asker can take.
func FuzzRespond(f *testing.F) {
	x := indexOf(town(f))
	f.Add(wireOf(f, query("db", dns.TypeA)), true)
	f.Add(wireOf(f, query("web.blue", dns.TypeAAAA)), false)
	f.Add(wireOf(f, query("3.0.1.10.in-addr.arpa", dns.TypePTR)), true)
	f.Add(wireOf(f, new(dns.Msg).SetUpdate("blue.")), true)
	edns := query("db", dns.TypeA)
	edns.SetEdns0(512, true)
	f.Add(wireOf(f, edns), true)
	f.Add([]byte{1, 2, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0, 12, 0, 1, 0, 1}, true)
	f.Fuzz(func(t *testing.T, wire []byte, udp bool) {
		network := map[bool]string{true: "udp", false: "tcp"}[udp]
		for _, from := range []string{"10.1.0.2", "10.2.0.5", "10.9.9.9"} {
			q := &question{wire: wire, network: network, who: names.Asker{Addr: netip.MustParseAddr(from)}}
			got, v := respond(q, x, nil)
			if (got == nil) != (v == dropped || v == forward) {
				t.Fatalf("verdict %d with %d bytes", v, len(got))
			}
			if v == forward {
				_ = sameQuestion(wire, wire)
				_ = isTransfer(wire)
				continue
			}
			var m dns.Msg
			if got != nil && (m.Unpack(got) != nil || !m.Response || m.Id != messageID(wire)) {
				t.Fatalf("reply %x to %x", got, wire)
			}
			if udp && len(got) > maxUDP {
				t.Fatalf("%d bytes over UDP", len(got))
			}
		}
	})
}
