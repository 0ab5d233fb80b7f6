package doctor

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
)

// packets are those of a cluster of two.
func packets() []Packet {
	own, other := addr("192.0.2.1"), addr("192.0.2.2")
	return []Packet{
		{Chain: "FORWARD", In: "gv0", Out: "eth0", Src: addr("10.128.0.1"), Dst: own, Proto: "tcp", For: "what containers send to the outside"},
		{Chain: "INPUT", In: "eth0", Src: other, Dst: own, Proto: "tcp", Port: 7947, For: "gossip from h2"},
		{Chain: "INPUT", In: "eth0", Src: other, Dst: own, Proto: "udp", Port: 4789, For: "VXLAN from h2"},
		{Chain: "OUTPUT", Out: "eth0", Src: own, Dst: other, Proto: "udp", Port: 4789, For: "VXLAN to h2"},
	}
}

func TestRules(t *testing.T) {
	const open = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n"
	const shut = "*filter\n:INPUT DROP [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n"
	const gv = ":GRAPEVINE-FORWARD - [0:0]\n-A FORWARD -j GRAPEVINE-FORWARD\n-A GRAPEVINE-FORWARD -o gv0 -m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j ACCEPT\n" +
		"-A GRAPEVINE-FORWARD -o gv0 -j DROP\n-A GRAPEVINE-FORWARD -i gv0 -j ACCEPT\n"
	for _, tt := range []struct {
		rules string
		wrong []string // words of each complaint
	}{
		{open, nil},
		{open + gv, nil},
		{shut + gv, []string{"gossip from h2 (TCP port 7947) would be dropped by the policy of INPUT", "VXLAN from h2"}},
		{shut, []string{"what containers send to the outside would be dropped by the policy of FORWARD", "gossip", "VXLAN"}},
		{shut + gv + "-A INPUT -p tcp -m tcp --dport 7947 -j ACCEPT\n-A INPUT -p udp -m multiport --dports 4789,7947 -j ACCEPT\n", nil},
		{shut + gv + "-A INPUT -p tcp --dport 7000:8000 -j ACCEPT\n-A INPUT ! -i lo -p udp -s 192.0.2.0/24 -j ACCEPT\n", nil},
		{shut + gv + "-A INPUT -i lo -j ACCEPT\n-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n-A INPUT -m set --match-set friends src -j ACCEPT\n", []string{"gossip", "VXLAN"}},
		{open + "-A OUTPUT -d 192.0.2.2/32 -p udp -m udp --dport 4789 -m comment --comment \"no DROP -j ACCEPT here\" -j REJECT --reject-with icmp-port-unreachable\n", []string{"VXLAN to h2"}},
		{open + "-A OUTPUT -d 192.0.2.3/32 -j DROP\n-A INPUT -i eth1 -j DROP\n-A INPUT -p icmp -j DROP\n-A INPUT -m limit --limit 3/min -j DROP\n", nil},
		{open + gv + "-I x\n-A FORWARD -j DROP\n", nil},
		{open + "-A FORWARD -i gv0 -j DROP\n" + gv, []string{"dropped by -A FORWARD -i gv0 -j DROP"}},
		{open + ":MINE - [0:0]\n-A INPUT -j MINE\n-A INPUT -j DROP\n-A MINE -s 192.0.2.2/32 -j RETURN\n-A MINE -j ACCEPT\n", []string{"gossip", "VXLAN"}},
	} {
		var complaints []string
		for _, c := range (Firewall{Saved: []string{tt.rules}}).Judge(packets(), true) {
			if c.Verdict == api.Wrong {
				complaints = append(complaints, c.What)
			}
		}
		if len(complaints) != len(tt.wrong) {
			t.Errorf("%s\n%q, want %q", tt.rules, complaints, tt.wrong)
			continue
		}
		for i, words := range tt.wrong {
			if !strings.Contains(complaints[i], words) {
				t.Errorf("%s\n%q, want %q", tt.rules, complaints, tt.wrong)
			}
		}
	}
}

// TestOtherFirewalls: the testdata are rules of the form that ufw and firewalld make.
func TestOtherFirewalls(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	ufw := read("ufw.rules")
	expect(t, Firewall{Saved: []string{ufw}}.Judge(packets(), true), "firewall", api.Wrong, "VXLAN from h2", "ufw allow 4789/udp")
	allowed := strings.Replace(ufw, "-A ufw-user-input -p tcp -m tcp --dport 22 -j ACCEPT",
		"-A ufw-user-input -p udp -m udp --dport 4789 -j ACCEPT\n-A ufw-user-input -p tcp -m tcp --dport 7947 -j ACCEPT", 1)
	for _, c := range (Firewall{Saved: []string{allowed}}).Judge(packets()[1:], true) {
		if c.Verdict != api.OK {
			t.Errorf("ufw that allows our ports: %+v", c)
		}
	}

	// firewalld forwards nothing that is not in a zone that says so.
	daemon := Firewall{NFT: read("firewalld.nft")}
	expect(t, daemon.Judge(packets(), false), "firewall", api.Wrong, "VXLAN from h2 (UDP port 4789) would be dropped by nft's table inet firewalld", "firewall-cmd --permanent --add-port=4789/udp")
	const forward = "what containers send to the outside would be dropped by nft's table inet firewalld, chain filter_FORWARD"
	expect(t, daemon.Judge(packets(), true), "firewall", api.Wrong, forward, "--zone=trusted --add-interface=gv0")
	if checks := daemon.Judge(packets(), true); len(checks) != 1 { // probes have shown better than the rest
		t.Errorf("beside what is forwarded: %+v", checks)
	}
	daemon.NFT = strings.Replace(daemon.NFT, "tcp dport 22 accept", "udp dport { 4789, 7947 } accept\n\t\ttcp dport 7947 accept", 1)
	expect(t, daemon.Judge(packets()[1:], false), "firewall", api.OK)
	daemon.NFT += "table inet grapevine {\n\tchain forward {\n\t\ttype filter hook forward priority filter - 10; policy accept;\n\t\toifname \"gv0\" counter packets 0 bytes 0 drop\n\t}\n}\n"
	daemon.NFT = strings.Replace(daemon.NFT, "\t\tgoto filter_FWD_public", "\t\tiifname \"gv0\" goto filter_FWD_trusted\n\t\tgoto filter_FWD_public\n\t}\n\tchain filter_FWD_trusted {\n\t\taccept", 1)
	expect(t, daemon.Judge(packets(), true), "firewall", api.OK)

	expect(t, Firewall{Err: errors.New("broken")}.Judge(packets(), true), "firewall", api.Unknown, "broken")
}

// TestDrops: what is said to be dropped for sure, is.
func TestDrops(t *testing.T) {
	forward, vxlan := packets()[0], packets()[2]
	published := Packet{Chain: "FORWARD", In: "eth0", Out: "gv0", Src: addr("203.0.113.9"), Dst: addr("10.128.0.7"), Proto: "tcp", Port: 80, DNAT: true}
	table := func(hook, rules string) Firewall {
		return Firewall{NFT: "table inet mine {\n set friends {\n type ipv4_addr\n elements = { 192.0.2.2 }\n }\n chain c {\n type filter hook " + hook + " priority filter; policy drop;\n" + rules + "\n }\n chain let {\n accept\n }\n}\n"}
	}
	saved := func(rules string) Firewall {
		return Firewall{Saved: []string{":INPUT DROP [0:0]\n:FORWARD DROP [0:0]\n" + rules}}
	}
	for _, tt := range []struct {
		firewall Firewall
		packet   Packet
		want     string // "": passes; "sure", "unsure"
	}{
		{table("forward", ""), forward, "sure"},
		{table("input", ""), forward, ""},
		{table("forward", `iifname { "docker0", "gv*" } accept`), forward, ""},
		{table("forward", `iifname != "eth0" counter packets 3 bytes 180 accept comment "no drop"`), forward, ""},
		{table("forward", "ct state { established, related } accept\niifname \"br-*\" accept\nip6 daddr { ::/96,\n ::ffff:0.0.0.0/96 } accept\nicmp type echo-request accept"), forward, "sure"},
		{table("forward", "ct state established,related accept\noifname \"gv0\" accept"), forward, "sure"},
		{table("forward", "ct status dnat accept"), published, ""},
		{table("forward", "iifname \"gv0\" jump let"), published, "sure"},
		{table("forward", "meta mark 0x1 accept"), forward, "unsure"},
		{table("forward", "meta mark 0x1 jump let"), forward, "unsure"},
		{table("forward", "iifname vmap { \"gv0\" : accept }"), forward, "unsure"},
		{table("forward", "ct state vmap { established : accept, related : accept, invalid : drop }"), forward, "sure"},
		{table("forward", "limit rate 3/minute burst 5 packets log prefix \"accept \" flags all"), forward, "sure"},
		{table("input", "ip saddr @friends accept"), vxlan, "unsure"},
		{table("input", "ip saddr 192.0.2.0-192.0.2.9 udp dport 4000-5000 accept"), vxlan, ""},
		{table("input", "ip saddr 192.0.2.0/24 tcp dport 4789 accept\nudp sport 53 accept"), vxlan, "sure"},
		{table("input", "udp sport 7947 accept"), vxlan, "unsure"},
		{table("input", "iifname \"lo\" accept\nreject with icmpx admin-prohibited"), vxlan, "sure"},
		{saved("-A INPUT -m set --match-set friends src -j ACCEPT\n"), vxlan, "unsure"},
		{saved("-A INPUT -i lo -m set --match-set friends src -j ACCEPT\n-A INPUT -p udp -m udp --sport 67 -j ACCEPT\n-A INPUT -m limit --limit 3/min -j LOG\n"), vxlan, "sure"},
		{saved("-A INPUT -m mac --mac-source 02:00:00:00:00:01 -j MINE\n-A MINE -j ACCEPT\n"), vxlan, "unsure"},
		{saved("-A FORWARD -o gv0 -m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j ACCEPT\n"), published, ""},
	} {
		got := ""
		for _, d := range tt.firewall.Drops([]Packet{tt.packet}) {
			got = map[bool]string{true: "sure", false: "unsure"}[d.Sure]
			if d.By == "" || d.Do == "" {
				t.Errorf("no word: %+v", d)
			}
		}
		if got != tt.want {
			t.Errorf("%+v\n%+v\n%q, want %q", tt.firewall, tt.packet, got, tt.want)
		}
	}
}

// TestMeant: what DOCKER-USER drops, itself or by a chain that it leads to, is known from what others drop.
func TestMeant(t *testing.T) {
	published := Packet{Chain: "FORWARD", In: "eth0", Out: "gv0", Src: addr("203.0.113.9"), Dst: addr("10.128.0.7"), Proto: "tcp", DNAT: true}
	const chains = ":FORWARD ACCEPT [0:0]\n-A FORWARD -j DOCKER-USER\n-A FORWARD -j mine\n-A mine -o gv0 -j DROP\n"
	for rules, want := range map[string]bool{
		"":                                 false,
		"-A DOCKER-USER -i eth0 -j DROP\n": true,
		"-A DOCKER-USER -j RETURN -s 10.0.0.0/8\n-A DOCKER-USER -d 10.0.0.0/8 -j deny\n-A deny -j DROP\n": true, // ufw-docker's
		"-A DOCKER-USER -d 10.9.0.0/16 -j deny\n-A deny -j DROP\n":                                        false,
	} {
		drops := Firewall{Saved: []string{chains + rules}}.Drops([]Packet{published})
		if len(drops) != 1 || drops[0].Meant != want || !strings.Contains(drops[0].Do, "-o gv0") {
			t.Errorf("%q: %+v, want meant %v", rules, drops, want)
		}
	}
}

// TestBothFamilies: what is so of IPv4 and IPv6 is said once, and that all is well not beside what is not.
func TestBothFamilies(t *testing.T) {
	fine, broken := Firewall{}, Firewall{Err: errors.New("no iptables")}
	for _, c := range []struct {
		list []Firewall
		want api.Verdict
	}{{[]Firewall{fine, fine}, api.OK}, {[]Firewall{broken, broken}, api.Unknown}, {[]Firewall{fine, broken}, api.Unknown}} {
		checks := JudgeAll(c.list, make([][]Packet, len(c.list)), false)
		if len(checks) != 1 || checks[0].Verdict != c.want {
			t.Errorf("%+v", checks)
		}
	}
}

// TestLed: rules of NAT that give VXLAN another destination are named, whatever gets through still.
func TestLed(t *testing.T) {
	in, out := packets()[2], packets()[3]
	in.Tunnel, out.Tunnel = true, true
	inside := Packet{Chain: "OUTPUT", Out: "gvwg", Src: addr("fd67::1"), Dst: addr("fd67::2"), Proto: "udp", Port: 4789, Tunnel: true, For: "VXLAN into WireGuard to h2"}
	saved := func(rules string) Firewall { return Firewall{NAT: []string{"*nat\n:OUTPUT ACCEPT [0:0]\n" + rules}} }
	table := func(name, hook, rules string) Firewall {
		return Firewall{NFT: "table " + name + " {\n chain c {\n type nat hook " + hook + " priority -100; policy accept;\n" + rules + "\n }\n}\n"}
	}
	const docker = "-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER\n-A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER\n-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE\n-A DOCKER -i docker0 -j RETURN\n"
	for _, tt := range []struct {
		firewall Firewall
		packet   Packet
		want     string // "": nothing does; else part of what to do
	}{
		{saved(docker), in, ""},
		{saved(docker), out, ""},
		{saved(docker + "-A DOCKER ! -i docker0 -p tcp -m tcp --dport 4789 -j DNAT --to-destination 172.17.0.2:80\n"), in, ""},
		{saved(docker + "-A DOCKER ! -i docker0 -p udp -m udp --dport 4789 -j DNAT --to-destination 172.17.0.2:80\n"), in, "iptables -t nat -I PREROUTING -p udp --dport 4789 -j ACCEPT"},
		{saved("-A OUTPUT -p udp -m udp --dport 4000:5000 -j REDIRECT --to-ports 9\n"), out, "iptables -t nat -I OUTPUT -p udp --dport 4789 -j ACCEPT"},
		{saved("-A OUTPUT -p udp -m udp --dport 4789 -j ACCEPT\n-A OUTPUT -p udp -j REDIRECT --to-ports 9\n"), out, ""},
		{saved("-A OUTPUT -p udp -m owner --uid-owner 7 -j REDIRECT --to-ports 9\n"), out, ""},
		{saved("-A OUTPUT -o gvwg -p udp -j DNAT --to-destination [fd67::9]:4789\n"), inside, "ip6tables -t nat -I OUTPUT -p udp --dport 4789 -j ACCEPT"},
		{table("inet mine", "output", "udp dport 4789 dnat ip to 192.0.2.9:4790"), out, "put `udp dport 4789 accept` before it in table inet mine"},
		{table("inet mine", "prerouting", "udp dport 4789 counter packets 3 bytes 180 redirect to :9"), in, "conntrack -D -p udp --dport 4789"},
		{table("ip mine", "output", "udp dport 4789 dnat to 192.0.2.9"), inside, ""},
		{table("ip6 mine", "output", "meta mark 0x1 dnat to fd67::9"), inside, ""},
		{table("ip6 mine", "output", "udp dport 4789 accept\nmeta l4proto udp dnat to fd67::9"), inside, ""},
		{table("ip6 mine", "postrouting", "oifname \"gvwg\" masquerade"), inside, ""},
		{table("ip6 mine", "prerouting", "udp dport 4789 dnat to fd67::9"), inside, ""},
	} {
		tt.firewall.Saved = []string{"*filter\n:OUTPUT ACCEPT [0:0]\n"}
		got := ""
		for _, c := range tt.firewall.Judge([]Packet{tt.packet}, true) {
			if c.Verdict != api.OK {
				got = c.What + c.Do
			}
		}
		if (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) || got != "" && !strings.Contains(got, tt.packet.For+" (UDP port 4789) would be led elsewhere by ") {
			t.Errorf("%+v\n%+v\n%q, want %q", tt.firewall, tt.packet, got, tt.want)
		}
	}
}

// TestFamilysAdvice: what comes out of WireGuard is let in there, by the program of its family.
func TestFamilysAdvice(t *testing.T) {
	inside := Packet{Chain: "INPUT", In: "gvwg", Src: addr("fd67::2"), Dst: addr("fd67::1"), Proto: "udp", Port: 4789, Tunnel: true}
	shut := "*filter\n:INPUT DROP [0:0]\n"
	for _, tt := range []struct {
		firewall Firewall
		want     string
	}{
		{Firewall{Saved: []string{shut}}, "ip6tables -I INPUT -i gvwg -p udp --dport 4789 -j ACCEPT, "},
		{Firewall{Saved: []string{shut + ":ufw-user-input - [0:0]\n"}}, "ufw allow in on gvwg to any port 4789 proto udp"},
		{Firewall{Saved: []string{shut}, NFT: "table inet firewalld {\n}\n"}, "--zone=trusted --add-interface=gvwg"},
		{Firewall{NFT: "table inet mine {\n chain c {\n type filter hook input priority 0; policy drop;\n }\n}\n"}, "accept iifname gvwg udp dport 4789 in its input chain"},
	} {
		if drops := tt.firewall.Drops([]Packet{inside}); len(drops) != 1 || !strings.Contains(drops[0].Do, tt.want) {
			t.Errorf("%+v, want %q", drops, tt.want)
		}
	}
}

// TestReadTwice: the same rules, read while packets come, are the same.
func TestReadTwice(t *testing.T) {
	one := rulesOnly("# Generated\n*filter\n:INPUT DROP [1:60]\n-A INPUT -i lo -j ACCEPT\nCOMMIT\n")
	two := rulesOnly("# Generated later\n*filter\n:INPUT DROP [2:120]\n-A INPUT -i lo -j ACCEPT\nCOMMIT\n")
	if one != two || parseTables(one).policy["INPUT"] != "DROP" || len(parseTables(one).rules["INPUT"]) != 1 {
		t.Errorf("%q and %q", one, two)
	}
}

// TestVariants: a rule of iptables-legacy is answered by one of iptables-legacy; one of the iptables in PATH lets nothing
// of it pass where that is iptables-nft.
func TestVariants(t *testing.T) {
	open := "*filter\n:INPUT ACCEPT\n"
	f := Firewall{
		Saved: []string{open, open + "-A INPUT -p udp -m udp --dport 4789 -j DROP\n"}, SavedBy: []string{"", "-legacy"},
		NAT: []string{":PREROUTING ACCEPT\n-A PREROUTING -p udp -m udp --dport 4789 -j DNAT --to-destination 10.0.0.9\n"}, NATBy: []string{"-nft"},
	}
	in := packets()[2]
	in.Tunnel, in.In, in.Chain = true, "eth0", "INPUT"
	checks := f.Judge([]Packet{in}, true)
	expect(t, checks, "firewall", api.Wrong, "dport 4789 -j DROP", "iptables-legacy -I INPUT -p udp --dport 4789 -j ACCEPT")
	expect(t, checks, "firewall", api.Wrong, "-j DNAT", "iptables-nft -t nat -I")
	f.SavedBy = nil
	expect(t, f.Judge([]Packet{in}, true), "firewall", api.Wrong, "dport 4789 -j DROP", "iptables -I INPUT -p udp --dport 4789 -j ACCEPT")
}

// TestDropsElsewhere: rules at the hooks before and behind those of filter are named as those are, by nftables and by iptables.
func TestDropsElsewhere(t *testing.T) {
	forward, in, out := packets()[0], packets()[2], packets()[3]
	nft := func(family, begin, rule string) Firewall {
		return Firewall{NFT: "table " + family + " x {\n chain c {\n type " + begin + " priority -300; policy accept;\n" + rule + "\n }\n}\n"}
	}
	table := func(name, rules string) Firewall {
		return Firewall{Saved: []string{":INPUT ACCEPT\n:OUTPUT ACCEPT\n"}, Beside: []Table{{name, ":PREROUTING ACCEPT\n" + rules, "-nft"}}}
	}
	for _, tt := range []struct {
		firewall Firewall
		packet   Packet
		want     string // "": passes; else words of the rule and of what to do
	}{
		{nft("inet", "filter hook prerouting", "udp dport 4789 drop"), in, "accept udp dport 4789 in its prerouting chain"},
		{nft("inet", "filter hook prerouting", "ip saddr 192.0.2.2 udp dport 4789 counter packets 1 bytes 60 drop"), in, "ip saddr 192.0.2.2"},
		{nft("inet", "filter hook prerouting", "oifname \"eth0\" drop"), in, ""},
		{nft("inet", "filter hook prerouting", "iifname \"docker0\" udp dport 4789 drop"), in, ""},
		{nft("inet", "filter hook prerouting", "udp dport 4789 drop"), out, ""},
		{nft("ip", "nat hook prerouting", "udp dport 4789 drop"), in, "udp dport 4789 drop"},
		{nft("ip", "filter hook postrouting", "udp dport 4789 ip daddr 192.0.2.2 drop"), out, "in its postrouting chain"},
		{nft("inet", "route hook output", "udp dport 4789 drop"), out, "in its output chain"},
		{nft("inet", "filter hook postrouting", "oifname \"eth0\" ip saddr 10.128.0.0/14 drop"), forward, "gv0 before it in its postrouting chain"},
		{nft("netdev", "filter hook ingress device \"eth0\"", "ip saddr 192.0.2.2 udp dport 4789 drop"), in, "in its ingress chain"},
		{nft("netdev", "filter hook ingress devices = { \"docker0\", \"eth0\" }", "meta protocol ip udp dport 4789 drop"), in, "in its ingress chain"},
		{nft("netdev", "filter hook ingress devices = { eth1,eth2 }", "udp dport 4789 drop"), in, ""},
		{nft("netdev", "filter hook ingress device eth0", "meta protocol ip6 drop"), in, ""},
		{nft("netdev", "filter hook egress device \"eth0\"", "udp dport 4789 drop"), out, "in its egress chain"},
		{nft("bridge", "filter hook input", "udp dport 4789 drop"), in, ""},
		{table("raw", "-A PREROUTING -p udp -m udp --dport 4789 -j DROP\n"), in, "iptables-nft -t raw -I PREROUTING -p udp --dport 4789 -j ACCEPT"},
		{table("raw", "-A PREROUTING -i docker0 -p udp -m udp --dport 4789 -j DROP\n"), in, ""},
		{table("mangle", "-A PREROUTING -s 192.0.2.2/32 -p udp -m udp --dport 4789 -j DROP\n"), in, "-t mangle: -A PREROUTING -s 192.0.2.2/32"},
		{table("mangle", "-A POSTROUTING -p udp -m udp --dport 4789 -j DROP\n"), out, "-t mangle -I POSTROUTING"},
		{table("security", "-A OUTPUT -p udp -j DROP\n"), out, "-t security -I OUTPUT"},
		{table("mangle", "-A FORWARD -i gv0 -j DROP\n"), forward, "an ACCEPT for gv0 before it"},
	} {
		list := tt.firewall.Drops([]Packet{tt.packet})
		if tt.want == "" && len(list) == 0 {
			continue
		}
		if len(list) != 1 || tt.want == "" || !list[0].Sure || !strings.Contains(list[0].By+" | "+list[0].Do, tt.want) {
			t.Errorf("%+v\n%+v, want %q", tt.firewall, list, tt.want)
		}
	}
	// What iptables has said is not said once more of nft's view of it.
	both := table("raw", "-A PREROUTING -p udp -m udp --dport 4789 -j DROP\n")
	both.NFT = "table ip raw {\n chain PREROUTING {\n type filter hook prerouting priority raw; policy accept;\n meta l4proto udp udp dport 4789 counter packets 0 bytes 0 drop\n }\n}\n"
	if list := both.Drops([]Packet{in}); len(list) != 1 || list[0].NFT {
		t.Errorf("%+v", list)
	}
}

// TestSavedTables: each rule of iptables-save is of the table that it stands in.
func TestSavedTables(t *testing.T) {
	tables := savedTables("# by iptables\n*raw\n:PREROUTING ACCEPT [7:9]\n-A PREROUTING -j DROP\nCOMMIT\n*filter\n:INPUT DROP [0:0]\nCOMMIT\n")
	if tables["raw"] != "*raw\n:PREROUTING ACCEPT\n-A PREROUTING -j DROP\nCOMMIT\n" || !strings.Contains(tables["filter"], ":INPUT DROP\n") {
		t.Errorf("%q", tables)
	}
	if got := withoutOwn("-A PREROUTING -j GRAPEVINE-FORGED\n-A PREROUTING -j DROP\n"); got != "-A PREROUTING -j DROP\n" {
		t.Errorf("beside our own: %q", got)
	}
}
