package dns

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/grapevine-net/grapevine/host/netns"
)

// A container's questions to servers in the Internet are answered at the gateway if
// they are about the cluster, and otherwise by that very server, over UDP and TCP,
// IPv4 and IPv6; whichever rules lead there.
func TestGateway(t *testing.T) {
	for _, by := range []string{"its own rules", "iptables"} {
		t.Run(by, func(t *testing.T) {
			l := newLab(t)
			if by == "iptables" {
				t.Setenv(noRedirect, "1")
				l.iptables(Rules("gv0", DefaultPort, true))
			}
			testGateway(t, l)
		})
	}
}

func testGateway(t *testing.T, l *lab) {
	kill := l.agent("/run/netns/" + l.app)
	until(t, func() bool { return l.ask("tcp", "192.0.2.53:53", "db") == "NOERROR 10.1.0.3" })
	for _, network := range []string{"udp", "tcp"} {
		for _, c := range []struct{ server, name, want string }{
			{"192.0.2.53:53", "db", "NOERROR 10.1.0.3"},
			{"192.0.2.53:53", "example.com", "NOERROR 198.51.100.1"},
			{"192.0.2.54:53", "example.com", "NOERROR 198.51.100.2"},
			{"192.0.2.53:53", "hidden", "NOERROR 198.51.100.1"}, // another network's: not ours
			{"10.1.0.1:53", "db", "NOERROR 10.1.0.3"},
			{"10.1.0.1:53", "example.com", "NOERROR 198.51.100.2"}, // the gateway: the host's server
			{"[2001:db8::53]:53", "db", "NOERROR 10.1.0.3"},
			{"[2001:db8::53]:53", "example.com", "NOERROR 198.51.100.3"},
			{"[fd00:1::1]:53", "example.com", "NOERROR 198.51.100.2"},
		} {
			if got := l.ask(network, c.server, c.name); got != c.want {
				t.Errorf("%s at %s over %s: got %q, want %q", c.name, c.server, network, got, c.want)
			}
		}
	}
	if os.Getenv(noRedirect) != "" {
		return
	}
	// Killed: questions go where they were meant to, at once.
	kill()
	for _, network := range []string{"udp", "tcp"} {
		for server, want := range map[string]string{"192.0.2.53:53": "NOERROR 198.51.100.1", "[2001:db8::53]:53": "NOERROR 198.51.100.3"} {
			if got := l.ask(network, server, "db"); got != want {
				t.Errorf("%s over %s, the agent is dead: got %q, want %q", server, network, got, want)
			}
		}
	}
}

func TestCanRedirect(t *testing.T) {
	l := newLab(t)
	if err := netns.Do(l.namespace(l.host), CanRedirect); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("ip", "netns", "exec", l.host, "nft", "list", "tables").CombinedOutput()
	if err != nil || strings.Contains(string(out), "grapevine") {
		t.Errorf("left over: %s (%v)", out, err)
	}
}

// The host's servers are never the agent itself, whatever resolv.conf says.
func TestGatewayIsNotItsOwnUpstream(t *testing.T) {
	l := newLab(t)
	l.resolvConf("10.1.0.1")
	l.agent()
	until(t, func() bool { return l.ask("tcp", "10.1.0.1:53", "db") == "NOERROR 10.1.0.3" })
	if got := l.ask("udp", "10.1.0.1:53", "example.com"); got != "SERVFAIL" {
		t.Errorf("got %q", got)
	}
}

// What the host's rules keep from a container the resolver does not get for it, over UDP and TCP, IPv4 and
// IPv6, whatever the rules are about; names of the cluster are answered all the same. And servers
// beyond see the container's address.
func TestGatewayAsksAsTheContainer(t *testing.T) {
	l := newLab(t)
	l.agent("/run/netns/" + l.app)
	until(t, func() bool { return l.ask("tcp", "192.0.2.54:53", "db") == "NOERROR 10.1.0.3" })
	l.in(l.net, "ip", "addr", "add", "192.0.2.55/24", "dev", "wan")
	l.serve(l.net, "192.0.2.55:53", func(w dns.ResponseWriter, q *dns.Msg) {
		from, _, _ := net.SplitHostPort(w.RemoteAddr().String())
		tells(from)(w, q)
	})
	for _, network := range []string{"udp", "tcp"} {
		if got := l.ask(network, "192.0.2.55:53", "example.com"); got != "NOERROR 10.1.0.2" {
			t.Errorf("over %s the question is from %q", network, got)
		}
	}
	for _, c := range []struct{ iptables, rule, server, want string }{
		{"iptables", "-i gv0", "192.0.2.53:53", "NOERROR 198.51.100.1"},
		{"iptables", "-s 10.1.0.2", "192.0.2.53:53", "NOERROR 198.51.100.1"},
		{"iptables", "-i gv0 -d 192.0.2.53", "192.0.2.53:53", "NOERROR 198.51.100.1"},
		{"ip6tables", "-i gv0", "[2001:db8::53]:53", "NOERROR 198.51.100.3"},
		{"ip6tables", "-s fd00:1::2", "[2001:db8::53]:53", "NOERROR 198.51.100.3"},
	} {
		rule := append(strings.Fields(c.rule), "-j", "REJECT")
		l.in(l.host, append([]string{c.iptables, "-w", "-I", "FORWARD"}, rule...)...)
		for _, network := range []string{"udp", "tcp"} {
			if got := l.ask(network, c.server, "example.com"); got != "SERVFAIL" {
				t.Errorf("%s %s, over %s: got %q", c.iptables, c.rule, network, got)
			}
			if got := l.ask(network, c.server, "db"); got != "NOERROR 10.1.0.3" {
				t.Errorf("%s %s, a name of ours over %s: got %q", c.iptables, c.rule, network, got)
			}
		}
		l.in(l.host, append([]string{c.iptables, "-w", "-D", "FORWARD"}, rule...)...)
		for _, network := range []string{"udp", "tcp"} {
			if got := l.ask(network, c.server, "example.com"); got != c.want {
				t.Errorf("without %s %s, over %s: got %q, want %q", c.iptables, c.rule, network, got, c.want)
			}
		}
	}
}

// The kernel leads a question to where one went that came from the same port half a minute ago. Those of the
// container's programs get to the agent all the same, and what that asks in their stead gets past it.
func TestGatewayWherePortsComeAgain(t *testing.T) {
	l := newLab(t)
	l.agent("/run/netns/" + l.app)
	until(t, func() bool { return l.ask("tcp", "192.0.2.53:53", "db") == "NOERROR 10.1.0.3" })
	// Not before: each try by TCP keeps a port for a minute, and on a busy machine eight are gone before the agent is there.
	l.in(l.app, "sysctl", "-qw", "net.ipv4.ip_local_port_range=50000 50007")
	for range 20 {
		for name, want := range map[string]string{"db": "NOERROR 10.1.0.3", "example.com": "NOERROR 198.51.100.1"} {
			if got := l.ask("udp", "192.0.2.53:53", name); got != want {
				t.Fatalf("%s: got %q, want %q", name, got, want)
			}
		}
	}
}

// The resolver hears the gateway and nothing else, and again when it is another device.
func TestGatewayDevice(t *testing.T) {
	l := newLab(t)
	l.agent()
	until(t, func() bool { return l.ask("tcp", "10.1.0.1:53", "db") == "NOERROR 10.1.0.3" })
	if out, err := exec.Command("ip", "netns", "exec", l.net, "timeout", "1", "bash", "-c", "</dev/tcp/192.0.2.1/7953").CombinedOutput(); err == nil {
		t.Errorf("the resolver is open to the outside: %s", out)
	}
	l.in(l.host, "ip", "link", "del", "gv0")
	l.in(l.host, "ip", "link", "add", "gv0", "type", "veth", "peer", "name", "eth0", "netns", l.app)
	l.in(l.host, "ip", "addr", "add", "10.1.0.1/24", "dev", "gv0")
	l.in(l.app, "ip", "addr", "add", "10.1.0.2/24", "dev", "eth0")
	l.in(l.host, "ip", "link", "set", "gv0", "up")
	l.in(l.app, "ip", "link", "set", "eth0", "up")
	until(t, func() bool { return l.ask("tcp", "10.1.0.1:53", "db") == "NOERROR 10.1.0.3" })
	if got := l.ask("udp", "10.1.0.1:53", "db"); got != "NOERROR 10.1.0.3" {
		t.Errorf("over UDP: %q", got)
	}
}

// Once Hear has returned, no question at the gateway is met with silence: neither at the first device
// nor at another one.
func TestGatewayIsHeard(t *testing.T) {
	l := newLab(t)
	l.agent()
	heard := func() {
		t.Helper()
		if !l.says.Scan() {
			t.Fatal("Hear does not return")
		}
		for _, network := range []string{"tcp", "udp"} {
			if got := l.ask(network, "10.1.0.1:53", "db"); got != "NOERROR 10.1.0.3" {
				t.Errorf("%s, after %q: %q", network, l.says.Text(), got)
			}
		}
	}
	heard()
	l.in(l.host, "ip", "link", "del", "gv0")
	l.in(l.host, "sh", "-c", "ip link add gv0 type veth peer name eth0 netns "+l.app+" && ip addr add 10.1.0.1/24 dev gv0 && ip link set gv0 up && ip -n "+l.app+" addr add 10.1.0.2/24 dev eth0 && ip -n "+l.app+" link set eth0 up")
	heard()
}

// The rules are in the words in which iptables prints them, so that they are found
// again.
func TestRulesAreAsPrinted(t *testing.T) {
	l := newLab(t)
	l.iptables(Rules("gv0", DefaultPort, true))
	for _, r := range Rules("gv0", DefaultPort, true) {
		out, err := exec.Command("ip", "netns", "exec", l.host, command(r), "-w", "-t", r.Table, "-S", r.Chain).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "-A "+r.Chain+" "+r.Text+"\n") {
			t.Errorf("%s prints %s (%v), not %q", command(r), out, err, r.Text)
		}
	}
}
