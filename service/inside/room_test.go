package inside

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/link/linktest"
	"github.com/grapevine-net/grapevine/host/nft"
)

const (
	self  = cluster.NodeID("00000000000000aa")
	other = cluster.NodeID("00000000000000bb")
)

// source is what the agent knows.
type source struct {
	t       testing.TB
	mu      sync.Mutex
	state   *cluster.State
	changed chan struct{}
}

func (s *source) Snapshot() *cluster.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Snapshot()
}

func (s *source) Watch() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

func (s *source) put(bodies ...cluster.Body) {
	s.write(func(b cluster.Body) { s.do(s.state.Put(b)) }, bodies)
}
func (s *source) do(_ cluster.Record, _ bool, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}
func (s *source) del(bodies ...cluster.Body) {
	s.write(func(b cluster.Body) { s.state.Delete(b.Key(), time.Unix(100, 0)) }, bodies)
}

func (s *source) write(one func(cluster.Body), bodies []cluster.Body) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range bodies {
		one(b)
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// next notes what it is told.
type next struct {
	mu   sync.Mutex
	list []string
}

func (n *next) Attach(endpoint, _ string) { n.note("+" + endpoint) }
func (n *next) Detach(endpoint string)    { n.note("-" + endpoint) }
func (n *next) note(what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, what)
}
func (n *next) told() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.list)
}

func endpoint(id string, addrs ...string) cluster.Endpoint {
	e := cluster.Endpoint{ID: id, Network: "blue", Host: self, Name: id, Aliases: []string{"app"}}
	if id == "client" {
		e.Aliases = nil
	}
	for _, a := range addrs {
		e.Addrs = append(e.Addrs, netip.MustParseAddr(a))
	}
	return e
}

// town is a container client, and two replicas of a service, all with both families.
type town struct {
	*source
	t               *testing.T
	client, servers *linktest.NS
	next            *next
	stand           map[cluster.NodeID]cluster.Standing
	room            *Room
	stop            func()
}

var (
	web = cluster.Service{
		Network: "blue", Name: "web", Select: "app",
		Addrs: []netip.Addr{netip.MustParseAddr("10.1.0.9"), netip.MustParseAddr("fd00::9")},
		Ports: []cluster.ServicePort{{Proto: "tcp", Port: 80, Target: 8080}, {Proto: "udp", Port: 53, Target: 8080}},
	}
	one = endpoint("one", "10.1.0.11", "fd00::11")
	two = endpoint("two", "10.1.0.12", "fd00::12")
)

func newTown(t *testing.T) *town {
	if err := Can(); err != nil {
		t.Fatalf("this kernel cannot do what is tested: %v", err)
	}
	w := &town{t: t, source: &source{t: t, state: cluster.New(self), changed: make(chan struct{})}, client: linktest.New(t), servers: linktest.New(t), next: &next{}, stand: map[cluster.NodeID]cluster.Standing{}}
	linktest.Wire(t, "eth0", w.client, w.servers, []string{"10.1.0.2/24", "fd00::2/64"}, []string{"10.1.0.11/24", "10.1.0.12/24", "fd00::11/64", "fd00::12/64"})
	for _, a := range []string{"10.1.0.11", "10.1.0.12", "fd00::11", "fd00::12"} {
		w.servers.Do(func() { w.serve(a) })
	}
	w.put(
		cluster.Network{Name: "blue", VNID: 1}, cluster.Subnet{Network: "blue", Prefix: netip.MustParsePrefix("10.1.0.0/24")},
		cluster.Subnet{Network: "blue", Prefix: netip.MustParsePrefix("fd00::/64")}, endpoint("client", "10.1.0.2", "fd00::2"), one, two,
	)
	w.begin(settling)
	return w
}

// begin starts an agent, which leaves the rules of an earlier one alone for so long.
func (w *town) begin(settle time.Duration) {
	w.room = New(Config{Source: w.source, Next: w.next, Log: slog.New(slog.DiscardHandler), Hosts: func(id cluster.NodeID) cluster.Standing {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.stand[id]
	}})
	w.room.settle, w.room.trust = settle, 20*time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = w.room.Run(ctx) }()
	w.stop = sync.OnceFunc(func() { cancel(); <-ended })
	w.t.Cleanup(w.stop)
}

// serve answers at an address with it and the client's, by TCP and UDP, until the test ends.
func (w *town) serve(addr string) {
	l, err := net.Listen("tcp", net.JoinHostPort(addr, "8080"))
	if err != nil {
		w.t.Fatal(err)
	}
	p, err := net.ListenPacket("udp", net.JoinHostPort(addr, "8080"))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { l.Close(); p.Close() })
	say := func(client net.Addr) []byte {
		host, _, _ := net.SplitHostPort(client.String())
		return []byte(addr + " saw " + host + "\n")
	}
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			go func() {
				defer c.Close()
				for b := make([]byte, 1); ; {
					if _, err := c.Read(b); err != nil {
						return
					}
					_, _ = c.Write(say(c.RemoteAddr()))
				}
			}()
		}
	}()
	go func() {
		b := make([]byte, 10)
		for _, from, err := p.ReadFrom(b); err == nil; _, from, err = p.ReadFrom(b) {
			_, _ = p.WriteTo(say(from), from)
		}
	}()
}

func (w *town) dial(network, addr string) (c net.Conn, err error) {
	w.client.Do(func() { c, err = (&net.Dialer{Timeout: 5 * time.Second}).Dial(network, addr) })
	return c, err
}

// ask says something on a connection, and returns the answer.
func ask(c net.Conn) (string, error) {
	_ = c.SetDeadline(time.Now().Add(time.Second))
	if _, err := c.Write([]byte("x")); err != nil {
		return "", err
	}
	b := make([]byte, 100)
	n, err := c.Read(b)
	return string(b[:n]), err
}

// answers are those of many connections.
func (w *town) answers(network, addr string) map[string]int {
	w.t.Helper()
	said := map[string]int{}
	for range 60 {
		c, err := w.dial(network, addr)
		if err != nil {
			w.t.Fatalf("%s: %v", addr, err)
		}
		a, err := ask(c)
		c.Close()
		if err != nil {
			w.t.Fatalf("%s: %v", addr, err)
		}
		said[a]++
	}
	return said
}

// eventually waits until something is so.
func (w *town) eventually(what string, is func() bool) {
	w.t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("it does not become so: %s; failed: %v", what, w.room.Failed())
		}
	}
}

// rules are the table's, in nft's words.
func (w *town) rules() string { return rulesOf(w.client) }

func rulesOf(ns *linktest.NS) string {
	var out []byte
	ns.Do(func() { out, _ = exec.Command("nft", "list", "ruleset").CombinedOutput() })
	return string(out)
}

func (w *town) attached() {
	w.t.Helper()
	w.room.Attach("client", w.client.Key())
	n := len(w.next.told())
	w.eventually("it is attached", func() bool { told := w.next.told(); return len(told) >= max(n, 1) && told[len(told)-1] == "+client" })
}

func refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// TestBalance: a client's connections to a service go to all replicas, by both families and protocols, which see the
// client's own address. What is no port of it is refused, and so is all when there is no replica.
func TestBalance(t *testing.T) {
	w := newTown(t)
	w.put(web)
	w.attached() // what is attached has the rules
	for family, at := range map[string]string{"10.1.0.1": "10.1.0.9", "fd00::1": "fd00::9"} {
		client := strings.TrimSuffix(family, "1") + "2"
		for network, port := range map[string]string{"tcp": "80", "udp": "53"} {
			said := w.answers(network, net.JoinHostPort(at, port))
			a, b := said[family+"1 saw "+client+"\n"], said[family+"2 saw "+client+"\n"]
			if len(said) != 2 || a < 10 || b < 10 { // 60 coins that fall so one time in 10^7
				t.Errorf("%s %s: %v", network, at, said)
			}
		}
		if _, err := w.dial("tcp", net.JoinHostPort(at, "81")); !refused(err) {
			t.Errorf("another port of %s: %v", at, err)
		}
		w.client.Do(func() {
			if out, err := exec.Command("ping", "-c", "1", "-W", "5", at).CombinedOutput(); err != nil {
				t.Errorf("ping: %v: %s", err, out)
			}
		})
	}
	w.del(one)
	w.eventually("only two is there", func() bool { return len(w.answers("tcp", "10.1.0.9:80")) == 1 })
	w.del(two)
	w.eventually("nobody is there", func() bool {
		_, err := w.dial("tcp", "[fd00::9]:80")
		_, err4 := w.dial("tcp", "10.1.0.9:80")
		return refused(err) && refused(err4)
	})
	w.put(two)
	w.eventually("two is back", func() bool { _, err := w.dial("tcp", "10.1.0.9:80"); return err == nil })
	w.del(web)
	w.eventually("nothing is left", func() bool { return !strings.Contains(w.rules(), tableName) })
}

// TestChange: a datagram's way and a connection's follow what becomes of their replica.
func TestChange(t *testing.T) {
	w := newTown(t)
	w.put(web)
	w.attached()
	var udp, tcp net.Conn
	w.eventually("both are led to one", func() bool {
		for _, c := range []*net.Conn{&udp, &tcp} {
			if *c != nil {
				(*c).Close()
			}
		}
		udp, _ = w.dial("udp", "10.1.0.9:53")
		tcp, _ = w.dial("tcp", "10.1.0.9:80")
		u, _ := ask(udp)
		c, _ := ask(tcp)
		return strings.HasPrefix(u, "10.1.0.11") && strings.HasPrefix(c, "10.1.0.11")
	})
	defer udp.Close()
	defer tcp.Close()
	// One that gets nothing new keeps what is open.
	rest := one
	rest.Unready = true
	w.put(rest)
	w.eventually("datagrams go to two", func() bool { a, _ := ask(udp); return strings.HasPrefix(a, "10.1.0.12") })
	if a, err := ask(tcp); !strings.HasPrefix(a, "10.1.0.11") {
		t.Errorf("the open connection: %q, %v", a, err)
	}
	if said := w.answers("tcp", "10.1.0.9:80"); len(said) != 1 || said["10.1.0.12 saw 10.1.0.2\n"] == 0 {
		t.Errorf("new connections: %v", said)
	}
	// Of one that is gone they end, and do not hang.
	w.del(one)
	w.eventually("the connection has ended", func() bool {
		_, err := ask(tcp)
		return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.EOF)
	})
	// A host in doubt gets nothing new, unless there is nobody else.
	far := one
	far.ID, far.Host = "far", other
	theirs := cluster.New(other)
	rec, _, err := theirs.Put(far)
	if err == nil {
		w.mu.Lock()
		_, err = w.state.Merge([]cluster.Record{rec})
		close(w.changed)
		w.changed = make(chan struct{})
		w.mu.Unlock()
	}
	if err != nil {
		t.Fatal(err)
	}
	w.eventually("far is in", func() bool { return len(w.answers("tcp", "10.1.0.9:80")) == 2 })
	w.hosts(other, cluster.Doubtful)
	w.eventually("far is out", func() bool { return len(w.answers("tcp", "10.1.0.9:80")) == 1 })
	w.del(two)
	w.eventually("far is all there is", func() bool { return w.answers("tcp", "10.1.0.9:80")["10.1.0.11 saw 10.1.0.2\n"] == 60 })
	// No agent answers there: the container may be there all the same, and nobody else is. What is open stays.
	tcp2, err := w.dial("tcp", "10.1.0.9:80")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp2.Close()
	w.hosts(other, cluster.Gone)
	w.eventually("the book knows", func() bool {
		w.room.mu.Lock()
		defer w.room.mu.Unlock()
		return w.room.book.List()[0].Replicas[0].Standing == cluster.Gone
	})
	if a, err := ask(tcp2); err != nil || !strings.HasPrefix(a, "10.1.0.11") {
		t.Errorf("the connection to a host whose agent has ended: %q, %v", a, err)
	}
	if said := w.answers("tcp", "10.1.0.9:80"); said["10.1.0.11 saw 10.1.0.2\n"] != 60 {
		t.Errorf("new connections when no agent answers there: %v", said)
	}
}

func (w *town) hosts(id cluster.NodeID, s cluster.Standing) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stand[id] = s
}

// TestRestart: the rules outlive the agent. The next one leaves them alone until it may know better, and then makes
// them what they should be, also where a container that may administer its namespace has flushed or taken them.
func TestRestart(t *testing.T) {
	w := newTown(t)
	w.put(web)
	w.attached()
	tcp, err := w.dial("tcp", "10.1.0.9:80")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	w.stop()
	if said := w.answers("tcp", "10.1.0.9:80"); len(said) != 2 {
		t.Errorf("without an agent: %v", said)
	}
	w.del(one, two) // what a new agent has not heard again yet
	w.begin(time.Hour)
	w.attached()
	if said := w.answers("tcp", "10.1.0.9:80"); len(said) != 2 {
		t.Errorf("with one that has not heard all yet: %v", said)
	}
	w.put(one, two)
	w.stop()
	w.begin(0)
	w.attached()
	if said := w.answers("tcp", "10.1.0.9:80"); len(said) != 2 {
		t.Errorf("with the next one: %v", said)
	}
	if a, err := ask(tcp); err != nil {
		t.Errorf("the open connection: %q, %v", a, err)
	}
	harms := []string{
		"flush ruleset", "delete table inet " + tableName, "flush map inet " + tableName + " replicas4", "flush map inet " + tableName + " sizes4", "flush chain inet " + tableName + " replicas4-2",
		"flush chain inet " + tableName + " lead", "add table inet " + tableName + " { flags dormant; }",
	}
	for _, harm := range harms {
		w.client.Do(func() {
			if out, err := exec.Command("nft", harm).CombinedOutput(); err != nil {
				t.Fatalf("nft %s: %v: %s", harm, err, out)
			}
		})
		w.eventually("one is in after "+harm, func() bool { c, err := w.dial("tcp", "10.1.0.9:80"); return err == nil && c.Close() == nil })
		w.eventually("both are in after "+harm, func() bool { return len(w.answers("tcp", "10.1.0.9:80")) == 2 })
	}
	// Datagrams to a service that was removed while no agent ran follow no longer where it led them. (A container has
	// Docker's chains for its resolver: without any of this kind the kernel translates nothing.)
	w.client.Do(func() {
		if out, err := exec.Command("nft", "add table ip docker; add chain ip docker out { type nat hook output priority -100; }; add rule ip docker out ip daddr 127.0.0.11 udp dport 53 dnat to 127.0.0.11:5353").CombinedOutput(); err != nil {
			t.Fatalf("nft: %v: %s", err, out)
		}
	})
	udp, err := w.dial("udp", "10.1.0.9:53")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	if a, err := ask(udp); err != nil {
		t.Errorf("a datagram: %q, %v", a, err)
	}
	w.stop()
	w.del(web)
	w.begin(0)
	w.attached()
	w.eventually("nobody answers for the service that was removed", func() bool { _, err := ask(udp); return err != nil })
	w.put(web)
	w.eventually("it is back", func() bool { return strings.Contains(w.rules(), tableName) })
	w.room.Detach("client")
	w.eventually("a container that has left the network has no rules", func() bool { return !strings.Contains(w.rules(), tableName) })
	if told := w.next.told(); told[len(told)-1] != "-client" {
		t.Errorf("told %v", told)
	}
}

// TestStays: with affinity a container stays with its replica when others come, and under the next agent, on both families.
func TestStays(t *testing.T) {
	w := newTown(t)
	sticky := web
	sticky.Affinity = true
	w.del(one, two)
	w.put(sticky, one)
	w.attached()
	is := func(what string) {
		t.Helper()
		for _, at := range []string{"10.1.0.9:80", "[fd00::9]:80"} {
			if said := w.answers("tcp", at); len(said) != 1 || !strings.Contains(fmt.Sprint(said), "1 saw") {
				t.Errorf("%s: %s: %v", what, at, said)
			}
		}
	}
	is("alone")
	var come []cluster.Body
	for i := range 30 { // of as many others one would be the first by chance
		come = append(come, endpoint(fmt.Sprint("late", i), fmt.Sprint("10.1.0.", 20+i), fmt.Sprintf("fd00::%x", 0x20+i)))
	}
	w.put(append(come, two)...)
	time.Sleep(300 * time.Millisecond)
	is("when others have come")
	w.stop()
	w.begin(0)
	w.attached()
	is("with the next agent")
	w.put(two) // and when something changes for that one
	w.del(come[0])
	time.Sleep(300 * time.Millisecond)
	is("with the next agent, a moment later")
	w.del(one)
	w.eventually("it goes to another one", func() bool { return !strings.Contains(w.rules(), "10.1.0.11 .") })
}

// TestSlowSandbox: who may administer a container's network can keep the agent out of it for as long as the kernel takes for
// what is loaded there. Others' connections follow their replicas meanwhile, and it is said whose do not.
func TestSlowSandbox(t *testing.T) {
	w := newTown(t)
	w.room.worry = 300 * time.Millisecond
	noisy := linktest.New(t)
	w.put(web, cluster.Endpoint{ID: "noisy", Network: "blue", Host: self, Name: "noisy", Addrs: []netip.Addr{netip.MustParseAddr("10.1.0.3")}})
	w.attached()
	w.room.Attach("noisy", noisy.Key())
	w.eventually("it has rules", func() bool { return strings.Contains(rulesOf(noisy), tableName) })
	for many := 20000; ; many += 10000 {
		load := heavy(t, many)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			noisy.Do(func() {
				if out, err := exec.Command("nft", "-f", load).CombinedOutput(); err != nil {
					t.Errorf("load rules: %v: %s", err, out)
				}
			})
		}()
		over := func() bool {
			select {
			case <-ended:
				return true
			default:
				return false
			}
		}
		changes, named := 0, false
		for there := false; !over(); there = !there {
			if there {
				w.put(two)
			} else {
				w.del(two)
			}
			for !over() && strings.Contains(w.rules(), "10.1.0.12") != there {
				time.Sleep(5 * time.Millisecond)
			}
			if !over() {
				changes++
			}
			_, is := w.room.Failed()["noisy"]
			named = named || is && !over()
			if _, is := w.room.Failed()["client"]; is {
				t.Errorf("the client is named: %v", w.room.Failed())
			}
		}
		t.Logf("%d elements: %d changes meanwhile, named: %v", many, changes, named)
		if named && changes > 5 {
			break
		}
		if many >= 60000 {
			t.Fatalf("while rules were loaded in one sandbox, another one got %d changes (named: %v)", changes, named)
		}
	}
	w.eventually("nobody is named any more", func() bool { return len(w.room.Failed()) == 0 })
}

// heavy is a file for nft(8) of a table that the kernel takes long for: ranges of several fields.
func heavy(t *testing.T, many int) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("table ip heavy { set s { type ipv4_addr . inet_service . ipv4_addr; flags interval; elements = {\n")
	for i := range many {
		x, y := i>>8&255, i&255
		fmt.Fprintf(&b, "10.%d.%d.1-10.%d.%d.200 . %d-%d . 10.%d.%d.3-10.%d.%d.77,\n", x, y, x, y, i%60000+1, i%60000+9, y, x, y, x)
	}
	b.WriteString("}\n}\n}\n")
	file := t.TempDir() + "/rules"
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestManyInside: what a container with its own network's rules in hand has put into a set of the agent's is not read as a whole, and
// is taken away. (Before: all of it was read, in as much memory.)
func TestManyInside(t *testing.T) {
	w := newTown(t)
	w.put(web)
	w.attached()
	const many = 300000
	var b strings.Builder
	b.WriteString("add element inet " + tableName + " addresses4 {\n")
	for i := range many {
		fmt.Fprintf(&b, "11.%d.%d.%d,\n", i>>16&255, i>>8&255, i&255)
	}
	b.WriteString("}\n")
	file := t.TempDir() + "/rules"
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	w.client.Do(func() {
		if out, err := exec.Command("nft", "-f", file).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	})
	w.eventually("it is taken away", func() bool {
		var out []byte
		w.client.Do(func() {
			out, _ = exec.Command("nft", "get", "element", "inet", tableName, "addresses4", "{ 11.0.0.1 }").CombinedOutput()
		})
		return strings.Contains(string(out), "No such file")
	})
	runtime.ReadMemStats(&after)
	if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 24 {
		t.Errorf("%d MB were allocated", took)
	}
	if n := len(w.answers("tcp", "10.1.0.9:80")); n != 2 {
		t.Errorf("connections go to %d replicas", n)
	}
}

// TestTouched: who changes a container's rules all the time costs the agent a share of a processor, however many services there are.
func TestTouched(t *testing.T) {
	w := newTown(t)
	var all []cluster.Body
	for i := range 10 {
		e := endpoint(fmt.Sprint("r", i), fmt.Sprint("10.1.0.", 20+i))
		e.Aliases = []string{"many"}
		all = append(all, e)
	}
	for i := range 300 {
		all = append(all, cluster.Service{
			Network: "blue", Name: fmt.Sprint("s", i), Select: "many", Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, 0, byte(40 + i%200)})},
			Ports: []cluster.ServicePort{{Proto: "tcp", Port: uint16(80 + i), Target: 80}},
		})
	}
	w.put(all...)
	w.attached()
	ctx, cancel := context.WithCancel(t.Context())
	var others sync.WaitGroup
	defer others.Wait()
	defer cancel()
	others.Go(func() {
		w.client.Do(func() {
			conn, err := nft.Dial()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			own := nft.Table{Name: "own", Family: nft.Inet}
			for ctx.Err() == nil {
				if err := conn.Do(own.Anew()); err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Millisecond)
			}
		})
	})
	box := w.room.all()[0]
	made, last := 0, time.Time{}
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		w.put(all[0])
		w.del(all[0])
		box.work.Lock()
		if box.rested != last {
			made, last = made+1, box.rested
		}
		box.work.Unlock()
	}
	t.Logf("made %d times", made)
	if made > 12 {
		t.Errorf("in 3 s all rules were made %d times", made)
	}
}
