package bypass

// Rules as these programs set them, as iptables-save and nft(8) print them.

// docker are those of a Docker Engine with published ports, of TCP and UDP.
func docker(version string) string {
	rules := `*nat
:DOCKER - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER
-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
-A POSTROUTING -s 172.17.0.2/32 -d 172.17.0.2/32 -p tcp -m tcp --dport 80 -j MASQUERADE
-A DOCKER -i docker0 -j RETURN
-A DOCKER ! -i docker0 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 172.17.0.2:80
-A DOCKER ! -i docker0 -p udp -m udp --dport 5353 -j DNAT --to-destination 172.17.0.2:53
COMMIT
`
	switch version {
	case "20.10", "26":
		rules += `*filter
:FORWARD DROP [0:0]
:DOCKER - [0:0]
:DOCKER-ISOLATION-STAGE-1 - [0:0]
:DOCKER-ISOLATION-STAGE-2 - [0:0]
:DOCKER-USER - [0:0]
-A FORWARD -j DOCKER-USER
-A FORWARD -j DOCKER-ISOLATION-STAGE-1
-A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -o docker0 -j DOCKER
-A FORWARD -i docker0 ! -o docker0 -j ACCEPT
-A DOCKER -d 172.17.0.2/32 ! -i docker0 -o docker0 -p tcp -m tcp --dport 80 -j ACCEPT
-A DOCKER-ISOLATION-STAGE-1 -i docker0 ! -o docker0 -j DOCKER-ISOLATION-STAGE-2
-A DOCKER-ISOLATION-STAGE-2 -o docker0 -j DROP
-A DOCKER-USER -j RETURN
COMMIT
`
	default:
		rules += `*raw
-A PREROUTING -d 172.17.0.2/32 ! -i docker0 -j DROP
-A PREROUTING -d 127.0.0.1/32 ! -i lo -p tcp -m tcp --dport 8081 -j DROP
COMMIT
*filter
:FORWARD DROP [0:0]
:DOCKER - [0:0]
:DOCKER-BRIDGE - [0:0]
:DOCKER-CT - [0:0]
:DOCKER-FORWARD - [0:0]
:DOCKER-USER - [0:0]
-A FORWARD -j DOCKER-USER
-A FORWARD -j DOCKER-FORWARD
-A DOCKER-BRIDGE -o docker0 -j DOCKER
-A DOCKER-CT -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A DOCKER-FORWARD -j DOCKER-CT
-A DOCKER-FORWARD -j DOCKER-BRIDGE
-A DOCKER-FORWARD -i docker0 -j ACCEPT
-A DOCKER ! -i docker0 -o docker0 -j DROP
COMMIT
`
	}
	if version == "26" {
		rules += "*raw\n-A PREROUTING -d 172.17.0.2/32 ! -i docker0 -j DROP\nCOMMIT\n"
	}
	return rules
}

const docker29 = `table ip docker-bridges {
	map nat-postrouting-out-jumps { type ifname : verdict; elements = { "docker0" : jump nat-postrouting-out__docker0 }; }
	map nat-postrouting-in-jumps { type ifname : verdict; elements = { "docker0" : jump nat-postrouting-in__docker0 }; }
	chain filter-FORWARD { type filter hook forward priority filter; policy drop; }
	chain nat-prerouting-and-output {
		iifname != "docker0" tcp dport 8080 counter dnat to 172.17.0.2:80 comment "DNAT"
		iifname != "docker0" udp dport 5353 counter dnat to 172.17.0.2:53 comment "DNAT"
	}
	chain nat-postrouting-in__docker0 { oifname != "docker0" ip saddr 172.17.0.0/16 counter masquerade comment "MASQUERADE"; }
	chain nat-postrouting-out__docker0 { fib saddr type local counter masquerade comment "MASQUERADE FROM HOST"; }
	chain nat-OUTPUT { type nat hook output priority -100; policy accept; ip daddr != 127.0.0.0/8 fib daddr type local counter jump nat-prerouting-and-output; }
	chain nat-PREROUTING { type nat hook prerouting priority dstnat; policy accept; fib daddr type local counter jump nat-prerouting-and-output; }
	chain nat-POSTROUTING { type nat hook postrouting priority srcnat; policy accept; iifname vmap @nat-postrouting-in-jumps; oifname vmap @nat-postrouting-out-jumps; }
	chain raw-PREROUTING { type filter hook prerouting priority raw; policy accept; ip daddr 172.17.0.2 iifname != "docker0" counter drop comment "DROP DIRECT ACCESS"; }
}
`

const swarm = `*nat
:DOCKER-INGRESS - [0:0]
-I PREROUTING -m addrtype --dst-type LOCAL -j DOCKER-INGRESS
-I OUTPUT -m addrtype --dst-type LOCAL -j DOCKER-INGRESS
-A POSTROUTING -o docker_gwbridge -m addrtype --src-type LOCAL -j MASQUERADE
-A POSTROUTING -s 172.18.0.0/16 ! -o docker_gwbridge -j MASQUERADE
-A DOCKER-INGRESS -p tcp -m tcp --dport 8090 -j DNAT --to-destination 172.18.0.2:8090
-A DOCKER-INGRESS -p udp -m udp --dport 8091 -j DNAT --to-destination 172.18.0.2:8091
-A DOCKER-INGRESS -j RETURN
COMMIT
`

const swarmEncrypted = `*filter
-A INPUT -p udp -m udp --dport 4789 -m policy --dir in --pol none -m u32 --u32 "0x0>>0x16&0x3c@0xc&0xffffff00=0x100100" -j DROP
COMMIT
*mangle
-A OUTPUT -p udp -m udp --dport 4789 -m u32 --u32 "0x0>>0x16&0x3c@0xc&0xffffff00=0x100100" -j MARK --set-xmark 0xd0c4e3/0xffffffff
COMMIT
`

// kubernetes are those of kube-proxy and kubelet, shortened.
const kubernetes = `*nat
:KUBE-MARK-MASQ - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SEP-A - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-NODEPORTS -d 127.0.0.0/8 -p tcp -m comment --comment "default/web" -m tcp --dport 30080 -j KUBE-SEP-A
-A KUBE-NODEPORTS -p udp -m comment --comment "default/dns" -m udp --dport 30053 -j KUBE-SEP-A
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully
-A KUBE-SERVICES -d 10.96.0.10/32 -p udp -m comment --comment "kube-system/kube-dns:dns cluster IP" -m udp --dport 53 -j KUBE-SEP-A
-A KUBE-SERVICES -m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
-A KUBE-SEP-A -s 10.244.0.2/32 -j KUBE-MARK-MASQ
-A KUBE-SEP-A -p udp -m udp -j DNAT --to-destination 10.244.0.2:53
COMMIT
*filter
:KUBE-FIREWALL - [0:0]
:KUBE-EXTERNAL-SERVICES - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
-A INPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
-A INPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES
-A INPUT -j KUBE-FIREWALL
-A OUTPUT -j KUBE-FIREWALL
-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
COMMIT
`

// ufw are its rules that have to do with packets for the host, and some that the administrator has added.
func ufw(added string) string {
	return `*filter
:INPUT DROP [0:0]
:FORWARD DROP [0:0]
:ufw-after-input - [0:0]
:ufw-after-logging-input - [0:0]
:ufw-before-input - [0:0]
:ufw-before-output - [0:0]
:ufw-logging-deny - [0:0]
:ufw-not-local - [0:0]
:ufw-skip-to-policy-input - [0:0]
:ufw-track-output - [0:0]
:ufw-user-input - [0:0]
-A INPUT -j ufw-before-input
-A INPUT -j ufw-after-input
-A INPUT -j ufw-after-logging-input
-A OUTPUT -j ufw-before-output
-A OUTPUT -j ufw-track-output
-A ufw-after-input -p udp -m udp --dport 137 -j ufw-skip-to-policy-input
-A ufw-after-input -m addrtype --dst-type BROADCAST -j ufw-skip-to-policy-input
-A ufw-after-logging-input -m limit --limit 3/min --limit-burst 10 -j LOG --log-prefix "[UFW BLOCK] "
-A ufw-before-input -i lo -j ACCEPT
-A ufw-before-input -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A ufw-before-input -m conntrack --ctstate INVALID -j ufw-logging-deny
-A ufw-before-input -m conntrack --ctstate INVALID -j DROP
-A ufw-before-input -p icmp -m icmp --icmp-type 8 -j ACCEPT
-A ufw-before-input -p udp -m udp --sport 67 --dport 68 -j ACCEPT
-A ufw-before-input -j ufw-not-local
-A ufw-before-input -d 224.0.0.251/32 -p udp -m udp --dport 5353 -j ACCEPT
-A ufw-before-input -j ufw-user-input
-A ufw-before-output -o lo -j ACCEPT
-A ufw-before-output -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A ufw-logging-deny -m conntrack --ctstate INVALID -m limit --limit 3/min --limit-burst 10 -j RETURN
-A ufw-logging-deny -m limit --limit 3/min --limit-burst 10 -j LOG --log-prefix "[UFW BLOCK] "
-A ufw-not-local -m addrtype --dst-type LOCAL -j RETURN
-A ufw-not-local -m addrtype --dst-type MULTICAST -j RETURN
-A ufw-not-local -m addrtype --dst-type BROADCAST -j RETURN
-A ufw-not-local -m limit --limit 3/min --limit-burst 10 -j ufw-logging-deny
-A ufw-not-local -j DROP
-A ufw-skip-to-policy-input -j DROP
-A ufw-track-output -p udp -m conntrack --ctstate NEW -j ACCEPT
` + added + "COMMIT\n"
}

// firewalld are its rules of a zone, as of its backend of nftables, shortened.
func firewalld(allowed string) string {
	return `table inet firewalld {
	chain mangle_PREROUTING { type filter hook prerouting priority mangle + 10; policy accept; jump mangle_PREROUTING_ZONES; }
	chain mangle_PREROUTING_ZONES { iifname "eth0" goto mangle_PRE_public; goto mangle_PRE_public; }
	chain mangle_PRE_public { return; }
	chain nat_POSTROUTING { type nat hook postrouting priority srcnat + 10; policy accept; oifname "docker0" goto nat_POST_docker; goto nat_POST_public; }
	chain nat_POST_docker { oifname != "lo" masquerade; }
	chain nat_POST_public { return; }
	chain filter_PREROUTING { type filter hook prerouting priority filter + 10; policy accept; icmpv6 type { nd-router-advert, nd-neighbor-solicit } accept; meta nfproto ipv6 fib saddr . mark . iif oif missing drop; }
	chain filter_INPUT {
		type filter hook input priority filter + 10; policy accept;
		ct state { established, related } accept
		ct status dnat accept
		iifname "lo" accept
		ct state invalid drop
		jump filter_INPUT_ZONES
		reject with icmpx type admin-prohibited
	}
	chain filter_OUTPUT { type filter hook output priority filter + 10; policy accept; ct state { established, related } accept; oifname "lo" accept; ip6 daddr { ::/96, 2002::/24 } reject with icmpv6 type addr-unreachable; jump filter_OUTPUT_POLICIES; }
	chain filter_OUTPUT_POLICIES { oifname "eth0" jump filter_OUT_policy_allow; return; }
	chain filter_OUT_policy_allow { return; }
	chain filter_INPUT_ZONES { iifname "docker0" goto filter_IN_docker; iifname "eth0" goto filter_IN_public; goto filter_IN_public; }
	chain filter_IN_docker { accept; }
	chain filter_IN_public { jump filter_IN_public_allow; meta l4proto { icmp, ipv6-icmp } accept; return; }
	chain filter_IN_public_allow { tcp dport 22 accept; ip6 daddr fe80::/64 udp dport 546 accept; ` + allowed + ` }
}
`
}
