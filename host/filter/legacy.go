package filter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grapevine-net/grapevine/host/nat"
)

// Chains of the table mangle, which come before those of filter. ACCEPT there ends the
// table only, and other programs hardly use it, for nothing that would end our chains.
const (
	chainForward = "GRAPEVINE-FORWARD"
	chainInput   = "GRAPEVINE-INPUT"
	chainVTEPs   = "GRAPEVINE-VTEPS"
	chainRouter  = "GRAPEVINE-ROUTER"
	chainOwn     = "GRAPEVINE-OWN"
	chainHosts   = "GRAPEVINE-HOSTS"
	chainBefore  = "GRAPEVINE-PREROUTING"
	chainAway    = "GRAPEVINE-AWAY"
	chainOutside = "GRAPEVINE-OUTSIDE"
	chainClaimed = "GRAPEVINE-CLAIMED"
	chainForged  = "GRAPEVINE-FORGED"
)

var chains = []string{chainForward, chainInput, chainBefore, chainVTEPs, chainRouter, chainOwn, chainHosts, chainAway, chainOutside, chainClaimed}

// hooks are the built-in chains that begin with ours.
var hooks = []string{"FORWARD", "INPUT", "PREROUTING"}

// legacy is the backend of iptables, for kernels without nf_tables.
type legacy struct {
	commands []string // iptables, and ip6tables if the kernel has it
	have     map[string]string
	cheap    bool              // changes show in the shapes of the tables
	shapes   map[string]string // as they were last looked at
}

func openLegacy() (*legacy, error) {
	l := &legacy{have: map[string]string{}, shapes: map[string]string{}, cheap: nat.Legacy()}
	if _, err := iptables("iptables", "", "-t", "mangle", "-S"); err != nil {
		return nil, err
	}
	l.commands = []string{"iptables"}
	if _, err := iptables("ip6tables", "", "-t", "mangle", "-S"); err == nil {
		l.commands = append(l.commands, "ip6tables")
	}
	return l, nil
}

func iptables(name, input string, args ...string) (string, error) {
	cmd := exec.Command(name, append([]string{"-w", "5"}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", cmd, err, bytes.TrimSpace(out))
	}
	return string(out), nil
}

func (l *legacy) set(cfg Config) error {
	if cfg.Encrypted != "" {
		return errNotStrict
	}
	if cfg.IPsec {
		return errNoTables
	}
	for _, command := range l.commands {
		v6 := command == "ip6tables"
		if err := forged(command); err != nil {
			return err
		}
		if _, err := iptables(command+"-restore", script(cfg, v6, true), "--noflush"); err != nil {
			if _, err := iptables(command+"-restore", script(cfg, v6, false), "--noflush"); err != nil {
				return err
			}
		}
		for _, hook := range hooks {
			if err := first(command, hook, "GRAPEVINE-"+hook); err != nil {
				return err
			}
		}
		saved, err := mangle(command)
		if err != nil {
			return err
		}
		l.have[command] = saved
	}
	return nil
}

// forged makes the chain that drops who claims an address. It is not made anew with the others, so that it goes on counting.
func forged(command string) error {
	rule := []string{chainForged, "-j", "DROP"}
	if _, err := iptables(command, "", append([]string{"-t", "mangle", "-C"}, rule...)...); err == nil {
		return nil
	}
	_, _ = iptables(command, "", "-t", "mangle", "-N", chainForged) // it may be there, and be empty
	_, err := iptables(command, "", append([]string{"-t", "mangle", "-A"}, rule...)...)
	return err
}

func (l *legacy) refused(chain string) (list []Refused, err error) {
	if chain != "" && chain != ClaimedIn {
		return nil, nil
	}
	sum := Refused{Chain: ClaimedIn, Comment: "nobody outside has an address of the cluster's, to this host or by it"}
	for _, command := range l.commands {
		lines, err := iptables(command, "", "-t", "mangle", "-v", "-S", chainForged)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(lines) {
			var packets, bytes uint64
			if n, _ := fmt.Sscanf(line, "-A "+chainForged+" -c %d %d -j DROP", &packets, &bytes); n == 2 {
				sum.Packets, sum.Bytes = sum.Packets+packets, sum.Bytes+bytes
			}
		}
	}
	if sum.Packets == 0 {
		return nil, nil
	}
	return []Refused{sum}, nil
}

// first makes the jump to a chain the first rule of a built-in one. It is added before an
// earlier one is removed.
func first(command, hook, chain string) error {
	lines, err := iptables(command, "", "-t", "mangle", "-S", hook)
	if err != nil {
		return err
	}
	jump := "-A " + hook + " -j " + chain
	rules := slices.DeleteFunc(strings.Split(strings.TrimSpace(lines), "\n"), func(l string) bool { return !strings.HasPrefix(l, "-A ") })
	if len(rules) == 0 || rules[0] != jump {
		if _, err := iptables(command, "", "-t", "mangle", "-I", hook, "1", "-j", chain); err != nil {
			return err
		}
		rules = append([]string{jump}, rules...)
	}
	for i := len(rules) - 1; i > 0; i-- {
		if rules[i] == jump {
			if _, err := iptables(command, "", "-t", "mangle", "-D", hook, strconv.Itoa(i+1)); err != nil {
				return err
			}
		}
	}
	return nil
}

// mangle is the table as far as it is ours.
func mangle(command string) (string, error) {
	all, err := iptables(command, "", "-t", "mangle", "-S")
	var b strings.Builder
	for line := range strings.Lines(all) {
		if strings.Contains(line, "GRAPEVINE-") || slices.ContainsFunc(hooks, func(hook string) bool { return strings.HasPrefix(line, "-A "+hook+" ") }) {
			b.WriteString(line)
		}
	}
	return b.String(), err
}

func (l *legacy) whole() (bool, error) {
	for _, command := range l.commands {
		shape := ""
		if l.cheap {
			if s, err := nat.Shape(command == "ip6tables", "mangle"); err == nil && s == l.shapes[command] {
				continue // no program is run for what has not changed
			} else if err == nil {
				shape = s
			}
		}
		now, err := mangle(command)
		if err != nil || now != l.have[command] {
			return false, err
		}
		l.shapes[command] = shape
	}
	return true, nil
}

// wait: the kernel tells nobody of a change.
func (l *legacy) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-time.After(2 * time.Second):
	}
	return nil
}

func (l *legacy) remove() error {
	var errs []error
	for _, command := range l.commands {
		for _, hook := range hooks {
			for {
				if _, err := iptables(command, "", "-t", "mangle", "-D", hook, "-j", "GRAPEVINE-"+hook); err != nil {
					break // none is left
				}
			}
		}
		now, err := mangle(command)
		errs = append(errs, err)
		for _, verb := range []string{"-F", "-X"} {
			for _, c := range append(slices.Clone(chains), chainForged) {
				if strings.Contains(now, "-N "+c+"\n") {
					_, err := iptables(command, "", "-t", "mangle", verb, c)
					errs = append(errs, err)
				}
			}
		}
	}
	return errors.Join(errs...)
}

func (l *legacy) close() {}

// script has iptables-restore make the chains, all at once: the rules of forward, where a
// chain takes the place of each set; way: the kernel has the matches rpfilter and addrtype. After NAT there is no
// table to drop in: so what is forwarded to the VXLAN port of a host, from who is none, is
// dropped before, masqueraded or not.
func script(cfg Config, v6, way bool) string {
	var b strings.Builder
	b.WriteString("*mangle\n")
	for _, c := range chains {
		fmt.Fprintf(&b, ":%s - [0:0]\n", c)
	}
	add := func(chain, rule string, args ...any) { fmt.Fprintf(&b, "-A "+chain+" "+rule+"\n", args...) }
	gv, all := cfg.Interface, append([]string{cfg.Interface}, cfg.Bridges...)
	of := func(all []netip.Prefix) (out []netip.Prefix) {
		for _, p := range all {
			if p.Addr().Is6() == v6 {
				out = append(out, p)
			}
		}
		return out
	}
	family := func(all []netip.Addr) []netip.Addr {
		return slices.DeleteFunc(slices.Clone(all), func(a netip.Addr) bool { return a.Is6() != v6 })
	}
	for _, p := range of(cfg.Claimed) {
		add(chainClaimed, "-s %v -j %s", p, chainForged)
	}
	for _, dev := range append([]string{"lo"}, all...) {
		add(chainOutside, "-i %s -j RETURN", dev)
	}
	add(chainOutside, "-j %s", chainClaimed)
	add(chainInput, "-j %s", chainOutside)
	add(chainForward, "! -i %s -o %s -j %s", gv, gv, chainClaimed)
	if v6 && way {
		add(chainForward, "! -i %s -o %s -m addrtype --src-type LOCAL -j %s", gv, gv, chainForged)
	}
	addrs := family(cfg.VTEPs)
	for _, a := range addrs {
		add(chainRouter, "-s %v -j RETURN", a)
	}
	for _, a := range family(cfg.reached()) {
		add(chainVTEPs, "-d %v -j DROP", a)
		add(chainRouter, "-d %v -j DROP", a)
	}
	for _, proto := range []string{"tcp", "udp"} {
		for _, p := range cfg.Ports {
			for _, dev := range all {
				add(chainForward, "-i %s -p %s -m %s --dport %d -j %s", dev, proto, proto, p, chainVTEPs)
				add(chainInput, "-i %s -p %s -m %s --dport %d -j DROP", dev, proto, proto, p)
			}
		}
	}
	for _, tunnel := range cfg.tunnels() {
		add(chainForward, "-i %s ! -o %s %s -j DROP", gv, gv, tunnel)
		add(chainForward, "%s -j %s", tunnel, chainRouter)
	}
	if cfg.GRE {
		for _, dev := range all {
			add(chainForward, "-i %s %s -j %s", dev, ofGRE, chainVTEPs)
			add(chainInput, "-i %s %s -j DROP", dev, ofGRE)
		}
	}
	guardOwn(add, cfg, addrs, v6, way)
	for _, p := range of(cfg.Internal) {
		icmp := "icmp"
		if v6 {
			icmp = "ipv6-icmp"
		}
		closed := fmt.Sprintf("-s %v -i %s", p, gv)
		add(chainInput, "%s -m conntrack --ctstate RELATED,ESTABLISHED -j RETURN", closed)
		for _, port := range cfg.Names {
			for _, proto := range []string{"tcp", "udp"} {
				add(chainInput, "%s -p %s -m %s --dport %d -j RETURN", closed, proto, proto, port)
			}
		}
		add(chainInput, "%s -p %s -j RETURN", closed, icmp)
		add(chainInput, "%s -j DROP", closed)
	}
	if !v6 { // ip6tables has fragments put together by conntrack, and often no match for them
		for _, dev := range all {
			add(chainForward, "-i %s -f -j %s", dev, chainVTEPs)
		}
	}
	for _, p := range of(cfg.Internal) {
		for _, h := range of(cfg.Hosts) {
			add(chainForward, "-s %v -d %v -i %s -o %s -j RETURN", h, p, gv, gv)
		}
		add(chainForward, "-d %v -o %s -j DROP", p, gv)
		add(chainForward, "-s %v -i %s ! -o %s -j DROP", p, gv, gv)
	}
	for _, dev := range cfg.Closed {
		add(chainForward, "-i %s -o %s -j DROP", dev, gv)
		add(chainForward, "-i %s -o %s -j DROP", gv, dev)
	}
	for _, p := range of(cfg.Internal) {
		add(chainForward, "-s %v -i %s -m conntrack ! --ctstate RELATED,ESTABLISHED -j DROP", p, gv)
	}
	const known = "-m conntrack --ctstate RELATED,ESTABLISHED,DNAT"
	add(chainForward, "-o %s %s -j RETURN", gv, known)
	for _, h := range of(cfg.Hosts) {
		add(chainForward, "-s %v -i %s -o %s -j RETURN", h, gv, gv)
	}
	if open := of(cfg.Open); len(open) > 0 {
		for _, dev := range all { // of containers, by whichever bridge
			add(chainForward, "-i %s -o %s -j DROP", dev, gv)
		}
		for _, p := range open {
			add(chainForward, "-d %v -o %s -j RETURN", p, gv)
		}
	}
	add(chainForward, "-o %s -j DROP", gv)
	for _, dev := range cfg.Bridges {
		add(chainForward, "-i %s -o %s %s -j RETURN", gv, dev, known)
		add(chainForward, "-i %s -o %s -j DROP", gv, dev)
	}
	b.WriteString("COMMIT\n")
	return b.String()
}

// ofGRE is what iptables(8) calls all of GRE, in fragments too.
const ofGRE = "-p 47"

func toUDP(port uint16) string { return fmt.Sprintf("-p udp -m udp --dport %d", port) }

// tunnels is what is for the tunnel of a host, each port and kind of it.
func (c Config) tunnels() (list []string) {
	for _, p := range c.VXLANs {
		list = append(list, toUDP(p))
	}
	if c.GRE {
		list = append(list, ofGRE)
	}
	return list
}

// guardOwn are the rules of who sends VXLAN to this host by another address than its VTEP, and
// of guests who send as a host.
func guardOwn(add func(chain, rule string, args ...any), cfg Config, vteps []netip.Addr, v6, way bool) {
	for _, a := range cfg.Own {
		if a.Is6() == v6 {
			add(chainOwn, "-d %v -j RETURN", a)
		}
	}
	for _, a := range vteps {
		add(chainHosts, "-s %v -j %s", a, chainOwn)
		add(chainAway, "-s %v -j DROP", a)
	}
	add(chainOwn, "-j DROP")
	if len(cfg.Own) > 0 {
		to := ofGRE
		if cfg.VXLAN != 0 {
			to = toUDP(cfg.VXLAN)
		}
		add(chainInput, "%s -j %s", to, chainHosts)
	}
	if !way {
		return
	}
	for _, dev := range cfg.Guests {
		for _, tunnel := range cfg.tunnels() {
			add(chainBefore, "-i %s %s -m rpfilter --invert -j %s", dev, tunnel, chainAway)
		}
	}
}
