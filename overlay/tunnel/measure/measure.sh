#!/bin/bash
# Measures the userspace datapath between two hosts (network namespaces) on this
# machine, and checks that what arrives is right. As root:
#
#   measure.sh OVS TSO CARRIER UNDERLAY
#
#   OVS       host, or the directory of a tree that has openvswitch-switch installed
#   TSO       on | off (other_config:userspace-tso-enable)
#   CARRIER   tunnel (overlay/tunnel) | pervni (a kernel VXLAN device per VNI) |
#             bridge (no OVS: Linux bridge and VXLAN, what Docker's overlay is)
#   UNDERLAY  4 | 6
#
# Everything it makes is called gvtm*; it goes at the end.
set -eu -o pipefail
ovs=$1 tso=$2 carrier=$3 underlay=$4
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d /var/tmp/gvtm.XXXXXX)
pids=()

cleanup() {
	set +e
	for p in "${pids[@]}"; do kill "$p" 2>/dev/null; done
	wait 2>/dev/null
	for h in 1 2; do
		if [ -f "$work/$h/pids" ]; then for p in $(cat "$work/$h/pids"); do kill "$p" 2>/dev/null; done; fi
	done
	for n in gvtmw gvtm1 gvtm2 gvtmc1 gvtmc2; do ip netns del $n 2>/dev/null; done
	rm -rf "$work"
}
trap cleanup EXIT

in_ns() { nsenter --net="/run/netns/$1" "${@:2}"; }

# ovs_run H COMMAND...: one of OVS's programs on host H, from the chosen tree.
ovs_run() {
	local h=$1; shift
	local env=(OVS_RUNDIR=/run/openvswitch OVS_DBDIR=/run/openvswitch OVS_LOGDIR=/run/openvswitch)
	local root=""
	[ "$ovs" = host ] || root="exec chroot $ovs"
	# shellcheck disable=SC2016
	nsenter --net="/run/netns/gvtm$h" unshare -m sh -c '
		root=$1 dir=$2; shift 2
		if [ -n "$root" ]; then t=${root#exec chroot }; else t=; fi
		mkdir -p $t/run/openvswitch
		mount --bind $dir $t/run/openvswitch
		if [ -n "$t" ]; then mount --bind /dev $t/dev; mount -t proc proc $t/proc; mount -t sysfs sys $t/sys; fi
		$root env "$@"' sh "$root" "$work/$h" "${env[@]}" "$@"
}

start_ovs() {
	local h=$1
	mkdir -p "$work/$h"
	ovs_run $h ovsdb-tool create /run/openvswitch/conf.db /usr/share/openvswitch/vswitch.ovsschema
	ovs_run $h ovsdb-server --detach --no-chdir --pidfile=/run/openvswitch/db.pid --remote=punix:/run/openvswitch/db.sock --log-file=/run/openvswitch/db.log /run/openvswitch/conf.db 2>/dev/null
	ovs_run $h ovs-vsctl --no-wait init
	[ "$tso" = off ] || ovs_run $h ovs-vsctl --no-wait set Open_vSwitch . other_config:userspace-tso-enable=true
	ovs_run $h ovs-vswitchd --detach --no-chdir --pidfile=/run/openvswitch/sw.pid --log-file=/run/openvswitch/sw.log 2>/dev/null
	cat "$work/$h/db.pid" "$work/$h/sw.pid" >"$work/$h/pids"
	ovs_run $h ovs-vsctl add-br gvbr0 -- set bridge gvbr0 datapath_type=netdev fail_mode=secure
}

# a network: the wire in a namespace of its own, hosts 1 and 2, a container on each
lay_out() {
	ip netns add gvtmw
	ip -n gvtmw link add br0 type bridge
	ip -n gvtmw link set br0 up
	for h in 1 2; do
		ip netns add gvtm$h; ip netns add gvtmc$h
		ip -n gvtmw link add w$h type veth peer name eth0 netns gvtm$h
		ip -n gvtmw link set w$h master br0 up
		ip -n gvtm$h addr add 10.99.0.$h/24 dev eth0
		ip -n gvtm$h addr add fd99::$h/64 dev eth0 nodad
		ip -n gvtm$h link set eth0 up; ip -n gvtm$h link set lo up
		ip -n gvtm$h link add gvc type veth peer name eth0 netns gvtmc$h
		ip -n gvtmc$h link set eth0 address 02:42:0a:80:00:0$h mtu $mtu up
		ip -n gvtm$h link set gvc mtu $mtu up
		ip -n gvtmc$h link set lo up
		ip -n gvtmc$h addr add 10.128.0.$h/24 dev eth0
		ip -n gvtmc$h addr add fd80::$h/64 dev eth0 nodad
		ip -n gvtmc$h neigh add 10.128.0.$((3 - h)) lladdr 02:42:0a:80:00:0$((3 - h)) dev eth0
		ip -n gvtmc$h neigh add fd80::$((3 - h)) lladdr 02:42:0a:80:00:0$((3 - h)) dev eth0
		ip -n gvtmc$h neigh add 10.128.0.254 lladdr 02:42:0a:80:00:fe dev eth0
		ip -n gvtmc$h route add default via 10.128.0.254
		[ "$carrier" = bridge ] || in_ns gvtmc$h "$work/measure" $tsoflag -userspace eth0
	done
}

remote() { if [ "$underlay" = 4 ]; then echo 10.99.0.$1; else echo fd99::$1; fi; }

connect() {
	local h=$1 o=$((3 - $1)) port
	if [ "$carrier" = bridge ]; then
		ip -n gvtm$h link add br0 type bridge
		ip -n gvtm$h link add vx100 type vxlan id 100 remote "$(remote $o)" dstport 4789 nolearning
		ip -n gvtm$h link set vx100 mtu $mtu master br0 up
		ip -n gvtm$h link set gvc master br0
		ip -n gvtm$h link set br0 up
		return
	fi
	if [ "$carrier" = tunnel ]; then
		in_ns gvtm$h "$work/measure" $tsoflag -mtu $mtu "7=$(remote $o)" >/dev/null
		port=gvtun
		to="set_field:02:00:00:00:00:64->eth_src,set_field:02:01:00:00:00:07->eth_dst,"
		match="dl_src=02:00:00:00:00:64,dl_dst=02:01:00:00:00:07,"
	else
		ip -n gvtm$h link add vx100 type vxlan id 100 remote "$(remote $o)" dstport 4789 nolearning
		ip -n gvtm$h link set vx100 mtu $mtu up
		port=vx100 to="" match=""
	fi
	ovs_run $h ovs-vsctl add-port gvbr0 $port -- set interface $port ofport_request=1 \
		-- add-port gvbr0 gvc -- set interface gvc ofport_request=2 \
		-- add-port gvbr0 gv0 -- set interface gv0 type=internal ofport_request=3 mtu_request=$mtu
	ip -n gvtm$h link set gv0 address 02:42:0a:80:00:fe up
	ip -n gvtm$h addr add 10.128.0.254/24 dev gv0
	in_ns gvtm$h sysctl -qw net.ipv4.ip_forward=1
	in_ns gvtm$h iptables-legacy -t nat -A POSTROUTING -s 10.128.0.0/24 -o eth0 -j MASQUERADE 2>/dev/null ||
		in_ns gvtm$h iptables -t nat -A POSTROUTING -s 10.128.0.0/24 -o eth0 -j MASQUERADE
	for c in 1 2; do ip -n gvtm$h neigh replace 10.128.0.$c lladdr 02:42:0a:80:00:0$c dev gv0; done
	local mac=02:42:0a:80:00:0
	ovs_run $h ovs-ofctl add-flow gvbr0 "priority=9,in_port=2,ip,nw_dst=10.128.0.$o,actions=${to}output:1"
	ovs_run $h ovs-ofctl add-flow gvbr0 "priority=9,in_port=2,ipv6,ipv6_dst=fd80::$o,actions=${to}output:1"
	ovs_run $h ovs-ofctl add-flow gvbr0 "priority=9,in_port=1,${match}actions=set_field:${mac}$o->eth_src,set_field:${mac}$h->eth_dst,output:2"
	ovs_run $h ovs-ofctl add-flow gvbr0 "priority=5,in_port=2,ip,actions=output:3"
	ovs_run $h ovs-ofctl add-flow gvbr0 "priority=5,in_port=3,ip,nw_dst=10.128.0.$h,actions=output:2"
}

# iperf A_NS SERVER_NS ADDRESS ARGS...: prints bits per second as the receiver saw them
iperf() {
	local from=$1 server=$2 addr=$3; shift 3
	in_ns $server iperf3 -s -1 -p 5999 >/dev/null 2>&1 & local p=$!
	sleep 0.3
	in_ns $from timeout 20 iperf3 -p 5999 -J -c "$addr" "$@" 2>/dev/null | python3 -c '
import json,sys
try: e=json.load(sys.stdin)["end"]
except Exception as x: print("failed"); sys.exit()
s=e.get("sum_received") or e["sum"]
extra=" lost %d/%d" % (e["sum"]["lost_packets"], e["sum"]["packets"]) if "lost_packets" in e.get("sum",{}) else ""
print("%.2f Gbit/s%s" % (s["bits_per_second"]/1e9, extra))' || true
	kill $p 2>/dev/null || true; wait $p 2>/dev/null || true
}

# png ADDRESS ARGS...: from container 1
png() {
	in_ns gvtmc1 busybox ping -q "${@:2}" "$1" | awk '/loss/{printf "%d of %d", $4, $1} /round-trip/{split($4,r,"/"); printf ", avg %s ms", r[2]} END{print ""}' || true
}

# uso: container 1 sends 20 buffers of 10 segments with UDP_SEGMENT; prints what arrives
uso() {
	in_ns gvtmc2 python3 -c '
import socket
s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.bind(("",6000)); s.settimeout(1.5); n=0
try:
	while True: n+= s.recv(9999)==b"x"*1000
except TimeoutError: print(n,"of 200 datagrams")' &
	sleep 0.4
	in_ns gvtmc1 python3 -c '
import socket,time
s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.setsockopt(17,103,1000)
for i in range(20): s.sendto(b"x"*10000,("10.128.0.2",6000)); time.sleep(.005)'
	wait $!
}

# largest FILTER SERVER ADDRESS: the longest IP packet that leaves host 1 when container 1 sends
largest() {
	(in_ns gvtm1 timeout 2.5 tcpdump -nn -v -i eth0 -Q out -c 3000 "$1" 2>/dev/null || true) | grep -o 'length [0-9]*)' | grep -o '[0-9]*' | sort -n | tail -1 &
	sleep 0.6
	iperf gvtmc1 "$2" "$3" -t 1 >/dev/null
	wait $!
}

bad() { # NS: packets dropped for a wrong checksum, by the stack of NS
	in_ns $1 awk '/^Tcp:/{t[++n]=$0} /^Udp:/{u[++m]=$0} END{split(t[1],a);split(t[2],b);for(i in a)if(a[i]=="InCsumErrors")x=b[i];split(u[1],a);split(u[2],b);for(i in a)if(a[i]=="InCsumErrors")y=b[i];print "tcp " x " udp " y}' /proc/net/snmp
}

mtu=1430
tsoflag=; [ "$tso" = off ] || tsoflag=-tso
go build -o "$work/measure" "$here"
lay_out
[ "$carrier" = bridge ] || { start_ovs 1; start_ovs 2; }
connect 1; connect 2
if [ "$carrier" != bridge ] && [ -z "${NOBUFFERS:-}" ]; then for h in 1 2; do in_ns gvtm$h "$work/measure" -buffers "$(cat "$work/$h/sw.pid")"; done; fi
sleep 1
[ "$carrier" = bridge ] && v=none || v=$(ovs_run 1 ovs-vswitchd --version | sed -n 's/.*) //p')
echo "== OVS $v, tso $tso, $carrier, underlay IPv$underlay"
[ "$carrier" = bridge ] || echo "buffers     $(in_ns gvtm2 ss -0nm | grep -o 'rb[0-9]*' | sort | uniq -c | xargs)"
if [ "${KEEP:-}" ]; then echo "in $work; press return"; read -r; fi
if [ -z "${QUICK:-}" ]; then
echo "ping        $(png 10.128.0.2 -A -c 2000 -w 5)"
echo "ping 6      $(png fd80::2 -A -c 200 -w 5)"
echo "ping sizes  $(for s in 0 1 17 18 1402; do png 10.128.0.2 -c 3 -W 1 -A -s $s; done | cut -d, -f1 | sort | uniq -c | xargs)"
echo "ping frag   $(png 10.128.0.2 -c 3 -W 1 -A -s 8000)"
fi
busy() { awk '/^cpu /{print $2+$3+$4+$7+$8, $5}' /proc/stat; }
read -r b0 i0 < <(busy); sleep 1; read -r b1 i1 < <(busy)
echo "machine     $((100 * (b1 - b0) / (b1 - b0 + i1 - i0)))% busy before"
echo "underlay    $(iperf gvtm1 gvtm2 "$(remote 2)" -t 3)"
for i in $(seq ${RUNS:-3}); do echo "tcp 1->2    $(iperf gvtmc1 gvtmc2 10.128.0.2 -t ${SECONDS_EACH:-4})"; done
if [ -z "${QUICK:-}" ]; then
echo "tcp 2->1    $(iperf gvtmc1 gvtmc2 10.128.0.2 -t 3 -R)"
echo "tcp6 1->2   $(iperf gvtmc1 gvtmc2 fd80::2 -t 3)"
echo "udp 1400    $(iperf gvtmc1 gvtmc2 10.128.0.2 -u -b 500M -l 1400 -t 3)"
echo "udp 64      $(iperf gvtmc1 gvtmc2 10.128.0.2 -u -b 20M -l 64 -t 3)"
echo "udp 8000    $(iperf gvtmc1 gvtmc2 10.128.0.2 -u -b 200M -l 8000 -t 3)"
echo "to outside  $(iperf gvtmc1 gvtm2 10.99.0.2 -t 3)"
echo "outside udp $(iperf gvtmc1 gvtm2 10.99.0.2 -u -b 100M -l 1000 -t 2)"
echo "from out    $(iperf gvtmc1 gvtm2 10.99.0.2 -t 3 -R)"
echo "host to c   $(iperf gvtm1 gvtmc1 10.128.0.1 -t 3)"
for h in 1 2; do
	ip -n gvtmc$h link add vx type vxlan id 5 remote 10.128.0.$((3 - h)) dstport 5000 nolearning
	ip -n gvtmc$h addr add 10.200.0.$h/24 dev vx
	ip -n gvtmc$h link set vx up
done
echo "nested vx   $(iperf gvtmc1 gvtmc2 10.200.0.2 -t 2)"
echo "uso         $(uso)"
# Segments to a peer of small MTU, as they leave host 1 when it segments them itself.
in_ns gvtm1 ethtool -K eth0 tso off gso off tx-udp_tnl-segmentation off tx-udp_tnl-csum-segmentation off >/dev/null 2>&1
in_ns gvtmc2 ip link set eth0 mtu 1000
echo "tcp to mtu 1000   $(iperf gvtmc1 gvtmc2 10.128.0.2 -t 2), packets up to $(largest 'udp port 4789' gvtmc2 10.128.0.2), at most 1050 right"
in_ns gvtmw ip link set w2 mtu 900; in_ns gvtm2 ip link set eth0 mtu 900
echo "out to mtu 900    $(iperf gvtmc1 gvtm2 10.99.0.2 -t 2), packets up to $(largest tcp gvtm2 10.99.0.2), at most 900 right"
echo "bad csums   c1: $(bad gvtmc1), c2: $(bad gvtmc2), host2: $(bad gvtm2)"
if [ "$carrier" = tunnel ]; then echo "counters    $(in_ns gvtm1 "$work/measure" $tsoflag -mtu $mtu "7=$(remote 2)")"; fi
fi
grep -hE 'WARN|ERR' "$work"/[12]/sw.log | sed 's/^[^|]*|[^|]*|//' | sort | uniq -c | sort -rn | head -${LOGLINES:-6} || true
