package dns

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/grapevine-net/grapevine/host/netns"
)

// docker puts Docker's resolver into the container, as libnetwork does: a socket on
// a port of chance, and a rule that leads 127.0.0.11:53 there. It knows "local".
func (l *lab) docker() {
	l.Helper()
	udp, tcp := l.serve(l.app, "127.0.0.11:0", func(w dns.ResponseWriter, q *dns.Msg) {
		if name := q.Question[0].Name; name == "local." || name == "db." {
			tells("172.17.0.9")(w, q)
			return
		}
		fails(dns.RcodeNameError)(w, q)
	})
	l.in(l.app, "iptables", "-w", "-t", "nat", "-N", "DOCKER_OUTPUT")
	l.in(l.app, "iptables", "-w", "-t", "nat", "-I", "OUTPUT", "-d", "127.0.0.11", "-j", "DOCKER_OUTPUT")
	for proto, port := range map[string]int{"udp": udp, "tcp": tcp} {
		l.in(l.app, "iptables", "-w", "-t", "nat", "-I", "DOCKER_OUTPUT", "-d", "127.0.0.11", "-p", proto, "--dport", "53",
			"-j", "DNAT", "--to-destination", fmt.Sprintf("127.0.0.11:%d", port))
	}
}

const resolver = "127.0.0.11:53"

// Inside a sandbox what the cluster knows comes first, everything else is Docker's
// to answer, and if the agent is killed all of it is, at once.
func TestSandbox(t *testing.T) {
	for _, agentFirst := range []bool{true, false} {
		t.Run(fmt.Sprintf("agent first %v", agentFirst), func(t *testing.T) {
			l := newLab(t)
			var kill func()
			if agentFirst {
				kill = l.agent("/run/netns/" + l.app)
				l.docker()
			} else {
				l.docker()
				kill = l.agent("/run/netns/" + l.app)
			}
			until(t, func() bool { return l.ask("tcp", resolver, "db") == "NOERROR 10.1.0.3" })
			for _, network := range []string{"udp", "tcp"} {
				for name, want := range map[string]string{
					"db": "NOERROR 10.1.0.3", "loner": "NOERROR 10.2.0.5", "local": "NOERROR 172.17.0.9",
					"hidden": "NXDOMAIN", "example.com": "NXDOMAIN",
				} {
					if got := l.ask(network, resolver, name); got != want {
						t.Errorf("%s over %s: got %q, want %q", name, network, got, want)
					}
				}
			}
			kill()
			for _, network := range []string{"udp", "tcp"} {
				if got := l.ask(network, resolver, "db"); got != "NOERROR 172.17.0.9" {
					t.Errorf("over %s, the agent is dead: got %q", network, got)
				}
			}
		})
	}
}

// TestAwait: whoever waits for the resolver in a sandbox that is there is answered by it from the first question on, and nobody waits for
// one that is not.
func TestAwait(t *testing.T) {
	l := newLab(t)
	l.docker()
	l.agent()
	for _, key := range []string{"/run/netns/none-of-" + l.app, "/run/netns/" + l.app} {
		if _, err := fmt.Fprintln(l.agentIn, "await "+key); err != nil {
			t.Fatal(err)
		}
		for l.says.Scan() && l.says.Text() != "answers" {
		}
	}
	if got := l.ask("udp", resolver, "db"); got != "NOERROR 10.1.0.3" {
		t.Errorf("the first question: %s", got)
	}
}

// The kernel leads a question to where one went that came from the same port half a minute ago. Those of the
// container's programs get to the agent all the same, and what that passes on to Docker's resolver.
func TestSandboxWherePortsComeAgain(t *testing.T) {
	l := newLab(t)
	l.docker()
	l.in(l.app, "sysctl", "-qw", "net.ipv4.ip_local_port_range=50000 50007")
	l.agent("/run/netns/" + l.app)
	until(t, func() bool { return l.ask("tcp", resolver, "db") == "NOERROR 10.1.0.3" })
	for range 20 {
		for name, want := range map[string]string{"db": "NOERROR 10.1.0.3", "local": "NOERROR 172.17.0.9"} {
			if got := l.ask("udp", resolver, name); got != want {
				t.Fatalf("%s: got %q, want %q", name, got, want)
			}
		}
	}
}

// A program that keeps its socket, as proxies do, is answered by whoever is there: not for two minutes
// more by who was there when it first asked.
func TestSandboxOfAProgramThatKeepsItsSocket(t *testing.T) {
	l := newLab(t)
	l.docker()
	var conn net.Conn
	if err := netns.Do(l.namespace(l.app), func() (err error) { conn, err = net.Dial("udp", resolver); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ask := func() string {
		c := &dns.Client{Net: "udp", Timeout: 200 * time.Millisecond}
		r, _, err := c.ExchangeWithConn(query("db", dns.TypeA), &dns.Conn{Conn: conn})
		if err != nil {
			return err.Error()
		}
		return says(l, wireOf(l, r), answered)
	}
	if got := ask(); got != "NOERROR 172.17.0.9" {
		t.Fatalf("without an agent: %q", got)
	}
	s, _ := atLoopback(t, newSource(town(t)), direct())
	endpoint := container(1, hostA, "blue", "", nil).ID
	s.Attach(endpoint, "/run/netns/"+l.app)
	until(t, func() bool { return ask() == "NOERROR 10.1.0.3" })
	s.Detach(endpoint)
	until(t, func() bool { return ask() == "NOERROR 172.17.0.9" })
	kill := l.agent("/run/netns/" + l.app)
	until(t, func() bool { return ask() == "NOERROR 10.1.0.3" })
	kill()
	l.agent("/run/netns/" + l.app)
	until(t, func() bool { return ask() == "NOERROR 10.1.0.3" })
}

// A sandbox that comes later is found, and one whose last endpoint has gone is left.
func TestSandboxComesAndGoes(t *testing.T) {
	l := newLab(t)
	l.docker()
	s, _ := atLoopback(t, newSource(town(t)), direct())
	blue, secret := container(1, hostA, "blue", "", nil).ID, container(1, hostA, "secret", "", nil).ID
	key := t.TempDir() + "/sandbox"
	s.Attach(blue, key)
	s.Attach(secret, key)
	s.Attach(secret, key)
	l.run("touch", key)
	l.run("mount", "--bind", "/run/netns/"+l.app, key)
	t.Cleanup(func() { l.run("umount", "-l", key) })
	until(t, func() bool { return l.ask("tcp", resolver, "db") == "NOERROR 10.1.0.3" })
	if stats := s.Stats(); stats.Inside != 1 || stats.Outside != 0 {
		t.Errorf("of one container: inside %d, not inside %d", stats.Inside, stats.Outside)
	}
	s.Detach(blue)
	if got := l.ask("udp", resolver, "loner"); got != "NOERROR 10.2.0.5" {
		t.Errorf("with one endpoint of two: %q", got)
	}
	s.Detach(secret)
	s.Detach(secret)
	until(t, func() bool { return l.ask("tcp", resolver, "db") == "NOERROR 172.17.0.9" })
	// As when Docker refreshes a sandbox: Leave and Join, again and again.
	for range 10 {
		s.Attach(blue, key)
		s.Detach(blue)
	}
	s.Attach(blue, key)
	until(t, func() bool { return l.ask("tcp", resolver, "db") == "NOERROR 10.1.0.3" })
}

// While another agent is still in the sandbox, one waits for it to go.
func TestSandboxIsHandedOver(t *testing.T) {
	l := newLab(t)
	l.docker()
	key := "/run/netns/" + l.app
	kill := l.agent(key)
	until(t, func() bool { return l.ask("tcp", resolver, "web") != "NXDOMAIN" })
	s, _ := atLoopback(t, newSource(town(t, container(60, hostA, "blue", "fresh", []string{"10.1.0.60"}))), direct())
	s.Attach(container(1, hostA, "blue", "", nil).ID, key)
	if got := l.ask("udp", resolver, "fresh"); got != "NXDOMAIN" {
		t.Errorf("two are in one sandbox: got %q", got)
	}
	until(t, func() bool { stats := s.Stats(); return stats.Inside == 0 && stats.Outside == 1 })
	kill()
	until(t, func() bool { return l.ask("tcp", resolver, "fresh") == "NOERROR 10.1.0.60" })
}
