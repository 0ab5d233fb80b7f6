package dns

import (
	"os"
	"os/exec"
	"strings"
	"testing"
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
	kill := l.agent()
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
	l.in(l.host, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	l.in(l.net, "ip", "route", "add", "10.1.0.0/24", "via", "192.0.2.1")
	l.in(l.net, "ip", "route", "add", "fd00:1::/64", "via", "2001:db8::1")
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
	if err := inNamespace(l.namespace(l.host), CanRedirect); err != nil {
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

// A server that the container may not reach is not asked for it, over UDP and TCP, nor is a
// connection to it opened; names of the cluster are answered all the same.
func TestGatewayMayNot(t *testing.T) {
	t.Setenv(mayNot, "192.0.2.54")
	l := newLab(t)
	l.agent()
	until(t, func() bool { return l.ask("tcp", "192.0.2.54:53", "db") == "NOERROR 10.1.0.3" })
	for _, network := range []string{"udp", "tcp"} {
		for server, want := range map[string]string{"192.0.2.54:53": "REFUSED", "192.0.2.53:53": "NOERROR 198.51.100.1", "10.1.0.1:53": "NOERROR 198.51.100.2"} {
			if got := l.ask(network, server, "example.com"); got != want {
				t.Errorf("%s over %s: got %q, want %q", server, network, got, want)
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

// The rules are in the words in which iptables prints them, so that they are found
// again.
func TestRulesAreAsPrinted(t *testing.T) {
	l := newLab(t)
	l.iptables(Rules("gv0", DefaultPort, true))
	for _, iptables := range []string{"iptables", "ip6tables"} {
		for _, r := range Rules("gv0", DefaultPort, true) {
			out, err := exec.Command("ip", "netns", "exec", l.host, iptables, "-w", "-t", r.Table, "-S", r.Chain).CombinedOutput()
			if err != nil || !strings.Contains(string(out), "-A "+r.Chain+" "+r.Text+"\n") {
				t.Errorf("%s prints %s (%v), not %q", iptables, out, err, r.Text)
			}
		}
	}
}
