package dns

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/grapevine-net/grapevine/host/netns"
)

// The tests below have a host, a container and the Internet, each a network
// namespace: 10.1.0.2 is the container app, at the host's gv0, and 192.0.2.53 is a
// server in the Internet. The agent is this test's program, run in the host.
const agentFlag = "GVN_TEST_AGENT"

// noRedirect has the agent leave port 53 to rules of iptables.
const noRedirect = "GVN_TEST_NO_REDIRECT"

func TestMain(m *testing.M) {
	if conf := os.Getenv(agentFlag); conf != "" {
		runAgent(conf)
		return
	}
	os.Exit(m.Run())
}

// runAgent is the agent: it attaches the sandboxes given as arguments and as lines of
// its input, and lives until that ends.
func runAgent(conf string) {
	ctx, cancel := context.WithCancel(context.Background())
	var t townT
	s := New(Config{Source: newSource(town(&t)), Device: "gv0", Redirect: os.Getenv(noRedirect) == "", ResolvConf: conf, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	for _, key := range os.Args[1:] {
		s.Attach(container(1, hostA, "blue", "", nil).ID, key)
	}
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			key, await := strings.CutPrefix(lines.Text(), "await ")
			s.Attach(container(1, hostA, "blue", "", nil).ID, key)
			if await {
				s.Await(ctx, key)
				fmt.Println("answers")
			}
		}
		cancel()
	}()
	fmt.Println("ready")
	go func() {
		for told := 0; ctx.Err() == nil; time.Sleep(time.Millisecond) {
			if dev, err := net.InterfaceByName("gv0"); err == nil && dev.Index != told {
				s.Hear(ctx)
				told = dev.Index
				fmt.Println("heard", told)
			}
		}
	}()
	_ = s.Run(ctx)
}

// townT lets town be used without a test.
type townT struct{ testing.TB }

func (*townT) Helper()           {}
func (*townT) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

type lab struct {
	testing.TB
	host, app, net string         // namespaces
	conf           string         // the host's resolv.conf
	says           *bufio.Scanner // what the agent prints
	agentIn        io.Writer
}

func newLab(t testing.TB) *lab {
	id := fmt.Sprintf("gvn-%d", os.Getpid())
	l := &lab{t, id + "-host", id + "-app", id + "-net", filepath.Join(t.TempDir(), "resolv.conf"), nil, nil}
	for _, ns := range []string{l.host, l.app, l.net} {
		l.run("ip", "netns", "add", ns)
		t.Cleanup(func() { l.run("ip", "netns", "del", ns) })
		l.in(ns, "ip", "link", "set", "lo", "up")
	}
	l.in(l.host, "ip", "link", "add", "gv0", "type", "veth", "peer", "name", "eth0", "netns", l.app)
	l.in(l.host, "ip", "link", "add", "wan", "type", "veth", "peer", "name", "wan", "netns", l.net)
	for _, a := range [][3]string{
		{l.host, "gv0", "10.1.0.1/24"},
		{l.app, "eth0", "10.1.0.2/24"},
		{l.host, "gv0", "fd00:1::1/64"},
		{l.app, "eth0", "fd00:1::2/64"},
		{l.host, "wan", "192.0.2.1/24"},
		{l.net, "wan", "192.0.2.53/24"},
		{l.net, "wan", "192.0.2.54/24"},
		{l.host, "wan", "2001:db8::1/64"},
		{l.net, "wan", "2001:db8::53/64"},
	} {
		l.in(a[0], "ip", "addr", "add", a[2], "dev", a[1], "nodad")
		l.in(a[0], "ip", "link", "set", a[1], "up")
	}
	l.in(l.app, "ip", "route", "add", "default", "via", "10.1.0.1")
	l.in(l.app, "ip", "route", "add", "default", "via", "fd00:1::1")
	l.in(l.net, "ip", "route", "add", "10.1.0.0/24", "via", "192.0.2.1")
	l.in(l.net, "ip", "route", "add", "fd00:1::/64", "via", "2001:db8::1")
	l.in(l.host, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	l.iptables(Rules("gv0", DefaultPort, false))
	l.serve(l.net, "192.0.2.53:53", tells("198.51.100.1"))
	l.serve(l.net, "192.0.2.54:53", tells("198.51.100.2"))
	l.serve(l.net, "[2001:db8::53]:53", tells("198.51.100.3"))
	l.resolvConf("192.0.2.54")
	return l
}

// iptables puts rules into the host's chains of both families.
func (l *lab) iptables(rules []Rule) {
	l.Helper()
	for _, r := range rules {
		l.in(l.host, append([]string{command(r), "-w", "-t", r.Table, "-A", r.Chain}, strings.Fields(r.Text)...)...)
	}
}

func command(r Rule) string {
	if r.V6 {
		return "ip6tables"
	}
	return "iptables"
}

func (l *lab) resolvConf(server string) {
	if err := os.WriteFile(l.conf, []byte("nameserver "+server+"\n"), 0o644); err != nil {
		l.Fatal(err)
	}
}

func (l *lab) run(args ...string) {
	l.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		l.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func (l *lab) in(ns string, args ...string) {
	l.Helper()
	l.run(append([]string{"ip", "netns", "exec", ns}, args...)...)
}

func (l *lab) namespace(name string) *os.File {
	l.Helper()
	f, err := os.Open("/run/netns/" + name)
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { _ = f.Close() })
	return f
}

// serve runs a server in a namespace.
func (l *lab) serve(ns, addr string, handle dns.HandlerFunc) (udpPort, tcpPort int) {
	l.Helper()
	var udp net.PacketConn
	var tcp net.Listener
	err := netns.Do(l.namespace(ns), func() (err error) {
		if udp, err = net.ListenPacket("udp", addr); err == nil {
			tcp, err = net.Listen("tcp", addr)
		}
		return err
	})
	if err != nil {
		l.Fatal(err)
	}
	serveUpstream(l, udp, tcp, handle)
	return udp.LocalAddr().(*net.UDPAddr).Port, tcp.Addr().(*net.TCPAddr).Port
}

// ask asks from inside the container.
func (l *lab) ask(network, server, name string) string {
	l.Helper()
	var conn net.Conn
	err := netns.Do(l.namespace(l.app), func() (err error) { conn, err = net.Dial(network, server); return err })
	if err != nil {
		return err.Error()
	}
	c := &dns.Client{Net: network, Timeout: 5 * time.Second}
	r, _, err := c.ExchangeWithConn(query(name, dns.TypeA), &dns.Conn{Conn: conn})
	_ = conn.Close()
	if err != nil {
		return err.Error()
	}
	return says(l, wireOf(l, r), answered)
}

// agent starts the agent in the host; the function that is returned kills it.
func (l *lab) agent(sandboxes ...string) (kill func()) {
	l.Helper()
	cmd := exec.Command("ip", append([]string{"netns", "exec", l.host, os.Args[0]}, sandboxes...)...)
	cmd.Env = append(os.Environ(), agentFlag+"="+l.conf)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		l.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		l.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		l.Fatal(err)
	}
	l.says, l.agentIn = bufio.NewScanner(out), in
	if !l.says.Scan() {
		l.Fatal("the agent does not start")
	}
	kill = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	l.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	return kill
}
