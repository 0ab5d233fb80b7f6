package filter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// world is a host that forwards everything, with containers behind gv0 (web, and vault of
// an internal network), on a bridge of Docker's (plain) and on one of an internal network
// (locked), a machine outside and one that is another host of the cluster.
type world struct {
	t      *testing.T
	host   *linktest.NS
	at     map[string]*linktest.NS
	addr   map[string]string // by name, and family: "web/6"
	filter *Filter
}

const (
	plainBridge  = "br-0123456789ab"
	lockedBridge = "br-ba9876543210"
)

var config = Config{
	Interface: "gv0", Bridges: []string{plainBridge, lockedBridge}, Closed: []string{lockedBridge},
	Internal: []netip.Prefix{netip.MustParsePrefix("10.128.4.0/22"), netip.MustParsePrefix("fd00:128:4::/64")},
	Hosts:    []netip.Prefix{netip.MustParsePrefix("240.0.0.0/5"), netip.MustParsePrefix("fd00:240::/32")},
	VTEPs:    []netip.Addr{netip.MustParseAddr("10.9.0.3"), netip.MustParseAddr("fd00:9::3")},
	Behind:   []netip.Addr{netip.MustParseAddr("10.9.0.4"), netip.MustParseAddr("fd00:9::4")},
	Ports:    []uint16{4789, 7947},
	Guests:   []string{"virbr0"},
	Own:      []netip.Addr{netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("fd00:9::1")},
	VXLAN:    4789, VXLANs: []uint16{4789, 4791}, Names: []uint16{53},
}

func run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
	return string(out)
}

func newWorld(t *testing.T, open func() (*Filter, error)) *world {
	w := &world{t: t, host: linktest.New(t), at: map[string]*linktest.NS{}, addr: map[string]string{}}
	machine := func(name, on, v4, v6, gw4, gw6 string) {
		ns := linktest.New(t)
		w.at[name] = ns
		w.addr[name], _, _ = strings.Cut(v4, "/")
		w.addr[name+"/6"], _, _ = strings.Cut(v6, "/")
		linktest.Wire(t, name, w.host, ns, nil, []string{v4, v6})
		w.host.Do(func() { run(t, "ip", "link", "set", name, "master", on) })
		ns.Do(func() {
			run(t, "ip", "route", "add", "default", "via", gw4, "dev", name, "onlink")
			run(t, "ip", "route", "add", "default", "via", gw6, "dev", name, "onlink")
		})
	}
	w.host.Do(func() {
		for name, addrs := range map[string][]string{
			"gv0":        {"10.128.0.1/22", "10.128.4.1/22", "240.0.0.1/5", "fd00:128::1/64", "fd00:128:4::1/64", "fd00:240::1/32"},
			plainBridge:  {"10.7.0.1/24", "fd00:7::1/64"},
			lockedBridge: {"10.8.0.1/24", "fd00:8::1/64"},
			"eth0":       {"10.9.0.1/24", "fd00:9::1/64", "10.9.0.77/24", "fd00:9::77/64"},
			"virbr0":     {"10.6.0.1/24", "fd00:6::1/64"},
		} {
			run(t, "ip", "link", "add", name, "type", "bridge")
			linktest.Up(t, name, addrs...)
			_ = os.WriteFile("/proc/sys/net/ipv4/conf/"+name+"/rp_filter", []byte("0"), 0o644)
		}
		run(t, "ip", "addr", "change", "fd00:9::77/64", "dev", "eth0", "preferred_lft", "0") // masquerading takes the other one
		for _, f := range []string{"iptables", "ip6tables"} {
			_ = os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-"+f, []byte("0"), 0o644)
		}
		run(t, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	})
	machine("web", "gv0", "10.128.0.2/22", "fd00:128::2/64", "10.128.0.1", "fd00:128::1")
	machine("vault", "gv0", "10.128.4.2/22", "fd00:128:4::2/64", "10.128.4.1", "fd00:128:4::1")
	machine("other", "gv0", "240.0.0.2/5", "fd00:240::2/32", "240.0.0.1", "fd00:240::1")
	machine("plain", plainBridge, "10.7.0.2/24", "fd00:7::2/64", "10.7.0.1", "fd00:7::1")
	machine("locked", lockedBridge, "10.8.0.2/24", "fd00:8::2/64", "10.8.0.1", "fd00:8::1")
	machine("away", "eth0", "10.9.0.2/24", "fd00:9::2/64", "10.9.0.1", "fd00:9::1")
	machine("vtep", "eth0", "10.9.0.3/24", "fd00:9::3/64", "10.9.0.1", "fd00:9::1")
	machine("behind", "eth0", "10.9.0.4/24", "fd00:9::4/64", "10.9.0.1", "fd00:9::1")
	machine("vm", "virbr0", "10.6.0.2/24", "fd00:6::2/64", "10.6.0.1", "fd00:6::1")
	for _, ns := range w.at {
		serve(t, ns)
	}
	serve(t, w.host, "10.9.0.1", "[fd00:9::1]", "10.9.0.77", "[fd00:9::77]", "10.128.4.1", "[fd00:128:4::1]")
	w.host.Do(func() {
		var err error
		if w.filter, err = open(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.filter.Close)
		if err := w.filter.Set(config); err != nil {
			t.Fatal(err)
		}
	})
	w.open()
	return w
}

// open is what no other program's rules close: others accept everything, before and after.
func (w *world) open() {
	w.host.Do(func() {
		for _, command := range []string{"iptables", "ip6tables"} {
			run(w.t, command, "-P", "FORWARD", "ACCEPT")
			run(w.t, command, "-I", "FORWARD", "-j", "ACCEPT")
			run(w.t, command, "-t", "nat", "-F")
			run(w.t, command, "-t", "nat", "-A", "POSTROUTING", "-o", "eth0", "-j", "MASQUERADE")
		}
		for from, to := range map[string]string{"8080": "web", "8081": "plain", "8082": "vault", "8083": "locked"} {
			run(w.t, "iptables", "-t", "nat", "-A", "PREROUTING", "-p", "tcp", "-d", "10.9.0.1", "--dport", from, "-j", "DNAT", "--to", w.addr[to]+":80")
			run(w.t, "ip6tables", "-t", "nat", "-A", "PREROUTING", "-p", "tcp", "-d", "fd00:9::1", "--dport", from, "-j", "DNAT", "--to", "["+w.addr[to+"/6"]+"]:80")
		}
	})
}

// serve answers at some ports, of all addresses or, so that answers to datagrams come from
// there, of these.
func serve(t *testing.T, ns *linktest.NS, addrs ...string) {
	if addrs == nil {
		addrs = []string{""}
	}
	for _, a := range addrs {
		serveAt(t, ns, a)
	}
}

func serveAt(t *testing.T, ns *linktest.NS, addr string) {
	ns.Do(func() {
		for _, port := range []string{":53", ":80", ":7947", ":7948"} {
			l, err := net.Listen("tcp", addr+port)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					c.Close()
				}
			}()
		}
		for _, port := range []string{":4789", ":4790"} {
			p, err := net.ListenPacket("udp", addr+port)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { p.Close() })
			go func() {
				b := make([]byte, 1<<16)
				for {
					n, from, err := p.ReadFrom(b)
					if err != nil {
						return
					}
					_, _ = p.WriteTo(b[:min(n, 10)], from)
				}
			}()
		}
	})
}

// reaches says whether somebody answers, at "host:port" of TCP, or of UDP with a datagram
// of so many bytes.
func reaches(ns *linktest.NS, to string, datagram int) bool {
	var c net.Conn
	var err error
	network := "tcp"
	if datagram > 0 {
		network = "udp"
	}
	const patience = 400 * time.Millisecond
	ns.Do(func() { c, err = net.DialTimeout(network, to, patience) })
	if err != nil {
		return false
	}
	defer c.Close()
	if datagram == 0 {
		return true
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	_, _ = c.Write(make([]byte, datagram))
	_, err = c.Read(make([]byte, 100))
	return err == nil
}

// cell is who may reach what.
type cell struct {
	from, to string
	port     int
	udp      int
	want     bool
}

func (w *world) check(cells ...cell) {
	w.t.Helper()
	var wait sync.WaitGroup
	for _, c := range cells {
		for _, family := range []string{"", "/6"} {
			ns := w.at[c.from]
			if c.from == "host" {
				ns = w.host
			}
			to := w.addr[c.to+family]
			switch c.to {
			case "host":
				to = map[string]string{"": "10.9.0.1", "/6": "fd00:9::1"}[family]
			case "second": // another address of the host's
				to = map[string]string{"": "10.9.0.77", "/6": "fd00:9::77"}[family]
			case "gateway": // vault's
				to = map[string]string{"": "10.128.4.1", "/6": "fd00:128:4::1"}[family]
			}
			to = net.JoinHostPort(to, strconv.Itoa(c.port))
			wait.Go(func() {
				got := false
				for range 3 { // the machine may be busy
					if got = reaches(ns, to, c.udp); got || !c.want {
						break
					}
				}
				if got != c.want {
					w.t.Errorf("%s to %s%s, %s (UDP %d): reached %v, want %v", c.from, c.to, family, to, c.udp, got, c.want)
				}
			})
		}
	}
	wait.Wait()
}

var matrix = []cell{
	// Not published: containers of networks apart, and whoever takes the host for a router.
	{"away", "web", 80, 0, false},
	{"plain", "web", 80, 0, false},
	{"locked", "web", 80, 0, false},
	{"host", "web", 80, 0, true},
	{"web", "plain", 80, 0, false},
	{"web", "locked", 80, 0, false},
	{"web", "away", 80, 0, true},
	{"web", "host", 80, 0, true},
	{"plain", "away", 80, 0, true},
	{"other", "web", 80, 0, true},
	{"other", "plain", 80, 0, false},
	// Internal networks.
	{"away", "vault", 80, 0, false},
	{"plain", "vault", 80, 0, false},
	{"locked", "vault", 80, 0, false},
	{"web", "vault", 80, 0, false},
	{"vault", "away", 80, 0, false},
	{"vault", "plain", 80, 0, false},
	{"vault", "locked", 80, 0, false},
	{"host", "vault", 80, 0, true},
	{"other", "vault", 80, 0, true},
	// Published.
	{"away", "host", 8080, 0, true},
	{"plain", "host", 8080, 0, true},
	{"locked", "host", 8080, 0, false},
	{"away", "host", 8081, 0, true},
	{"web", "host", 8081, 0, true},
	{"vault", "host", 8081, 0, false},
	{"away", "host", 8082, 0, false},
	{"plain", "host", 8082, 0, false},
	{"web", "host", 8083, 0, false},
	// What hosts say to each other, whole and in fragments; and what is beside it.
	{"plain", "vtep", 4789, 100, false},
	{"plain", "vtep", 4789, 4000, false},
	{"plain", "vtep", 4790, 4000, true},
	{"plain", "away", 4789, 100, true},
	{"web", "vtep", 4789, 100, false},
	{"web", "vtep", 4789, 4000, false},
	{"web", "vtep", 4790, 4000, true},
	{"plain", "vtep", 7947, 0, false},
	{"plain", "vtep", 7948, 0, true},
	{"web", "vtep", 7947, 0, false},
	{"web", "vtep", 7948, 0, true},
	// To the outside, where masquerading would make it this host's: of what goes by the switch,
	// which sees the port of whole packets alone.
	{"web", "away", 4789, 100, false},
	{"web", "away", 4789, 4000, false},
	{"web", "away", 4790, 4000, true},
	// At its own address a host behind NAT is the same to containers; it sends from another one.
	{"plain", "behind", 4789, 100, false},
	{"plain", "behind", 4789, 4000, false},
	{"plain", "behind", 4790, 4000, true},
	{"web", "behind", 4789, 100, false},
	{"plain", "behind", 7947, 0, false},
	{"vm", "behind", 4789, 100, false},
	{"host", "behind", 4789, 100, true},
	{"behind", "second", 4789, 100, true},
	{"plain", "host", 4789, 100, false},
	{"plain", "host", 4790, 100, true},
	{"web", "host", 4789, 4000, false},
	{"web", "host", 7947, 0, false},
	{"plain", "host", 7947, 0, false},
	{"plain", "host", 7948, 0, true},
	{"locked", "host", 7947, 0, false},
	{"away", "host", 7947, 0, true},
	// By another address of this host, and whoever is masqueraded; what is only routed is not.
	{"vtep", "second", 4789, 100, false},
	{"vtep", "second", 4789, 4000, false},
	{"vtep", "second", 4790, 100, true},
	{"away", "second", 4789, 100, true},
	{"vtep", "host", 4789, 100, true},
	{"vm", "vtep", 4789, 100, false},
	{"vm", "vtep", 4790, 100, true},
	{"vm", "vtep", 7947, 0, true},
	{"vm", "away", 4789, 100, true},
	// An internal network has its resolver, and nothing else, of its host.
	{"vault", "gateway", 80, 0, false},
	{"vault", "gateway", 53, 0, true},
	{"vault", "gateway", 4790, 100, false},
	{"vault", "second", 80, 0, false},
	{"vault", "host", 8080, 0, false},
	{"web", "second", 80, 0, true},
	{"host", "vtep", 4789, 4000, true},
	{"host", "vtep", 7947, 0, true},
}

func openFilter() (*Filter, error) { return Open(slog.New(slog.DiscardHandler)) }

func openLegacyFilter() (*Filter, error) {
	l, err := openLegacy()
	return &Filter{with: l, log: slog.New(slog.DiscardHandler)}, err
}

// TestPackets: real packets through both kinds of rules, while all others accept everything.
func TestPackets(t *testing.T) {
	for name, open := range map[string]func() (*Filter, error){"nftables": openFilter, "iptables": openLegacyFilter} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, open)
			w.check(matrix...)
			w.checkForged()
			if name == "nftables" {
				w.host.Do(func() { // people read it
					if set := run(t, "nft", "list", "set", "inet", lasting, closed); !strings.Contains(set, lockedBridge) {
						t.Errorf("nft lists\n%s", set)
					}
				})
			}
			w.checkOpen()
			w.host.Do(func() {
				if err := w.filter.Remove(); err != nil {
					t.Fatal(err)
				}
				if left := run(t, "nft", "list", "ruleset"); strings.Contains(strings.ToLower(left), "grapevine") {
					t.Errorf("Remove left\n%s", left)
				}
			})
			// And it was the filter that did it.
			w.check(cell{"away", "web", 80, 0, true}, cell{"plain", "web", 80, 0, true}, cell{"plain", "vtep", 4789, 4000, true})
		})
	}
}

// checkOpen: of a network that is open the outside reaches the containers, and nobody on a bridge of Docker's does. An
// internal one stays closed.
func (w *world) checkOpen() {
	w.t.Helper()
	cfg := config
	cfg.Open = []netip.Prefix{
		netip.MustParsePrefix("10.128.0.0/22"), netip.MustParsePrefix("fd00:128::/64"), netip.MustParsePrefix("10.128.4.0/22"), netip.MustParsePrefix("fd00:128:4::/64"),
	}
	w.host.Do(func() {
		if err := w.filter.Set(cfg); err != nil {
			w.t.Fatal(err)
		}
	})
	w.check(cell{"away", "web", 80, 0, true}, cell{"vm", "web", 80, 0, true}, cell{"plain", "web", 80, 0, false}, cell{"locked", "web", 80, 0, false},
		cell{"away", "vault", 80, 0, false}, cell{"web", "away", 80, 0, true}, cell{"host", "web", 80, 0, true})
	w.host.Do(func() {
		if err := w.filter.Set(config); err != nil {
			w.t.Fatal(err)
		}
	})
	w.check(cell{"away", "web", 80, 0, false})
}

// checkForged: a guest of the host that sends as another host gets nothing to the port of VXLAN
// of this one, at its VTEP either.
func (w *world) checkForged() {
	w.t.Helper()
	w.at["vm"].Do(func() {
		run(w.t, "ip", "addr", "replace", "10.9.0.3/32", "dev", "lo")
		run(w.t, "ip", "addr", "replace", "fd00:9::3/128", "dev", "lo", "nodad")
	})
	for from, host := range map[string]string{"10.9.0.3": "10.9.0.1", "fd00:9::3": "fd00:9::1"} {
		for port, want := range map[int]bool{4791: false, 4792: true} {
			var got net.PacketConn
			var err error
			at := net.JoinHostPort(host, strconv.Itoa(port))
			w.host.Do(func() { got, err = net.ListenPacket("udp", at) })
			if err != nil {
				w.t.Fatal(err)
			}
			send := func() {
				w.at["vm"].Do(func() {
					d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(from)}}
					var c net.Conn
					if c, err = d.Dial("udp", at); err == nil {
						_, err = c.Write([]byte("forged"))
						c.Close()
					}
				})
			}
			arrived := false
			for range 3 {
				if send(); err != nil {
					w.t.Fatal(err)
				}
				_ = got.SetReadDeadline(time.Now().Add(400 * time.Millisecond))
				if _, _, err = got.ReadFrom(make([]byte, 100)); err == nil {
					arrived = true
					break
				}
			}
			got.Close()
			if arrived != want {
				w.t.Errorf("as %s to %s: arrived %v, want %v", from, at, arrived, want)
			}
		}
	}
}

// TestFlushed: what another program flushes never opens anything, and comes back.
func TestFlushed(t *testing.T) {
	w := newWorld(t, openFilter)
	shut := []cell{{"away", "web", 80, 0, false}, {"plain", "web", 80, 0, false}, {"web", "plain", 80, 0, false}, {"plain", "vtep", 4789, 4000, false}}
	w.host.Do(func() { run(t, "nft", "flush", "ruleset") })
	w.open()
	w.check(shut...) // Run does not run
	there := func() bool {
		var err error
		w.host.Do(func() { _, err = exec.Command("nft", "list", "table", "inet", lasting).Output() })
		return err == nil
	}
	if there() {
		t.Fatal("the flush took nothing")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { _ = w.filter.Run(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	for _, how := range [][]string{nil, {"flush", "ruleset"}, {"delete", "table", "inet", lasting}, {"flush", "chain", "inet", lasting, "forward"}} {
		if how != nil {
			w.host.Do(func() { run(t, append([]string{"nft"}, how...)...) })
		}
		eventually(t, fmt.Sprint("the table is back after ", how), func() bool {
			w.filter.mu.Lock() // Run has it too
			whole, err := w.filter.with.whole()
			w.filter.mu.Unlock()
			return there() && whole && err == nil
		})
	}
}

// TestOutlivesTheAgent: what stays when the agent's process ends is enough, and the next
// one takes it over.
func TestOutlivesTheAgent(t *testing.T) {
	w := newWorld(t, openFilter)
	w.filter.Close()
	w.host.Do(func() {
		if left := run(t, "nft", "list", "tables"); !strings.Contains(left, "inet grapevine\n") || strings.Contains(left, ours) {
			t.Errorf("left are\n%s", left)
		}
	})
	w.check(cell{"away", "web", 80, 0, false}, cell{"plain", "web", 80, 0, false}, cell{"web", "away", 80, 0, true})
	w.host.Do(func() {
		next, err := openFilter()
		if err == nil {
			defer next.Close()
			err = next.Set(config)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}

// TestManyHosts: a cluster's worth of addresses fits.
func TestManyHosts(t *testing.T) {
	linktest.New(t).Do(func() {
		f, err := openFilter()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		big := config
		for i := range 3000 {
			big.VTEPs = append(big.VTEPs, netip.AddrFrom4([4]byte{10, 20, byte(i >> 8), byte(i)}))
			big.Internal = append(big.Internal, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(130 + i>>8), byte(i), 0}), 24))
		}
		if err := f.Set(big); err != nil {
			t.Fatal(err)
		}
		if got := run(t, "nft", "list", "set", "inet", lasting, "vteps4"); !strings.Contains(got, "10.20.11.183") {
			t.Error("the last one is not in it")
		}
	})
}

// TestChange: what is changed in place is what would have been made anew, the rules and their counters stay, and what somebody
// else has taken away meanwhile is made anew.
func TestChange(t *testing.T) {
	linktest.New(t).Do(func() {
		f, err := openFilter()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := f.Set(config); err != nil {
			t.Fatal(err)
		}
		with := f.with.(*tables)
		// Hash tables have no order: each word of a line of elements is its own.
		listing := func() string {
			var words []string
			for _, name := range []string{lasting, ours} {
				words = append(words, strings.Fields(run(t, "nft", "--stateless", "list", "table", "inet", name))...)
			}
			for i, w := range words {
				words[i] = strings.TrimSuffix(w, ",")
			}
			slices.Sort(words)
			return strings.Join(words, "\n")
		}
		tables := func() (which string) { // each that is made has a number of its own
			for _, name := range []string{lasting, ours} {
				first, _, _ := strings.Cut(run(t, "nft", "-a", "list", "table", "inet", name), "\n")
				which += first
			}
			return which
		}
		anew := func(cfg Config) string {
			with.handles = nil
			f.cfg = Config{}
			if err := f.Set(cfg); err != nil {
				t.Fatal(err)
			}
			return listing()
		}
		from := config
		change := func(what string, change func(*Config), stays bool) {
			t.Helper()
			cfg := from
			change(&cfg)
			wanted := anew(cfg)
			anew(from)
			before := tables()
			if err := f.Set(cfg); err != nil {
				t.Fatal(err)
			}
			if got := listing(); got != wanted {
				t.Errorf("%s: changed in place it is\n%s\nand made anew\n%s", what, got, wanted)
			}
			if same := tables() == before; same != stays {
				t.Errorf("%s: the tables stay: %v, want %v", what, same, stays)
			}
		}
		change("a guest more", func(c *Config) { c.Guests = []string{"virbr0", "gh0123456789ab"} }, true)
		change("another guest", func(c *Config) { c.Guests = []string{"tap7"} }, true)
		change("no guest", func(c *Config) { c.Guests = nil }, true)
		change("another host", func(c *Config) { c.VTEPs = append(slices.Clone(c.VTEPs), netip.MustParseAddr("10.9.0.77")) }, true)
		change("a subnet more", func(c *Config) { c.Internal = append(slices.Clone(c.Internal), netip.MustParsePrefix("10.128.8.0/22")) }, true)
		change("a subnet in another one", func(c *Config) { c.Internal = append(slices.Clone(c.Internal), netip.MustParsePrefix("10.0.0.0/8")) }, false)
		change("no VTEP of our own", func(c *Config) { c.Own = nil }, false)
		// Containers that leave by another host, side by side.
		at := func(last ...int) (list []netip.Prefix) {
			for _, n := range last {
				list = append(list, netip.MustParsePrefix(fmt.Sprintf("10.128.0.%d/32", n)), netip.MustParsePrefix(fmt.Sprintf("fd00::%d/128", n)))
			}
			return list
		}
		change("the first one that leaves by another host", func(c *Config) { c.Elsewhere = at(7) }, false)
		from.Elsewhere = at(7, 8)
		change("one more", func(c *Config) { c.Elsewhere = at(7, 8, 9) }, true)
		change("one less", func(c *Config) { c.Elsewhere = at(8) }, true)
		change("others", func(c *Config) { c.Elsewhere = at(6, 9) }, true)
		change("the last one is gone", func(c *Config) { c.Elsewhere = nil }, false)
		for _, taken := range []string{"delete table inet " + lasting, "flush set inet " + lasting + " guests", "flush ruleset"} {
			cfg := config
			cfg.Guests = []string{"tap8"}
			wanted := anew(cfg)
			anew(config)
			run(t, append([]string{"nft"}, strings.Fields(taken)...)...)
			if err := f.Set(cfg); err != nil {
				t.Fatal(err)
			}
			if got := listing(); got != wanted {
				t.Errorf("after %s it is\n%s\nand made anew\n%s", taken, got, wanted)
			}
		}
	})
}

// TestFails: a Filter whose rules cannot be set says so, and that none are in place.
func TestFails(t *testing.T) {
	f := &Filter{with: broken{}, log: slog.New(slog.DiscardHandler)}
	if err := f.Set(config); err == nil || f.InPlace() || f.Trouble() == nil {
		t.Errorf("%v, in place %v, trouble %v", err, f.InPlace(), f.Trouble())
	}
}

type broken struct{ backend }

func (broken) set(Config) error { return errors.New("no memory") }

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// TestNobodyWaits: while rules are being set, which may wait for iptables' lock, a Filter says at
// once how it is.
func TestNobodyWaits(t *testing.T) {
	w := waiting{begun: make(chan struct{}), end: make(chan struct{})}
	f := &Filter{with: w, log: slog.New(slog.DiscardHandler)}
	set := make(chan error)
	go func() { set <- f.Set(config) }()
	<-w.begun
	said := make(chan bool)
	go func() { said <- f.InPlace() || f.Trouble() != nil }()
	select {
	case wrong := <-said:
		if wrong {
			t.Error("rules are in place, or in trouble, before they are set")
		}
	case <-time.After(10 * time.Second):
		t.Error("it waits")
	}
	close(w.end)
	if err := <-set; err != nil || !f.InPlace() {
		t.Errorf("in place %v: %v", f.InPlace(), err)
	}
}

type waiting struct {
	backend
	begun, end chan struct{}
}

func (w waiting) set(Config) error {
	close(w.begun)
	<-w.end
	return nil
}
