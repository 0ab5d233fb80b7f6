package fastpath

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/host/bypass"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
)

// judgedHosts are twoHosts of which packets are direct while no rule of either is against it.
func judgedHosts(t *testing.T) (a, b *host) {
	a, b = twoHosts(t)
	for h, vtep := range map[*host]string{a: "10.9.0.1", b: "10.9.0.2"} {
		h.path.cfg.Underlay = Underlay{Device: "eth0", VTEP: addrs(vtep)[0], Port: vxlanPort}
		h.Do(func() { must(t, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)) })
		h.judge()
	}
	for _, h := range []*host{a, b} {
		h.eventuallyDirect("")
	}
	if n := a.ping("10.128.1.7", 56); n != 5 { // the hosts know each other's MAC addresses now
		t.Fatalf("%d of 5 pings were answered", n)
	}
	return a, b
}

// judge begins what the agent does in that mode.
func (h *host) judge() {
	h.t.Helper()
	l := bypass.NewLookout(AtNIC, bypass.Tell{Withdraw: func() { must(h.t, h.path.Withdraw()) }, Again: func() { h.apply() }, Renew: h.path.Renew}, func(err error) { h.t.Error(err) })
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Add(1)
	go func() {
		defer ended.Done()
		h.Do(func() { l.Run(ctx) })
	}()
	h.t.Cleanup(func() { cancel(); ended.Wait() })
	h.path.cfg.Judge, h.path.cfg.Ports = l.Judge, l.Ports
	h.Do(func() { must(h.t, h.path.StartJudged()) })
	h.apply()
}

// eventuallyDirect waits until packets are direct; against: until they are not, for such a reason.
func (h *host) eventuallyDirect(against string) {
	h.t.Helper()
	ovstest.Eventually(h.t, 30*time.Second, func() error {
		err := h.path.Direct()
		switch {
		case against == "":
			if err == nil && !h.atNIC() {
				err = errors.New("there is no program at the NIC")
			}
			return err
		case err == nil || !strings.Contains(err.Error(), against):
			return fmt.Errorf("it is not %q that is against it, but: %w", against, err)
		}
		return nil
	})
}

// A rule that comes under traffic is obeyed as it would be without the fast path, of whatever framework it is; when it goes,
// packets are direct again.
func TestJudgedObeysRules(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes half a minute")
	}
	a, b := judgedHosts(t)
	before := a.byTunnel()
	if n := a.ping("10.128.1.7", 56); n != 5 {
		t.Fatalf("%d of 5 pings were answered", n)
	}
	if n := a.byTunnel() - before; n != 0 {
		t.Fatalf("%d packets went by the VXLAN device", n)
	}
	for _, c := range []struct {
		name          string
		at            *host
		add, remove   string
		against       string
		stillAnswered bool
	}{
		{"iptables on nf_tables, in", b, "iptables-nft -I INPUT -p udp --dport 4789 -j DROP", "iptables-nft -D INPUT 1", "rule 1 (handle", false},
		{"iptables on nf_tables, out", a, "iptables-nft -t mangle -A POSTROUTING -o eth0 -p udp -j DROP", "iptables-nft -t mangle -F", "table mangle drops sent", false},
		{"the policy of iptables", b, "iptables-nft -P INPUT DROP", "iptables-nft -P INPUT ACCEPT", "the policy of chain INPUT", false},
		{"iptables-legacy", b, "iptables-legacy -I INPUT -p udp --dport 4789 -j DROP", "iptables-legacy -F", "iptables-legacy has rules", false},
		{"the policy of iptables-legacy", b, "iptables-legacy -P INPUT DROP", "iptables-legacy -P INPUT ACCEPT", "iptables-legacy has rules", false},
		{"nft", a, "nft add table inet t; nft add chain inet t o '{ type filter hook output priority 0; }'; nft add rule inet t o udp dport 4789 drop", "nft delete table inet t", "chain o of table t drops", false},
		{"nft at the NIC", b, "nft add table netdev t; nft add chain netdev t i '{ type filter hook ingress device eth0 priority 0; }'; nft add rule netdev t i udp dport 4789 drop", "nft delete table netdev t", "is at the interface eth0", false},
		{"nft at the NIC, leaving", a, "nft add table netdev t; nft add chain netdev t o '{ type filter hook egress device eth0 priority 0; }'; nft add rule netdev t o ip protocol udp drop", "nft delete table netdev t", "is at the interface eth0", false},
		{"a set", b, "nft 'table inet t { set bad { type ipv4_addr; }; chain i { type filter hook input priority 0; ip saddr @bad drop; }; }'; nft add element inet t bad '{ 10.9.0.1 }'", "nft delete table inet t", "chain i of table t drops", false},
		{"as ufw sets rules", b, `printf '*filter\n:user-input - [0:0]\n-A user-input -p udp --dport 4789 -j DROP\n-I INPUT -j user-input\nCOMMIT\n' | iptables-nft-restore -n`, "iptables-nft -F; iptables-nft -X", "chain user-input of table filter drops", false},
		{"as firewalld sets rules", b, `printf 'table inet firewalld\ndelete table inet firewalld\ntable inet firewalld {\nchain filter_INPUT {\ntype filter hook input priority filter + 10; policy accept;\nct state { established, related } accept\niifname "lo" accept\nreject with icmpx admin-prohibited\n}\n}\n' | nft -f -`, "nft delete table inet firewalld", "chain filter_INPUT of table firewalld refuses", false},
		{"it is only logged", b, "iptables-nft -I INPUT -p udp --dport 4789 -j LOG", "iptables-nft -F INPUT", "does LOG to", true},
		{"rp_filter", b, "ip route add 10.9.0.1 dev gvvxlan; sysctl -qw net.ipv4.conf.eth0.rp_filter=1", "sysctl -qw net.ipv4.conf.eth0.rp_filter=0; ip route del 10.9.0.1 dev gvvxlan", "rp_filter", false},
		{"a tc filter", b, "", "tc qdisc del dev eth0 clsact", "a tc filter", false},
		{"IPsec", b, "ip xfrm policy add dir in src 10.9.0.1/32 tmpl proto esp mode transport", "ip xfrm policy flush", "IPsec policy", false},
		{"IPsec's default", b, "ip xfrm policy setdefault in block", "ip xfrm policy setdefault in accept", "IPsec drops what no policy is for", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			passed := underTraffic(t, a, func() {
				if c.add != "" {
					run(t, c.at.NS, c.add)
					return
				}
				c.at.Do(func() { must(t, link.Consume("eth0")) }) // a filter by which nothing reaches the host's stack
			})
			t.Logf("%s: %d packets, 1 ms apart, were answered after the command had ended", c.name, passed)
			c.at.eventuallyDirect(c.against)
			n := a.ping("10.128.1.7", 56)
			if n != 0 && !c.stillAnswered || n != 5 && c.stillAnswered {
				t.Errorf("%d of 5 pings were answered", n)
			}
			run(t, c.at.NS, c.remove)
			c.at.eventuallyDirect("")
			before := c.at.byTunnel()
			if n := a.ping("10.128.1.7", 56); n != 5 {
				t.Errorf("%d of 5 pings were answered in the end", n)
			}
			if n := c.at.byTunnel() - before; n != 0 {
				t.Errorf("%d packets went by the VXLAN device in the end", n)
			}
		})
	}
}

// underTraffic pings a thousand times a second for a second or two, in which f runs, and returns how many of what was sent
// behind that were answered.
func underTraffic(t *testing.T, a *host, f func()) (passed int) {
	t.Helper()
	var out []byte
	started, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		a.container.Do(func() {
			c := exec.Command("ping", "-D", "-i", "0.001", "-w", "1", "10.128.1.7")
			pipe, err := c.StdoutPipe()
			must(t, err)
			must(t, c.Start())
			buf := make([]byte, 1<<16)
			for begun := false; ; {
				n, err := pipe.Read(buf)
				out = append(out, buf[:n]...)
				if !begun && strings.Contains(string(out), "bytes from") {
					begun = true
					close(started)
				}
				if err != nil {
					break
				}
			}
			_ = c.Wait()
		})
	}()
	<-started
	f()
	end := float64(time.Now().UnixMicro()) / 1e6
	<-done
	for line := range strings.Lines(string(out)) {
		var at, rtt float64
		if _, err := fmt.Sscanf(line, "[%f]", &at); err != nil || !strings.Contains(line, "bytes from") {
			continue
		}
		if _, text, found := strings.Cut(line, "time="); found {
			_, _ = fmt.Sscanf(text, "%f", &rtt)
		}
		if at-rtt/1e3 > end {
			passed++
		}
	}
	return passed
}

// What others add that has nothing to do with VXLAN makes no difference, but for a moment.
func TestJudgedBesideOthers(t *testing.T) {
	a, _ := judgedHosts(t)
	run(t, a.NS, "iptables-nft -A INPUT -p tcp --dport 22 -j DROP; iptables-nft -t nat -A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE; iptables-nft -A INPUT -p udp -j ACCEPT")
	a.eventuallyDirect("")
	before := a.byTunnel()
	if n := a.ping("10.128.1.7", 56); n != 5 {
		t.Errorf("%d of 5 pings were answered", n)
	}
	if n := a.byTunnel() - before; n != 0 {
		t.Errorf("%d packets went by the VXLAN device", n)
	}
}

// Without an agent nobody hears of rules: packets take the VXLAN device, and go on.
func TestJudgedEndsWithTheAgent(t *testing.T) {
	a, b := judgedHosts(t)
	for _, h := range []*host{a, b} {
		must(t, h.path.Close())
	}
	for _, h := range []*host{a, b} {
		ovstest.Eventually(t, 10*time.Second, func() error { // the kernel closes maps some time after
			before := h.byTunnel()
			if n := a.ping("10.128.1.7", 56); n != 5 {
				t.Errorf("%d of 5 pings were answered", n)
			}
			if n := h.byTunnel() - before; n != 10 {
				return fmt.Errorf("%d of 10 packets went by the VXLAN device", n)
			}
			return nil
		})
	}
}

// A change that is heard of while rules are read makes what was read void, and waits for nobody.
func TestWithdrawnWhileJudging(t *testing.T) {
	a, _ := twoHosts(t)
	a.path.cfg.Underlay = Underlay{Device: "eth0", VTEP: addrs("10.9.0.1")[0], Port: vxlanPort}
	a.Do(func() { must(t, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)) })
	changes := true
	a.path.cfg.Judge = func(bypass.Traffic) error {
		if changes {
			withdrawn := make(chan error, 1)
			go func() { withdrawn <- a.path.Withdraw() }()
			select {
			case err := <-withdrawn:
				must(t, err)
			case <-time.After(20 * time.Second):
				t.Error("packets are not taken back while rules are read")
			}
		}
		return nil
	}
	inForce := func() bool {
		t.Helper()
		var c configValue
		must(t, a.path.objs.GvConfig.Lookup(uint32(0), &c))
		return c.Judged != 0
	}
	a.Do(func() { must(t, a.path.StartJudged()) })
	a.apply()
	if err := a.path.Direct(); !errors.Is(err, bypass.ErrLooking) || inForce() {
		t.Errorf("packets are direct by what was read before a change (%v)", err)
	}
	changes = false
	a.apply()
	if err := a.path.Direct(); err != nil || !inForce() {
		t.Errorf("packets are not direct: %v", err)
	}
	must(t, a.path.Withdraw())
	if err := a.path.Direct(); !errors.Is(err, bypass.ErrLooking) || inForce() {
		t.Errorf("packets are direct behind a change (%v)", err)
	}
}

// passing makes packets of a host direct for as long as Renew is called, whatever its rules are.
func passing(t *testing.T) (a *host) {
	a, _ = twoHosts(t)
	a.path.cfg.Underlay = Underlay{Device: "eth0", VTEP: addrs("10.9.0.1")[0], Port: vxlanPort}
	a.Do(func() { must(t, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)) })
	a.path.cfg.Judge = func(bypass.Traffic) error { return nil }
	a.Do(func() { must(t, a.path.StartJudged()) })
	return a
}

// What changes after a pass has begun, and before it asks for a judgement, makes void what it has read.
func TestWithdrawnWhileWidening(t *testing.T) {
	a := passing(t)
	device, asked := a.path.cfg.Device, false
	a.path.cfg.Device = func(endpoint string) string {
		if !asked {
			must(t, a.path.Withdraw())
		}
		return device(endpoint)
	}
	a.path.cfg.Judge = func(bypass.Traffic) error {
		asked = true
		return nil
	}
	a.apply()
	if err := a.path.Direct(); !errors.Is(err, bypass.ErrLooking) {
		t.Errorf("packets are direct by what was read before a change (%v)", err)
	}
	a.path.cfg.Device = device
	a.apply()
	if err := a.path.Direct(); err != nil {
		t.Errorf("packets are not direct: %v", err)
	}
}

// An agent that is stopped hears of no rule: packets take the VXLAN device then. When it goes on, it judges anew first.
func TestLeaseEnds(t *testing.T) {
	a := passing(t)
	a.apply()
	if n := a.ping("10.128.1.7", 56); n != 5 {
		t.Fatalf("%d of 5 pings were answered", n)
	}
	ovstest.Eventually(t, 30*time.Second, func() error {
		must(t, a.path.Withdraw())
		a.apply()
		if before := a.byTunnel(); a.ping("10.128.1.7", 56) != 5 || a.byTunnel() != before {
			return errors.New("packets go by the VXLAN device at first")
		}
		return nil
	})
	ovstest.Eventually(t, 30*time.Second, func() error {
		before := a.byTunnel()
		if n := a.ping("10.128.1.7", 56); n != 5 {
			t.Errorf("%d of 5 pings were answered", n)
		}
		if n := a.byTunnel() - before; n != 10 {
			return fmt.Errorf("%d of 10 packets went by the VXLAN device", n)
		}
		return nil
	})
	a.apply()
	if err := a.path.Direct(); err == nil {
		t.Error("packets are direct again by a judgement of before")
	}
	if a.path.Renew() {
		t.Error("nobody is told that the lease had ended")
	}
	must(t, a.path.Withdraw())
	a.apply()
	if err := a.path.Direct(); err != nil || !a.path.Renew() {
		t.Errorf("packets are not direct, or for no time: %v", err)
	}
}

// Where a change cannot be told to the programs they are taken out.
func TestWithdrawFails(t *testing.T) {
	a := passing(t)
	a.apply()
	a.ping("10.128.1.7", 56) // the hosts know each other's MAC addresses now
	must(t, a.path.Withdraw())
	a.apply()
	broken := *a.path.objs
	config, err := broken.GvConfig.Clone()
	must(t, err)
	must(t, config.Close())
	broken.GvConfig = config
	whole := a.path.word.objs
	a.path.word.objs = &broken
	if err := a.path.Withdraw(); err == nil {
		t.Fatal("a map that is closed was written")
	}
	before := a.byTunnel()
	if n := a.ping("10.128.1.7", 56); n != 5 {
		t.Errorf("%d of 5 pings were answered", n)
	}
	if n := a.byTunnel() - before; n != 10 {
		t.Errorf("%d of 10 packets went by the VXLAN device", n)
	}
	if a.path.Renew() {
		t.Error("the lease is renewed")
	}
	a.path.word.objs = whole
	must(t, a.path.Withdraw())
	a.apply()
	if err := a.path.Direct(); err != nil {
		t.Errorf("packets are not direct in the end: %v", err)
	}
}
