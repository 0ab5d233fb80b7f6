// SPDX-License-Identifier: Apache-2.0
//
// The fast path: tc programs before Open vSwitch. gv_endpoint stands at the ingress
// of the host's end of each container's veth, gv_tunnel at that of the VXLAN device and,
// in mode direct, gv_underlay at that of the host's NIC: gv_endpoint writes the headers of
// VXLAN itself then, and gv_underlay takes them off. gv_gateway stands at the egress of the
// host's own leg, gv0: what containers send to the host and the outside gv_endpoint lets arrive
// there, so that the host's stack sees all of it, and what that sends to them gv_gateway delivers.
// That one does while an agent holds it: an older agent knows nothing of it, and would leave it
// there with addresses that nobody looks after.
// gv_inside stands at the ingress of the device of WireGuard, and takes what other hosts send there without VXLAN.
// They forward what the maps decide and let everything else go on untouched, to the
// next filter of the device or to Open vSwitch: whatever is odd, unknown or forbidden
// gets its verdict, its answer and its counter there. What would be carried, but is too
// big for its device, they answer themselves: Open vSwitch drops it without a word.
//
// The maps are filled by package fastpath, whose Contents.Verdict says the same in Go.
//
// With -DVERDICT the programs write down what they would do with a packet instead of
// doing it, and take the tunnel header from skb->cb: for the test that compares them
// with Open vSwitch.
//
// Needs Linux 5.12 (bpf_check_mtu; bpf_redirect_peer is of 5.10). An older kernel than a flag of
// bpf_skb_adjust_room refuses it: the packet goes by the VXLAN device.
#include <stddef.h>
#include <linux/bpf.h>
#include <linux/icmpv6.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define MAX_LOCALS 16384
#define MAX_RANGES 65536
#define MAX_SLOTS 32768
#define MAX_SETTLED 32768
#define MAX_GRANTED 16384
#define MAX_OWN 32768
#define MAX_RULES 4096
#define MAX_GROUPS 8192
#define MAX_PORTS 4096
#define MAX_BARE 16384
#define MAX_BARE_HOSTS 1024
#define BARE_PAIRS 65 // cluster.MaxBareTakes, and the one of none
#define MAX_INSIDE_HOSTS 4096
// How many copies of a packet there may be, to members here and to other hosts. An older kernel goes through each by itself when it
// loads the program, and takes no million steps.
#define MAX_MEMBERS 32
#define MAX_HOSTS 16

#define GO_ON TC_ACT_UNSPEC

// The key without its later additions: every kernel takes this size. With the source, which is
// its last member, Linux 5.19 does.
#define KEY_SIZE offsetof(struct bpf_tunnel_key, local_ipv6)

struct addr {
	__u32 w[4]; // network order; IPv4 as ::ffff:a.b.c.d (RFC 4291, 2.5.5.2)
};

struct local {
	__u32 ifindex; // host's end of the container's veth; 0: the switch decides
	__u32 vnid;
	__u16 mac[3];
	__u16 outside;	 // 1: it may leave the cluster, by this host
	__u32 slot;	 // of gv_counters, for this address
	__u32 vnid_slot; // and for packets of its VNID to its realm
	__u32 realm;	 // 0: the VNID
	__u32 guarded; // 1: rules are about it, and only what the switch has noted is carried
	struct addr router; // of this address, for what it is told; zero: there is none
};

struct range_key {
	__u32 bits;
	struct addr addr;
};

struct range {
	struct addr vtep; // zero: no other host has it
	__u32 vnid;
	__u32 slot;
	__u8 to;   // 0: the switch decides, unless another host has it; else it is the gateway's
	__u8 from; // 1: the gateway may send from here
	__u16 unused;
	__u32 realm;
	__u32 vnid_slot; // 0: that of the destination's VNID
};

#define EVERYWHERE 0xffffffff // of realm: all

// Values of range.to: what the flows would look at before the gateway gets a packet.
enum { TO_GATEWAY = 1, TO_HOST, TO_OUTSIDE };

// Bits of config.on. ON_SECURE: what does not go by WireGuard without VXLAN the switch sends.
enum { ON = 1, ON_SECURE = 2 };

struct config {
	__u32 on;	  // 0: everything goes on
	__u32 tunnel;	  // index of the VXLAN device
	__u32 tunnel_mtu; // index of a device with the largest MTU that the tunnel carries
	struct addr source; // what this host sends from by the tunnel; zero: as the kernel chooses
	// Of the gateway, which its index switches.
	__u16 gateway_mac[3];
	__be16 vxlan_port, gossip_port; // that containers do not send to; 0: there is none
	__u16 unsummed; // not 0: the tunnel's packets have no checksum over IPv6 either
	__u32 gateway; // index of gv0; 0: nothing goes there
	// Of mode direct, which underlay or judged switches: they come last, the kernel copies from the front.
	__be32 vtep;		    // this host's
	__be16 port;		    // of VXLAN
	__u16 least_port, end_port; // source ports, as the VXLAN device chooses them
	__u16 bare;		    // not 0: some packets go without headers (gv_bare_hosts)
	__u32 underlay; // index of the NIC that packets leave and arrive by; 0: nothing is direct
	__u32 judged;	// the same, while an agent holds the programs that do it
};

struct counter {
	__u64 sent, sent_bytes;		// by the address; into the range
	__u64 received, received_bytes; // by the address; out of the range
};

// Slots that belong to no entry: packets that pass since the sender or the receiver
// is privileged, and those of connections that rules let through: of TCP and of UDP, of IPv4 and of IPv6, sent
// into the tunnel and received by containers, and then of others: sent to the gateway, and into the tunnel by a rule for ingress.
// KIND_BEGINS and KIND_EDGE are of TCP of IPv4, and of IPv6 behind it: first packets, and others that have SYN, FIN or RST. KIND_ERROR
// are errors of ICMP, and of ICMPv6, about such connections.
enum { KIND_BEGINS = 4, KIND_EDGE = 6, KIND_ERROR = 8, KINDS = 10 };
enum { SLOT_FROM_ZERO, SLOT_TO_ZERO, SLOT_SETTLED, SLOT_SETTLED_OTHERS = SLOT_SETTLED + KINDS };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct config);
} gv_config SEC(".maps");

// Not preallocated: before Linux 6.1 an element that was deleted is not written to while a program may still read it. Since then it
// may be another endpoint's at once, so that one packet in that moment meets the one's interface and the other's VNID.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_LOCALS);
	__type(key, struct addr);
	__type(value, struct local);
} gv_locals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_RANGES);
	__type(key, struct range_key);
	__type(value, struct range);
} gv_ranges SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_SLOTS);
	__type(key, __u32);
	__type(value, struct counter);
} gv_fp_counters SEC(".maps");

// Who gets what is for a multicast group, or a broadcast address, of a network: members here, and hosts with members.
struct group_key {
	struct addr addr;
	__u32 vnid;
};

struct group {
	__u16 mac[3]; // where its frames go
	__u16 unused;
	__u32 slot; // received: what came from other hosts
	__u32 members, hosts; // how many; none of both: the switch decides
	__u32 member[MAX_MEMBERS]; // host's ends of their veths
	struct addr host[MAX_HOSTS]; // VTEPs
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_GROUPS);
	__type(key, struct group_key);
	__type(value, struct group);
} gv_groups SEC(".maps");

// Connections from and to endpoints with rules: an entry is there because the switch has just passed a packet of it that
// it did not have to judge. The switch wrote the generation of its rules into the packet, in the flow that passed it, and
// gv_note_local or gv_note_tunnel noted it. It counts while that is the generation of now, and for SETTLED_LIFE: then
// packets visit the switch, whose connection tracking knows by them that the connection lives.
struct tuple {
	struct addr end[2];
	__be16 port[2];
	__u32 protocol;
};

struct settled {
	__u64 what;    // generation, and the slots of both rules
	__u64 noted;   // by bpf_ktime_get_coarse_ns
	__u64 check;   // of these and the tuple: the kernel may give an element to another tuple while it is read
	__u64 visited; // when a packet was last sent to the switch to have it noted again
};

#define SECOND 1000000000ull
#define SETTLED_LIFE (10 * SECOND)
#define SETTLED_RENEW (5 * SECOND) // from here on what nobody misses if it is late: acknowledgements
#define SETTLED_LATE (8 * SECOND)  // and from here on others
#define SETTLED_VISIT (SECOND / 4)

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_SETTLED);
	__type(key, struct tuple);
	__type(value, struct settled);
} gv_settled SEC(".maps");

// What new connections of TCP the rules let through: an entry is there because the switch has just passed the first packet of
// one from an address to a port of another, and no more than these says whether it passes. It counts while its generation is
// that of now, and for GRANT_LIFE.
struct way {
	struct addr src, dst;
	__be16 port, unused;
};

struct granted {
	__u64 what;
	__u64 noted;
	__u64 check; // of these and the way
};

#define GRANT_LIFE (60 * SECOND)

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_GRANTED);
	__type(key, struct way);
	__type(value, struct granted);
} gv_granted SEC(".maps");

// Connections that began so, of which the switch knows nothing. One that lives longer than SETTLED_RENEW, or whose generation is
// over, is handed to the switch: with its next packets the switch is told who called whom (HINT), judges them, and notes the
// connection as any other. The entry stays until the switch has seen three packets that it let through: one by which it notes the
// connection, an answer, and one more of the caller's. Before that its connection tracking takes the connection for one that
// opens, and forgets it after half a minute. What ends before leaves a word in gv_settled for its last packets (CLOSED). An entry is
// never pushed out, since nobody else knows who called: where a caller has its share (gv_seats), the switch has its connection from the
// first packet on. The agent takes those away of which nothing is heard.
struct own {
	__u64 what;
	__u64 born;
	__u64 check;	  // of these and the tuple
	__u64 visited[2]; // when a packet of each end was last sent to the switch to hand it over
	__u32 last;	  // second of the last packet
	__u32 share;	  // whose seats it takes
	__u32 heard;	  // second in which the switch let an answer through that was handed over; 0: none
	// Bytes, lest one program takes back what another one writes.
	__u8 ended[2]; // an end has said its last word
	__u8 answered;
	__u8 called; // since the switch let an answer through the caller's packets have visited it
	__u8 begun;  // its first packet is counted: the NIC's program may judge one that it cannot carry
	__u8 unused[7];
};

// Above the generation and the slots in what: the end that called, and, in gv_settled, of which the switch knows nothing, and which the
// switch knows and has seen end.
#define CALLER_SHIFT 48
#define CLOSED (1ull << 49)
#define FINISHED (1ull << 50)

// For how long the switch may know a connection that has begun to end: a quarter of an hour, and some.
#define FINISHED_LIFE (1000 * SECOND)
// An answer that the switch let through longer ago says nothing: it may have forgotten the connection since.
#define HEARD_LIFE 20 // seconds

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_OWN);
	__type(key, struct tuple);
	__type(value, struct own);
} gv_own SEC(".maps");

// How many entries of gv_own callers have, by a number of the caller's address, which others may share, and in the last place all. Each of
// these numbers has one writer, or is added to. A caller has no more than half of what is free: so there is room for another one, however
// many are greedy.
#define SHARES 1024

struct seats {
	__u32 began, gone; // how many came to be, and were taken away by programs
	__u32 refused;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SHARES + 1);
	__type(key, __u32);
	__type(value, struct seats);
} gv_seats SEC(".maps");

// How many the agent took away.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SHARES + 1);
	__type(key, __u32);
	__type(value, __u32);
} gv_swept SEC(".maps");

// The generation of now: it is raised before the switch's rules change, and nothing that was noted before counts. Before that it rests
// for a moment (RESTING, above the generation): nothing begins without the switch, so that what has begun is answered. Behind it is what
// the switch knows a HINT by.
enum { GENERATION, SECRET };
#define RESTING 0x10000

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u32);
} gv_generation SEC(".maps");

// What was carried of connections that a rule let through.
struct rule_counter {
	__u64 packets, bytes;
	__u64 began, began_bytes; // of these the first ones of connections
	__u32 rule, unused;	  // the agent's
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_RULES);
	__type(key, __u32);
	__type(value, struct rule_counter);
} gv_rules SEC(".maps");

// Flows of UDP that the kernel is to segment, which gv_underlay leaves to the VXLAN device: all
// that follows goes the same way, so that nothing is overtaken.
struct udp_flow {
	struct addr src, dst;
	__u32 ports;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct udp_flow);
	__type(value, __u8);
} gv_udp_flows SEC(".maps");

// The programs that end with the agent. The kernel empties such a map when the last process that has it open,
// the agent, is gone; programs do not count.
enum { HELD_DELIVER, HELD_ENDPOINT, HELD_UNDERLAY, HELD_LEAVE, HELD_AGAIN, HELD };

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, HELD);
	__type(key, __u32);
	__type(value, __u32);
} gv_held SEC(".maps");

// Whether gv_endpoint is begun again by gv_again, and so an agent holds it. It is set right before that, and taken back first thing: the
// CPU runs nothing else between. Where it does, since the kernel is one for real time, a packet is taken for another's: while an agent
// is there as well.
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} gv_again_held SEC(".maps");

// Nobody writes to it.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} gv_blank SEC(".maps");

// Until when what was judged counts, by bpf_ktime_get_coarse_ns: an agent that hears of nothing does not put it off.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} gv_lease SEC(".maps");

// Of the bridge that is the NIC: the port behind which a MAC address is, where the bridge does nothing else with what the host
// sends. It counts where packets are direct by a judgement, and no longer.
struct port_key {
	__u32 bridge;
	__u8 mac[ETH_ALEN];
	__u16 unused;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_PORTS);
	__type(key, struct port_key);
	__type(value, __u32);
} gv_ports SEC(".maps");

// What follows is for packets that go to a neighbour without headers (GRAPEVINE_ENCAP=auto). A host says in its record once what the
// headers say in each packet: of which networks' subnets its containers are, and from which MAC address they come. So whoever receives
// such a packet knows the headers that its sender would have written, and judges by them as ever. What is of no such statement is no such packet.
struct bare_key {
	__u32 bits;
	__u16 mac[3]; // of who says so
	__u16 unused;
	struct addr addr;
};

#define BARE_BITS (8 * (sizeof(struct bare_key) - sizeof(__u32)))

struct bare {
	__be32 vtep; // of who says so
	__u32 vnid;  // 0: it did
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_BARE);
	__type(key, struct bare_key);
	__type(value, struct bare);
} gv_bare_from SEC(".maps");

// Hosts that may take such packets. Until is when the agent has to have said again that one does, of what this host says now, by
// bpf_ktime_get_coarse_ns; 0: it does not. Token is what gv_bare_out knows packets by that gv_endpoint has judged.
struct bare_mac {
	__u16 mac[3];
	__u16 unused;
};

struct bare_host {
	__be32 vtep;
	__u32 token;
	__u64 until;
	__u32 gateway; // index of gv0, also where the gateway is the switch's alone; 0: there is none
	__u32 pair;    // of gv_bare_pairs; 0: none
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_BARE_HOSTS);
	__type(key, struct bare_mac);
	__type(value, struct bare_host);
} gv_bare_hosts SEC(".maps");

// What this host has sent a neighbour so, and has got from it: the two of them find out by that whether it arrives.
struct bare_pair {
	__u64 sent, taken;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, BARE_PAIRS);
	__type(key, __u32);
	__type(value, struct bare_pair);
} gv_bare_pairs SEC(".maps");

// Sent, delivered, handed to the switch, lost since that could not be done, dropped since they were forged, kept from leaving.
enum { BARE_SENT, BARE_DELIVERED, BARE_SWITCHED, BARE_LOST, BARE_FORGED, BARE_KEPT, BARE_COUNTERS };

struct bare_counter {
	__u64 packets, bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, BARE_COUNTERS);
	__type(key, __u32);
	__type(value, struct bare_counter);
} gv_bare_counts SEC(".maps");

// What follows is for packets that go in WireGuard as they are, without VXLAN. WireGuard takes from a host what is of its addresses, and
// sends it what is for them: gv_in_ranges has the same addresses as the device's peers. So who sent a packet is proven by cryptography, and of
// which network it is its address says, as in the maps of the switch. Whenever the two may differ for a moment the entry is nobody's: the
// agent writes so before it changes what the device has, and the rest behind it.
struct inside {
	struct addr vtep; // whose they are; zero: nobody's
	__u32 vnid;
	__u32 own; // 1: this host's
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_RANGES);
	__type(key, struct range_key);
	__type(value, struct inside);
} gv_in_ranges SEC(".maps");

// Until when a host takes such packets from this one, by bpf_ktime_get_coarse_ns: the agent says it again and again.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_INSIDE_HOSTS);
	__type(key, struct addr);
	__type(value, __u64);
} gv_in_hosts SEC(".maps");

struct inside_self {
	struct addr vtep; // this host's
	__be16 port;	  // of VXLAN
	__u16 on;	  // 0: nothing is sent so, and what comes so is the switch's
	__u32 unused;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct inside_self);
} gv_in_self SEC(".maps");

// The device of WireGuard. The kernel takes it out of such a map when it goes, so that nothing is ever sent to another one that has its number.
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} gv_in_device SEC(".maps");

// Sent, delivered, handed to the switch, lost since that could not be done, dropped since their addresses are nobody's.
enum { INSIDE_SENT, INSIDE_DELIVERED, INSIDE_SWITCHED, INSIDE_LOST, INSIDE_STRAY, INSIDE_COUNTERS };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, INSIDE_COUNTERS);
	__type(key, __u32);
	__type(value, struct bare_counter);
} gv_in_counts SEC(".maps");

// hop is how a packet leaves the NIC.
struct hop {
	struct bpf_redir_neigh next;
	struct ethhdr eth;
	__u32 port; // of the bridge that the NIC is; 0: by the NIC
};

#ifdef VERDICT
struct verdict {
	__u32 ifindex;
	struct addr vtep;
	__u32 vnid;
	__u32 mtu; // not 0: it is answered, with this MTU
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct verdict);
} gv_verdict SEC(".maps");

// The copies of a packet for a group, but for the last one, which is the verdict.
struct copies {
	__u32 of_group; // 1: it is such a packet
	__u32 n;
	struct {
		__u32 ifindex;
		struct addr vtep;
		__u32 vnid;
		__u8 mac[6]; // destination
		__u16 unused;
	} copy[8];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct copies);
} gv_copies SEC(".maps");
#endif

// blank is 0. The kernel's check does not know that: what it knows of numbers it follows by itself, as far as they go. So it goes
// through all that comes behind once for each family, each device or each end, and not once for all.
static __always_inline __u32 blank(void)
{
	__u32 first = 0;
	const __u32 *b = bpf_map_lookup_elem(&gv_blank, &first);

	return b ? *(volatile __u32 *)b : 0;
}

// hide is the number.
static __always_inline __u32 hide(__u32 number, __u32 nothing)
{
	asm volatile("%0 ^= %1" : "+r"(number) : "r"(nothing)); // or the compiler knows better
	return number;
}

// none is 1 if a number is 0, and else 0. It has no branch, of which the kernel's check follows both ways through all that comes behind.
static __always_inline __u32 none(__u32 number)
{
	__u64 n = number;

	asm volatile("" : "+r"(n)); // or the compiler makes a branch of it
	return (n - 1) >> 63;
}

// more is 1 if a number is more than another one, and else 0, without a branch either.
static __always_inline __u32 more(__u32 number, __u32 than)
{
	__u64 n = than;

	asm volatile("%0 -= %1" : "+r"(n) : "r"((__u64)number));
	return n >> 63;
}

static __always_inline int same(const struct addr *a, const struct addr *b)
{
	return a->w[0] == b->w[0] && a->w[1] == b->w[1] && a->w[2] == b->w[2] && a->w[3] == b->w[3];
}

static __always_inline int is_ipv4(const struct addr *a)
{
	return !a->w[0] && !a->w[1] && a->w[2] == bpf_htonl(0xffff);
}

static __always_inline int same_mac(const __u16 *a, const __u16 *b)
{
	return a[0] == b[0] && a[1] == b[1] && a[2] == b[2];
}

static __always_inline const struct config *config(void)
{
	__u32 zero = 0;
	const struct config *c = bpf_map_lookup_elem(&gv_config, &zero);

	return c && c->on ? c : NULL;
}

// linux/icmp.h wants the C library.
enum {
	ICMP_ECHOREPLY = 0, ICMP_DEST_UNREACH = 3, ICMP_ECHO = 8, ICMP_TIME_EXCEEDED = 11, ICMP_PARAMETERPROB = 12, ICMP_TIMESTAMP = 13,
	ICMP_TIMESTAMPREPLY = 14, ICMP_FRAG_NEEDED = 4
};

struct headers {
	struct addr src, dst;
	__u16 mac[3]; // source
	__u8 protocol, tos;
	__u16 fragment; // not 0: it is one
	__u32 at, transport; // where the IP header begins, and what it carries
	__u32 length;	     // of that
};

// second_halves stands before those of 8 bytes on the stack: with them the kernel's check forgets what it knows of the first ones.
static __always_inline void second_halves(void)
{
	asm volatile("" ::: "memory");
}

static __always_inline int parse_ipv4(struct __sk_buff *skb, struct headers *h, __u32 nothing)
{
	struct iphdr ip;
	__u32 length;

	if (bpf_skb_load_bytes(skb, h->at, &ip, sizeof(ip)))
		return -1;
	length = bpf_ntohs(ip.tot_len);
	if (ip.version != 4 || ip.ihl != 5 || length < sizeof(ip) || length > skb->len - h->at)
		return -1;
	h->protocol = ip.protocol;
	h->tos = ip.tos;
	h->fragment = ip.frag_off & bpf_htons(0x3fff);
	h->transport = h->at + sizeof(ip);
	h->src.w[0] = h->dst.w[0] = nothing;
	h->src.w[2] = h->dst.w[2] = hide(bpf_htonl(0xffff), nothing);
	second_halves();
	h->src.w[1] = h->dst.w[1] = nothing;
	h->src.w[3] = ip.saddr;
	h->dst.w[3] = ip.daddr;
	h->length = length - sizeof(ip);
	return 0;
}

// Neighbour discovery is the switch's to answer, and extension headers to read. Errors
// are types 1 to 4 (RFC 4443).
static __always_inline int plain_ipv6(struct __sk_buff *skb, __u8 next, __u32 transport)
{
	__u8 type;

	if (next == IPPROTO_TCP || next == IPPROTO_UDP)
		return 1;
	if (next != IPPROTO_ICMPV6 || bpf_skb_load_bytes(skb, transport, &type, 1))
		return 0;
	return (type && type <= ICMPV6_PARAMPROB) || type == ICMPV6_ECHO_REQUEST || type == ICMPV6_ECHO_REPLY;
}

static __always_inline int parse_ipv6(struct __sk_buff *skb, struct headers *h, __u32 nothing)
{
	struct ipv6hdr ip;

	if (bpf_skb_load_bytes(skb, h->at, &ip, sizeof(ip)))
		return -1;
	h->transport = h->at + sizeof(ip);
	if (ip.version != 6 || bpf_ntohs(ip.payload_len) > skb->len - h->transport || !plain_ipv6(skb, ip.nexthdr, h->transport))
		return -1;
	// Such an address would be taken for IPv4 by the maps.
	if (is_ipv4((struct addr *)&ip.saddr) || is_ipv4((struct addr *)&ip.daddr))
		return -1;
	h->protocol = ip.nexthdr;
	h->tos = ip.priority << 4 | ip.flow_lbl[0] >> 4;
	h->fragment = nothing & bpf_htons(0x3fff);
	for (int i = 0; i < 4; i += 2) {
		h->src.w[i] = hide(ip.saddr.in6_u.u6_addr32[i], nothing);
		h->dst.w[i] = hide(ip.daddr.in6_u.u6_addr32[i], nothing);
	}
	second_halves();
	for (int i = 1; i < 4; i += 2) {
		h->src.w[i] = hide(ip.saddr.in6_u.u6_addr32[i], nothing);
		h->dst.w[i] = hide(ip.daddr.in6_u.u6_addr32[i], nothing);
	}
	h->length = bpf_ntohs(ip.payload_len);
	return 0;
}

// parse fills in h of the Ethernet frame that begins at a place; not 0: it is no packet for us.
static __always_inline int parse(struct __sk_buff *skb, struct headers *h, const __u32 frame, __be16 proto)
{
	h->at = frame + ETH_HLEN;
	if (skb->vlan_present || bpf_skb_load_bytes(skb, frame + ETH_ALEN, h->mac, sizeof(h->mac)))
		return -1;
	if (proto == bpf_htons(ETH_P_IP))
		return parse_ipv4(skb, h, blank());
	if (proto == bpf_htons(ETH_P_IPV6))
		return parse_ipv6(skb, h, blank());
	return -1;
}

static __always_inline const struct range *find_range(const struct addr *a)
{
	struct range_key key = { 128, *a };

	return bpf_map_lookup_elem(&gv_ranges, &key);
}

static __always_inline int zero(const struct addr *a)
{
	return !(a->w[0] | a->w[1] | a->w[2] | a->w[3]);
}

// exceeded is the device's MTU if the packet, or a segment of it, is bigger; 0: it fits;
// negative: there is no such device.
static __always_inline int exceeded(struct __sk_buff *skb, __u32 ifindex)
{
	__u32 mtu = 0;
	int ret = bpf_check_mtu(skb, ifindex, &mtu, 0, BPF_MTU_CHK_SEGS);

	return ret > 0 ? (int)mtu : ret;
}

// number is that of a network's realm (pipeline.Realm); 0: it reaches all.
static __always_inline __u32 number(__u32 vnid, __u32 realm)
{
	if (!realm || !vnid)
		return vnid;
	return realm == EVERYWHERE ? 0 : realm;
}

// check returns the slot of the counter of a VNID with the number from; negative: it and who has the number to may not meet.
static __always_inline __s64 check(__u32 vnid, __u32 from, __u32 to, __u32 slot)
{
	if (!vnid)
		return SLOT_FROM_ZERO;
	if (!from)
		return slot;
	if (!to)
		return SLOT_TO_ZERO;
	return from == to ? (__s64)slot : -1; // the cast: or -1 would be a slot, too
}

static __always_inline void count(__u32 slot, __u32 bytes, int received)
{
	struct counter *c = bpf_map_lookup_elem(&gv_fp_counters, &slot);

	if (!c)
		return;
	if (received) {
		c->received++;
		c->received_bytes += bytes;
	} else {
		c->sent++;
		c->sent_bytes += bytes;
	}
}

static __always_inline void count_all(__u32 bytes, __u32 from, int out_of_range, __u32 to, int received, __s64 vnid)
{
	count(from, bytes, out_of_range);
	count(to, bytes, received);
	count(vnid, bytes, 0);
}

// TCP's flags.
enum { FIN = 1, SYN = 2, RST = 4, PSH = 8, ACK = 16, URG = 32 };

// ride is a packet of a connection that may be settled.
struct ride {
	struct tuple tuple;
	__u8 flags;
	__u8 empty; // nobody misses it if it is late
	__u8 from;  // the end that it is from
	__u8 edge;  // KIND_BEGINS, KIND_EDGE, KIND_ERROR or 0
	__u16 slots[2];
};

// join makes of a packet's ends and their ports the tuple of its connection.
static __always_inline void join(const struct addr *src, const struct addr *dst, __be16 source, __be16 dest, __u32 protocol, struct ride *r)
{
	__u32 low = more(source, dest);
	int i;

	// The lower end comes first.
	for (i = 0; i < 4; i++) {
		if (src->w[i] == dst->w[i])
			continue;
		low = more(src->w[i], dst->w[i]);
		break;
	}
	r->from = low;
	asm volatile("" : "+r"(low)::"memory"); // of what is written above the check is not to learn below
	r->tuple.end[0] = low ? *dst : *src;
	r->tuple.end[1] = low ? *src : *dst;
	r->tuple.port[0] = low ? dest : source;
	r->tuple.port[1] = low ? source : dest;
	r->tuple.protocol = protocol;
}

// ride_of reads which connection a packet belongs to, the same for both directions. Not 0: to none that may be settled.
static __always_inline int ride_of(struct __sk_buff *skb, const struct headers *h, struct ride *r)
{
	struct {
		__be16 source, dest;
		__u32 seq, ack;
		__u8 offset, flags;
	} l4;
	__u32 header;

	if (h->fragment)
		return -1;
	if (h->protocol == IPPROTO_TCP) {
		if (bpf_skb_load_bytes(skb, h->transport, &l4, 14))
			return -1;
		header = (l4.offset >> 4) * 4;
		if (header < 20 || header > h->length)
			return -1;
		r->flags = l4.flags;
		r->empty = none(header ^ h->length);
	} else if (h->protocol == IPPROTO_UDP) {
		if (h->length < sizeof(struct udphdr) || bpf_skb_load_bytes(skb, h->transport, &l4, 4))
			return -1;
		r->flags = ACK;
		r->empty = 0;
	} else {
		return -1;
	}
	join(&h->src, &h->dst, l4.source, l4.dest, h->protocol, r);
	return 0;
}

// mix is the check of an entry.
static __always_inline __u64 mix(const struct tuple *t, __u64 what, __u64 noted)
{
	const __u64 prime = 0x9e3779b97f4a7c15ull;
	__u64 sum = what * prime ^ noted;
	int i;

	for (i = 0; i < 4; i++) {
		sum = (sum ^ t->end[0].w[i] ^ (__u64)t->end[1].w[i] << 32) * prime;
		sum ^= sum >> 29;
	}
	sum = (sum ^ t->port[0] ^ (__u64)t->port[1] << 16 ^ (__u64)t->protocol << 32) * prime;
	return sum ^ sum >> 32;
}

static __always_inline __u32 word(__u32 which)
{
	const __u32 *w = bpf_map_lookup_elem(&gv_generation, &which);

	return w ? *(volatile __u32 *)w : 0;
}

// way_of is from whom a packet goes to which port of whom.
static __always_inline void way_of(const struct ride *r, struct way *w)
{
	__u32 from = r->from;

	w->src = from ? r->tuple.end[1] : r->tuple.end[0];
	w->dst = from ? r->tuple.end[0] : r->tuple.end[1];
	w->port = from ? r->tuple.port[0] : r->tuple.port[1];
	w->unused = 0;
}

// seal is the check of a way.
static __always_inline __u64 seal(const struct way *w, __u64 what, __u64 noted)
{
	const __u64 prime = 0x9e3779b97f4a7c15ull;
	__u64 sum = what * prime ^ noted;
	int i;

	for (i = 0; i < 4; i++) {
		sum = (sum ^ w->src.w[i] ^ (__u64)w->dst.w[i] << 32) * prime;
		sum ^= sum >> 29;
	}
	sum = (sum ^ w->port) * prime;
	return sum ^ sum >> 32;
}

// sound says whether these flags of TCP are ones that the switch takes for a part of a connection.
static __always_inline int sound(__u8 flags)
{
	if (flags & SYN)
		return !(flags & (RST | FIN)) && (flags & ACK || !(flags & (PSH | URG)));
	return flags & ACK || (flags & RST && !(flags & (FIN | PSH | URG)));
}

static __always_inline __u8 edge_of(__u8 flags)
{
	return KIND_EDGE & (none(flags & (FIN | SYN | RST)) - 1);
}

static __always_inline void take_slots(struct ride *r, __u64 what)
{
	r->slots[0] = what >> 16 & (MAX_RULES - 1);
	r->slots[1] = what >> 32 & (MAX_RULES - 1);
}

// taken is how many entries of gv_own a share has.
static __always_inline __u32 taken(__u32 share, struct seats **seats)
{
	const __u32 *swept = bpf_map_lookup_elem(&gv_swept, &share);
	__s32 n;

	*seats = bpf_map_lookup_elem(&gv_seats, &share);
	if (!*seats || !swept)
		return MAX_OWN;
	n = (*seats)->began - (*seats)->gone - *swept;
	return n < 0 ? 0 : n;
}

// share_of is whose seats a caller takes: nobody knows whom he shares them with.
static __always_inline __u32 share_of(const struct addr *a)
{
	__u64 sum = (a->w[0] ^ (__u64)a->w[1] << 32) + word(SECRET);

	sum = (sum ^ sum >> 29) * 0x9e3779b97f4a7c15ull ^ a->w[2] ^ (__u64)a->w[3] << 32;
	sum = (sum ^ sum >> 29) * 0x9e3779b97f4a7c15ull;
	return sum >> 40 & (SHARES - 1);
}

// unown takes a connection away.
static __always_inline void unown(const struct tuple *t, __u32 share)
{
	struct seats *of, *all;

	if (bpf_map_delete_elem(&gv_own, t))
		return; // somebody else did
	taken(share & (SHARES - 1), &of);
	taken(SHARES, &all);
	if (of)
		__sync_fetch_and_add(&of->gone, 1);
	if (all)
		__sync_fetch_and_add(&all->gone, 1);
}

// switched says whether the switch may know an older connection of the same addresses and ports: then it is to see another one begin.
static __always_inline int switched(const struct ride *r, __u64 now)
{
	const struct settled *s = bpf_map_lookup_elem(&gv_settled, &r->tuple);

	return s && !(*(volatile __u64 *)&s->what & CLOSED) && now - *(volatile __u64 *)&s->noted < FINISHED_LIFE;
}

// What rides is asked: whether a connection may begin without the switch, whether what goes on comes to the switch from here, and whether
// the packet comes from the gateway. There an error may be anybody's, as a router's is, and addresses may be forged.
enum { MAY_BEGIN = 1, NEXT_IS_SWITCH = 2, FROM_GATEWAY = 4 };

// begins says whether the packet is the first one of a connection that the switch lets through by its rules of now.
static __always_inline int begins(struct ride *r, __u32 generation, __u64 now, int how)
{
	struct seats *of, *all;
	struct addr caller = {};
	struct granted *g;
	struct own o = {};
	__u64 what, noted;
	struct way w;

	way_of(r, &w);
	g = bpf_map_lookup_elem(&gv_granted, &w);
	if (!g)
		return 0;
	what = *(volatile __u64 *)&g->what;
	noted = *(volatile __u64 *)&g->noted;
	if (*(volatile __u64 *)&g->check != seal(&w, what, noted) || !(what & 0xffff) || (what & 0xffff) != generation || now - noted > GRANT_LIFE)
		return 0;
	if (switched(r, now))
		return 0;
	if (!(how & FROM_GATEWAY)) // all who are there have one share
		caller = w.src;
	o.share = share_of(&caller);
	if (taken(o.share, &of) >= (MAX_OWN - taken(SHARES, &all)) / 2) {
		if (all && how & NEXT_IS_SWITCH)
			__sync_fetch_and_add(&all->refused, 1);
		return 0;
	}
	o.what = what | (__u64)r->from << CALLER_SHIFT;
	o.born = now;
	o.last = now / SECOND;
	o.check = mix(&r->tuple, o.what, o.born);
	if (!of || !all || bpf_map_update_elem(&gv_own, &r->tuple, &o, BPF_NOEXIST))
		return 0;
	__sync_fetch_and_add(&of->began, 1);
	__sync_fetch_and_add(&all->began, 1);
	bpf_map_delete_elem(&gv_settled, &r->tuple);
	take_slots(r, what);
	r->edge = KIND_BEGINS;
	return 1;
}

// own_of is an entry of gv_own as it was read; NULL: there is none, or it is another's.
static __always_inline struct own *own_of(const struct ride *r, __u64 *what, __u64 *born)
{
	struct own *o = bpf_map_lookup_elem(&gv_own, &r->tuple);

	if (!o)
		return NULL;
	*what = *(volatile __u64 *)&o->what;
	*born = *(volatile __u64 *)&o->born;
	return *(volatile __u64 *)&o->check == mix(&r->tuple, *what, *born) ? o : NULL;
}

// lately says whether the switch has just let an answer through that was handed over.
static __always_inline int lately(const struct own *o, __u64 now)
{
	return o->heard && (__u32)(now / SECOND) - o->heard <= HEARD_LIFE;
}

// hands says whether the packet of a connection that is of the rules of now is to visit the switch.
static __always_inline int hands(const struct own *o, const struct ride *r, int caller, __u64 age, __u64 now)
{
	__u32 from = r->from & 1;

	__u64 first = caller ? o->visited[from] : o->visited[!from];

	if (o->ended[0] || o->ended[1])
		return !!first; // the switch may know it already, and is to know that it ends
	if (r->flags & SYN || age <= SETTLED_RENEW || (!r->empty && age <= SETTLED_LATE))
		return 0;
	if (!caller && !first)
		return 0; // the caller is first
	return now - o->visited[from] > SETTLED_VISIT;
}

// rides_own is rides for connections of which the switch knows nothing; negative: it is none of these.
static __always_inline int rides_own(struct ride *r, __u32 generation, int how)
{
	int first = (r->flags & (FIN | SYN | RST | ACK)) == SYN, caller, over;
	__u64 what, born, now = bpf_ktime_get_coarse_ns();
	struct settled s = {};
	__u32 from = r->from & 1;
	struct own *o;

	if (!generation || !sound(r->flags))
		return -1;
	o = own_of(r, &what, &born);
	if (!o)
		return how & MAY_BEGIN && first && begins(r, generation, now, how) ? 1 : -1;
	caller = (what >> CALLER_SHIFT & 1) == from;
	over = (what & 0xffff) != generation;
	if (first && !caller)
		return 0; // it calls itself
	if (first && (over || o->ended[0] || o->ended[1] || !(how & MAY_BEGIN))) {
		// Who calls anew the switch sees: it may know some of what was. So it does where nobody would carry the answer, of which it
		// would know nothing.
		if (how & NEXT_IS_SWITCH)
			unown(&r->tuple, o->share);
		return 0;
	}
	if (o->last != (__u32)(now / SECOND))
		o->last = now / SECOND;
	if (!caller && !o->answered)
		o->answered = 1;
	if (r->flags & (FIN | RST))
		o->ended[from] = 1;
	if (r->flags & RST)
		o->ended[!from] = 1;
	// What has ended while it was handed over stays for a while: the switch is told of its last packets, too, who called.
	if (over || hands(o, r, caller, now - born, now)) {
		if (how & NEXT_IS_SWITCH) {
			o->visited[from] = now;
			if (caller)
				o->called = lately(o, now);
		}
		if (r->flags & (FIN | RST)) { // the switch is to see the next one of these ports
			s.what = FINISHED;
			s.noted = now;
			s.check = mix(&r->tuple, s.what, s.noted);
			bpf_map_update_elem(&gv_settled, &r->tuple, &s, BPF_ANY);
		}
		return 0;
	}
	if (r->flags & (FIN | RST) && o->ended[0] && o->ended[1]) {
		s.what = what | CLOSED;
		s.noted = now;
		s.check = mix(&r->tuple, s.what, s.noted);
		bpf_map_update_elem(&gv_settled, &r->tuple, &s, BPF_ANY);
		unown(&r->tuple, o->share);
	}
	take_slots(r, what);
	r->edge = edge_of(r->flags);
	if (first && !o->begun)
		r->edge = KIND_BEGINS;
	return 1;
}

// error_rides says whether a packet is an error of ICMP with which one end of a connection answers the other, as the switch would take it
// for a part of that connection, if it knew that. Only of connections that it does not know: it lets through what is about others.
static __always_inline int error_rides(struct __sk_buff *skb, const struct headers *h, struct ride *r, int how)
{
	__u32 generation = word(GENERATION) & 0xffff, size, at = h->transport + sizeof(struct icmp6hdr);
	struct addr src, dst;
	__be16 ports[2];
	__u64 what, born;
	__u8 type;

	if (!generation || h->fragment || bpf_skb_load_bytes(skb, h->transport, &type, sizeof(type)))
		return 0;
	if (h->protocol == IPPROTO_ICMP && is_ipv4(&h->src)) {
		struct iphdr ip;

		if (type != ICMP_DEST_UNREACH && type != ICMP_TIME_EXCEEDED && type != ICMP_PARAMETERPROB)
			return 0;
		if (bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)) || ip.version != 4 || ip.ihl != 5 || ip.protocol != IPPROTO_TCP ||
		    ip.frag_off & bpf_htons(0x3fff))
			return 0;
		src = (struct addr){ { 0, 0, bpf_htonl(0xffff), ip.saddr } };
		dst = (struct addr){ { 0, 0, bpf_htonl(0xffff), ip.daddr } };
		size = sizeof(ip);
	} else if (h->protocol == IPPROTO_ICMPV6 && !is_ipv4(&h->src)) { // the number means nothing in IPv4
		struct ipv6hdr ip;

		if (!type || type > ICMPV6_PARAMPROB)
			return 0;
		if (bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)) || ip.version != 6 || ip.nexthdr != IPPROTO_TCP)
			return 0;
		__builtin_memcpy(&src, &ip.saddr, sizeof(src));
		__builtin_memcpy(&dst, &ip.daddr, sizeof(dst));
		size = sizeof(ip);
	} else {
		return 0;
	}
	// 8 bytes of what it quotes are there at least (RFC 792).
	if (h->length < sizeof(struct icmp6hdr) + size + 8 || !same(&src, &h->dst) || (!(how & FROM_GATEWAY) && !same(&dst, &h->src)) ||
	    bpf_skb_load_bytes(skb, at + size, ports, sizeof(ports)))
		return 0;
	join(&dst, &src, ports[1], ports[0], IPPROTO_TCP, r);
	if (!own_of(r, &what, &born) || (what & 0xffff) != generation)
		return 0;
	take_slots(r, what);
	r->edge = KIND_ERROR;
	return 1;
}

// rides says whether the switch has noted that it lets the connection of a packet through, by its rules of now. 0: it has not,
// or it is to see the packet.
static __always_inline int rides(struct __sk_buff *skb, const struct headers *h, struct ride *r, int how)
{
	__u64 what, noted, now, age;
	struct settled end = {}, *s;
	__u32 generation;
	int own;

	if (ride_of(skb, h, r))
		return error_rides(skb, h, r, how);
	generation = word(GENERATION);
	if (generation & RESTING)
		how &= ~MAY_BEGIN;
	generation &= 0xffff;
	if (r->tuple.protocol == IPPROTO_TCP) {
		own = rides_own(r, generation, how);
		if (own >= 0)
			return own;
	}
	s = bpf_map_lookup_elem(&gv_settled, &r->tuple);
	if (!s)
		return 0;
	what = *(volatile __u64 *)&s->what;
	noted = *(volatile __u64 *)&s->noted;
	if (*(volatile __u64 *)&s->check != mix(&r->tuple, what, noted))
		what = 0;
	now = bpf_ktime_get_coarse_ns();
	age = now - noted;
	if (what & CLOSED) {
		if ((r->flags & (SYN | ACK)) == SYN) { // the switch sees another connection begin
			if (how & NEXT_IS_SWITCH)
				bpf_map_delete_elem(&gv_settled, &r->tuple);
			return 0;
		}
		if (!sound(r->flags) || (what & 0xffff) != generation || age > SETTLED_LIFE)
			return 0;
		take_slots(r, what);
		r->edge = edge_of(r->flags);
		return 1;
	}
	// What begins or ends a connection the switch sees, and what it notes is noted after that.
	if (r->flags & (FIN | SYN | RST)) {
		if (r->flags & (FIN | RST)) {
			end.what = FINISHED;
			end.noted = now;
			end.check = mix(&r->tuple, end.what, end.noted);
			bpf_map_update_elem(&gv_settled, &r->tuple, &end, BPF_ANY);
		} else if (how & NEXT_IS_SWITCH && !(what & FINISHED)) {
			bpf_map_delete_elem(&gv_settled, &r->tuple);
		}
		return 0;
	}
	if (!(r->flags & ACK) || !(what & 0xffff) || (what & 0xffff) != generation || age > SETTLED_LIFE)
		return 0;
	if (age > SETTLED_RENEW && (r->empty || age > SETTLED_LATE) && now - s->visited > SETTLED_VISIT) {
		if (how & NEXT_IS_SWITCH)
			s->visited = now;
		return 0;
	}
	take_slots(r, what);
	return 1;
}

// What goes on to the switch of a connection that it does not know bears in its destination's MAC address who called: the packet's
// sender (CALL) or whom it is for (ANSWER), and what nobody else knows. Only the programs write such addresses: what arrives with one
// loses it. gvtun_rx hands it to the switch.
#define HINT 0x0e
enum { CALL = 1, ANSWER = 2 };

static __always_inline void set_router_mac(__u16 *mac);

// How long what comes late may bear a hint: the switch's own connections are kept for 45 s once they end.
#define CLOSED_LIFE (60 * SECOND)

// closed says whether the connection is one that has ended, of which the switch knew nothing.
static __always_inline int closed(const struct ride *r, __u64 *what)
{
	const struct settled *s = bpf_map_lookup_elem(&gv_settled, &r->tuple);
	__u64 noted;

	if (!s)
		return 0;
	*what = *(volatile __u64 *)&s->what;
	noted = *(volatile __u64 *)&s->noted;
	return *what & CLOSED && *(volatile __u64 *)&s->check == mix(&r->tuple, *what, noted) && bpf_ktime_get_coarse_ns() - noted < CLOSED_LIFE;
}

// hand tells the switch what there is to tell of a packet that goes on. What it sees begin is its own.
static __always_inline int hand(struct __sk_buff *skb)
{
	__u32 secret = word(SECRET);
	__u8 mac[ETH_ALEN], hint = 0;
	struct ride r = {};
	__u16 router[3];
	struct headers h;
	__u64 what, born;
	struct own *o;

	if (bpf_skb_load_bytes(skb, 0, mac, sizeof(mac)))
		return GO_ON;
	if (secret && !parse(skb, &h, 0, skb->protocol) && h.protocol == IPPROTO_TCP && !ride_of(skb, &h, &r)) {
		o = own_of(&r, &what, &born);
		if (r.flags & SYN) {
			if (o && !(r.flags & ACK) && (what >> CALLER_SHIFT & 1) == r.from)
				unown(&r.tuple, o->share);
		} else if (o || closed(&r, &what)) {
			hint = (what >> CALLER_SHIFT & 1) == r.from ? CALL : ANSWER;
		}
	}
	if (hint) {
		mac[0] = HINT;
		mac[1] = hint;
		mac[2] = secret >> 24;
		mac[3] = secret >> 16;
		mac[4] = secret >> 8;
		mac[5] = secret;
		bpf_skb_store_bytes(skb, 0, mac, sizeof(mac), 0);
	} else if (mac[0] == HINT) {
		set_router_mac(router);
		bpf_skb_store_bytes(skb, 0, router, sizeof(router), 0);
	}
	return GO_ON;
}

enum { BY_TUNNEL, BY_CONTAINER, BY_GATEWAY };

static __always_inline void count_rule(__u32 slot, __u32 bytes, int begins)
{
	struct rule_counter *c = slot ? bpf_map_lookup_elem(&gv_rules, &slot) : NULL;

	if (!c)
		return;
	c->packets++;
	c->bytes += bytes;
	if (begins) {
		c->began++;
		c->began_bytes += bytes;
	}
}

static __always_inline void count_ride(const struct ride *r, __u32 bytes, int by)
{
	__u32 kind = (r->edge ?: (r->tuple.protocol == IPPROTO_UDP) << 1) | !is_ipv4(&r->tuple.end[0]);
	struct own *o = r->edge == KIND_BEGINS ? bpf_map_lookup_elem(&gv_own, &r->tuple) : NULL;

	if (o)
		o->begun = 1;
	if (by == BY_TUNNEL && r->slots[1])
		count(SLOT_SETTLED_OTHERS + kind, bytes, 1);
	else
		count((by == BY_GATEWAY ? SLOT_SETTLED_OTHERS : SLOT_SETTLED) + kind, bytes, by == BY_CONTAINER);
	count_rule(r->slots[0], bytes, r->edge == KIND_BEGINS);
	count_rule(r->slots[1], bytes, r->edge == KIND_BEGINS);
}

// note notes what the switch says of a packet that it sends: the generation of its rules, and the slots of those two
// that let the connection through, or, of a first packet, all from its sender to its port.
static __always_inline void note(struct __sk_buff *skb, __u16 generation, __u32 egress, __u32 ingress)
{
	__u64 what, born, now = bpf_ktime_get_coarse_ns();
	struct settled s = {};
	struct granted g = {};
	struct ride r = {};
	struct headers h;
	struct way w;
	struct own *o;
	__be16 proto;

	if (!generation || bpf_skb_load_bytes(skb, 2 * ETH_ALEN, &proto, sizeof(proto)) || parse(skb, &h, 0, proto))
		return;
	if (ride_of(skb, &h, &r))
		return;
	s.what = generation | (__u64)egress << 16 | (__u64)ingress << 32;
	if ((r.flags & (FIN | SYN | RST | ACK)) == SYN) {
		way_of(&r, &w);
		g.what = s.what;
		g.noted = now;
		g.check = seal(&w, g.what, g.noted);
		bpf_map_update_elem(&gv_granted, &w, &g, BPF_ANY);
		o = own_of(&r, &what, &born);
		if (o) // the switch knows one of these ends and ports now
			unown(&r.tuple, o->share);
		return;
	}
	if ((r.flags & (FIN | SYN | RST | ACK)) != ACK)
		return;
	if (r.tuple.protocol == IPPROTO_TCP) {
		o = own_of(&r, &what, &born);
		if (o && (what >> CALLER_SHIFT & 1) != r.from) {
			o->heard = now / SECOND;
			return;
		}
		if (o && !(o->called && lately(o, now)))
			return; // the switch would forget it soon
		if (o)
			unown(&r.tuple, o->share);
	}
	s.noted = now;
	s.check = mix(&r.tuple, s.what, s.noted);
	bpf_map_update_elem(&gv_settled, &r.tuple, &s, BPF_ANY);
}

// find_group looks for who gets a packet of a network's; NULL: the switch knows.
static __always_inline const struct group *find_group(const struct headers *h, __u32 vnid)
{
	struct group_key key = { h->dst, vnid };

	if (h->protocol != IPPROTO_UDP || h->fragment)
		return NULL;
	return bpf_map_lookup_elem(&gv_groups, &key);
}

// arrival is a packet from another host that the container dst is to have, or members of a group.
struct arrival {
	const struct range *from;
	const struct local *dst;
	const struct group *group; // NULL: dst is not
	__s64 vnid_slot;
};

// arrive decides about a packet that came from a VTEP with a VNID; not 0: it goes on.
static __always_inline int arrive(const struct headers *h, const struct addr *vtep, __u32 vnid, struct arrival *a)
{
	a->from = find_range(&h->src);
	if (!a->from || zero(&a->from->vtep) || !same(&a->from->vtep, vtep) || a->from->vnid != vnid)
		return -1;
	a->dst = bpf_map_lookup_elem(&gv_locals, &h->dst);
	if (!a->dst) {
		a->group = find_group(h, vnid);
		return a->group && a->group->members ? 0 : -1;
	}
	a->group = NULL;
	if (!a->dst->ifindex)
		return -1;
	a->vnid_slot = check(vnid, number(vnid, a->from->realm), number(a->dst->vnid, a->dst->realm), a->from->vnid_slot ?: a->dst->vnid_slot);
	return a->vnid_slot < 0 ? -1 : 0;
}

static __always_inline void count_arrival(const struct arrival *a, __u32 bytes)
{
	count_all(bytes, a->from->slot, 1, a->dst->slot, 1, a->vnid_slot);
}

// set_router_mac does not copy a constant, which would be one more map.
static __always_inline void set_router_mac(__u16 *mac)
{
	mac[0] = bpf_htons(0x0267);
	mac[1] = bpf_htons(0x7600);
	mac[2] = bpf_htons(0x0001);
}

struct frame {
	__u16 macs[6];
	__be16 proto;
};

// set_ethernet writes the Ethernet header, from the router to a container or, without to, to another
// router; no checksum covers it.
static __always_inline int set_ethernet(struct __sk_buff *skb, const __u16 *to, __be16 proto)
{
	struct frame f = { .proto = proto };

	set_router_mac(f.macs);
	set_router_mac(f.macs + 3);
	if (to)
		__builtin_memcpy(f.macs, to, ETH_ALEN);

	return bpf_skb_store_bytes(skb, 0, &f, ETH_HLEN, 0);
}

// What follows turns a packet that is too big into the answer to its sender: ICMP
// "fragmentation needed" (RFC 792, RFC 1191) or ICMPv6 "packet too big" (RFC 4443, 3.2). No
// state is kept and no rate limited: an answer goes to an address that is proven to be
// the sender's, and is smaller than any packet that causes one.

// Bytes of the packet that the answer quotes, so that it is as long as it may be: 576
// (RFC 1812, 4.3.2.3) and 1280 (RFC 4443, 2.4 (c)). Below these MTUs there is no answer:
// Linux would not believe it, and the packet might not have as many.
#define MIN_MTU4 576
#define MIN_MTU6 1280
#define QUOTE4 (MIN_MTU4 - sizeof(struct iphdr) - sizeof(struct icmphdr))
#define QUOTE6 (MIN_MTU6 - sizeof(struct ipv6hdr) - sizeof(struct icmp6hdr))

#define BEYOND 16 // bytes

struct icmphdr {
	__u8 type, code;
	__u16 checksum;
	__u16 unused, mtu; // RFC 1191, 4
};

// quote cuts the packet down to what is quoted, and makes room for new IP and ICMP headers
// in front; not 0: it is not what it was.
//
// The beginning, some bytes more than the IP header, is taken away and put back: only when
// the place where a checksum was still to begin (CHECKSUM_PARTIAL) goes does the kernel forget
// that there was one to be written, into what is a quotation now.
static __always_inline int quote(struct __sk_buff *skb, __u8 *begin, __u32 ip_size, __u32 bytes)
{
	__s32 size = ip_size + BEYOND;

	return bpf_skb_change_tail(skb, ETH_HLEN + bytes, 0) || bpf_skb_adjust_room(skb, -size, BPF_ADJ_ROOM_MAC, 0) ||
	       bpf_skb_adjust_room(skb, size + ip_size + sizeof(struct icmphdr), BPF_ADJ_ROOM_MAC, 0) ||
	       bpf_skb_store_bytes(skb, ETH_HLEN + ip_size + sizeof(struct icmphdr), begin, size, 0);
}

// fold makes a checksum of a sum.
static __always_inline __u16 fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return ~(sum + (sum >> 16));
}

// add_sum adds bytes of the packet, a multiple of 4, to a sum; negative: there are not as many.
static __always_inline __s64 add_sum(struct __sk_buff *skb, __u32 from, __u32 bytes, __s64 sum)
{
	if (bpf_skb_pull_data(skb, from + bytes))
		return -1;
#pragma unroll
	for (int i = 0; i < MIN_MTU6 / 256; i++) { // bpf_csum_diff takes 512 at a time
		void *data = (void *)(long)skb->data + from + i * 256;
		__u32 part = bytes - i * 256 < 256 ? bytes - i * 256 : 256;

		if (i * 256 >= bytes || sum < 0)
			break;
		if (data + part > (void *)(long)skb->data_end)
			return -1;
		sum = bpf_csum_diff(NULL, 0, data, part, sum);
	}
	return sum;
}

// answer4 and answer6 return GO_ON if the packet, which is as it was, is to have no answer.
static __always_inline int answer4(struct __sk_buff *skb, const struct addr *from, int mtu)
{
	struct {
		struct iphdr ip;
		struct icmphdr icmp;
	} out = {};
	struct {
		struct iphdr ip;
		__u8 beyond[BEYOND];
	} in;
	__s64 sum;

	if (mtu < MIN_MTU4 || bpf_skb_load_bytes(skb, ETH_HLEN, &in, sizeof(in)) || bpf_ntohs(in.ip.tot_len) <= mtu)
		return GO_ON;
	// Neither another fragment than the first is answered nor an error (RFC 1122, 3.2.2).
	if (in.ip.frag_off & bpf_htons(0x1fff))
		return GO_ON;
	if (in.ip.protocol == IPPROTO_ICMP && in.beyond[0] != ICMP_ECHO && in.beyond[0] != ICMP_ECHOREPLY &&
	    in.beyond[0] != ICMP_TIMESTAMP && in.beyond[0] != ICMP_TIMESTAMPREPLY)
		return GO_ON;
	if (quote(skb, (__u8 *)&in, sizeof(in.ip), QUOTE4))
		return TC_ACT_SHOT;
	out.ip.version = 4;
	out.ip.ihl = 5;
	out.ip.tos = 0xc0; // RFC 1812, 4.3.2.5
	out.ip.tot_len = bpf_htons(MIN_MTU4);
	out.ip.frag_off = bpf_htons(0x4000); // so that it needs no ID (RFC 6864)
	out.ip.ttl = 64;
	out.ip.protocol = IPPROTO_ICMP;
	out.ip.saddr = from->w[3];
	out.ip.daddr = in.ip.saddr;
	out.ip.check = fold(bpf_csum_diff(NULL, 0, (__be32 *)&out.ip, sizeof(out.ip), 0));
	out.icmp.type = ICMP_DEST_UNREACH;
	out.icmp.code = ICMP_FRAG_NEEDED;
	out.icmp.mtu = bpf_htons(mtu);
	sum = bpf_csum_diff(NULL, 0, (__be32 *)&out.icmp, sizeof(out.icmp), 0);
	sum = add_sum(skb, ETH_HLEN + sizeof(out), QUOTE4, sum);
	if (sum < 0)
		return TC_ACT_SHOT;
	out.icmp.checksum = fold(sum);
	if (bpf_skb_store_bytes(skb, ETH_HLEN, &out, sizeof(out), 0))
		return TC_ACT_SHOT;
	return 0;
}

static __always_inline int answer6(struct __sk_buff *skb, const struct addr *from, int mtu)
{
	struct {
		struct ipv6hdr ip;
		struct icmp6hdr icmp;
	} out = {};
	struct {
		struct ipv6hdr ip;
		__u8 beyond[BEYOND];
	} in;
	__s64 sum;

	if (mtu < MIN_MTU6 || bpf_skb_load_bytes(skb, ETH_HLEN, &in, sizeof(in)) ||
	    bpf_ntohs(in.ip.payload_len) + sizeof(in.ip) <= mtu)
		return GO_ON;
	if (in.ip.nexthdr == IPPROTO_ICMPV6 && !(in.beyond[0] & ICMPV6_INFOMSG_MASK)) // an error: RFC 4443, 2.4 (e)
		return GO_ON;
	if (quote(skb, (__u8 *)&in, sizeof(in.ip), QUOTE6))
		return TC_ACT_SHOT;
	out.ip.version = 6;
	out.ip.payload_len = bpf_htons(MIN_MTU6 - sizeof(out.ip));
	out.ip.nexthdr = IPPROTO_ICMPV6;
	out.ip.hop_limit = 64;
	__builtin_memcpy(&out.ip.saddr, from, sizeof(out.ip.saddr));
	__builtin_memcpy(&out.ip.daddr, &in.ip.saddr, sizeof(out.ip.daddr));
	out.icmp.icmp6_type = ICMPV6_PKT_TOOBIG;
	out.icmp.icmp6_mtu = bpf_htonl(mtu);
	// The pseudo-header of RFC 8200, 8.1.
	sum = bpf_csum_diff(NULL, 0, (__be32 *)&out.ip.saddr, 2 * sizeof(out.ip.saddr), bpf_htonl(MIN_MTU6 - sizeof(out.ip) + IPPROTO_ICMPV6));
	sum = bpf_csum_diff(NULL, 0, (__be32 *)&out.icmp, sizeof(out.icmp), sum);
	sum = add_sum(skb, ETH_HLEN + sizeof(out), QUOTE6, sum);
	if (sum < 0)
		return TC_ACT_SHOT;
	out.icmp.icmp6_cksum = fold(sum);
	if (bpf_skb_store_bytes(skb, ETH_HLEN, &out, sizeof(out), 0))
		return TC_ACT_SHOT;
	return 0;
}

// answer makes of a packet for which mtu is too little the answer to its sender: from is
// whose answer it is. It returns 0, or what is to become of the packet instead.
static __always_inline int answer(struct __sk_buff *skb, const struct addr *from, int mtu)
{
	if (mtu < 0 || skb->pkt_type == PACKET_BROADCAST || skb->pkt_type == PACKET_MULTICAST)
		return GO_ON;
	return skb->protocol == bpf_htons(ETH_P_IP) ? answer4(skb, from, mtu) : answer6(skb, from, mtu);
}

// What follows is of mode direct.

// outer is what VXLAN puts between the outer Ethernet header and the inner IP header (RFC 7348, 5).
struct outer {
	struct iphdr ip;
	struct udphdr udp;
	__be32 flags, vnid; // the VNID has the upper 24 bits
	struct frame inner;
};

#define OUTER (offsetof(struct outer, inner) + sizeof(struct frame))
#define VXLAN_VNI 0x08000000

enum { ECN = 3, ECN_ECT0 = 2, ECN_CE = 3 }; // RFC 3168, 5
enum { AF_INET = 2, LOOPBACK = 1 };

#ifndef BPF_F_ADJ_ROOM_DECAP_L3_IPV6
#define BPF_F_ADJ_ROOM_DECAP_L3_IPV6 (1ULL << 8) // Linux 6.3
#endif

// sum_header is the checksum of an IP header, 0 if its own is right.
static __always_inline __u16 sum_header(const struct iphdr *ip)
{
	const __u16 *w = (const __u16 *)ip;
	__u32 sum = 0;

#pragma unroll
	for (int i = 0; i < sizeof(*ip) / 2; i++)
		sum += w[i];
	return fold(sum);
}

// plain_outer says whether these are the headers that encapsulate_direct writes, to this host.
static __always_inline int plain_outer(struct __sk_buff *skb, const struct config *c, const struct outer *o)
{
	__u32 length = skb->len - ETH_HLEN;

	return o->ip.version == 4 && o->ip.ihl == 5 && o->ip.protocol == IPPROTO_UDP && o->ip.daddr == c->vtep &&
	       !(o->ip.frag_off & bpf_htons(0x3fff)) && (o->ip.tos & ECN) != ECN_CE && bpf_ntohs(o->ip.tot_len) == length &&
	       !sum_header(&o->ip) && o->udp.dest == c->port && !o->udp.check && bpf_ntohs(o->udp.len) == length - sizeof(o->ip) &&
	       o->flags == bpf_htonl(VXLAN_VNI) && !(o->vnid & bpf_htonl(0xff));
}

// segment is the size of the IP packet, or of the largest one that the kernel makes of it.
static __always_inline __u32 segment(struct __sk_buff *skb, const struct headers *h)
{
	__u8 words;

	if (!skb->gso_size)
		return skb->len - h->at;
	if (h->protocol == IPPROTO_UDP)
		return h->transport - h->at + sizeof(struct udphdr) + skb->gso_size;
	if (h->protocol != IPPROTO_TCP || bpf_skb_load_bytes(skb, h->transport + 12, &words, 1))
		return 0x10000; // more than fits anywhere
	return h->transport - h->at + (words >> 4) * 4 + skb->gso_size;
}

// segmented_udp says whether the packet, or one before it of its flow, is UDP that the kernel is to
// segment: after bpf_skb_adjust_room it would still take it for one in a tunnel, and lose it.
static __always_inline int segmented_udp(struct __sk_buff *skb, const struct headers *h)
{
	struct udp_flow flow = { h->src, h->dst, 0 };
	__u8 yes = 1;

	if (h->protocol != IPPROTO_UDP || bpf_skb_load_bytes(skb, h->transport, &flow.ports, sizeof(flow.ports)))
		return 0;
	if (skb->gso_size)
		bpf_map_update_elem(&gv_udp_flows, &flow, &yes, BPF_ANY);
	return skb->gso_size || bpf_map_lookup_elem(&gv_udp_flows, &flow);
}

// may_leave says whether the flows would let a container's packet go by the gateway, for sure:
// neither VXLAN nor, to a host, gossip, and nothing in which these may hide.
static __always_inline int may_leave(struct __sk_buff *skb, const struct config *c, const struct headers *h, const struct local *src, __u8 to)
{
	__be16 ports[2];

	if (h->fragment || (to != TO_GATEWAY && !src->outside))
		return 0;
	if (h->protocol == IPPROTO_ICMP || h->protocol == IPPROTO_ICMPV6)
		return 1;
	if ((h->protocol != IPPROTO_TCP && h->protocol != IPPROTO_UDP) || bpf_skb_load_bytes(skb, h->transport, ports, sizeof(ports)))
		return 0;
	if (to != TO_OUTSIDE && ports[1] == c->gossip_port)
		return 0;
	return h->protocol == IPPROTO_TCP || ports[1] != c->vxlan_port;
}

// inside: the host takes what is encrypted there (cluster.SecureRange).
static __always_inline __u32 inside(const struct addr *a)
{
	return none((a->w[0] ^ bpf_htonl(0xfd677261)) | (a->w[1] ^ bpf_htonl(0x70650001)));
}

#ifdef VERDICT
static __always_inline int decide(struct verdict *v, int mtu)
{
	__u32 zero = 0;

	v->mtu = mtu;
	bpf_map_update_elem(&gv_verdict, &zero, v, BPF_ANY);
	return TC_ACT_REDIRECT;
}

static __always_inline int deliver(struct __sk_buff *skb, __u32 ifindex, int mtu)
{
	struct verdict v = { .ifindex = ifindex };

	return decide(&v, mtu);
}

static __always_inline void begin_copies(void)
{
	__u32 zero = 0;
	struct copies *c = bpf_map_lookup_elem(&gv_copies, &zero);

	if (c)
		c->of_group = 1;
}

static __always_inline void note_copy(struct __sk_buff *skb, __u32 ifindex, const struct addr *vtep, __u32 vnid)
{
	__u32 zero = 0, n;
	struct copies *c = bpf_map_lookup_elem(&gv_copies, &zero);

	if (!c || c->n >= 8)
		return;
	n = c->n & 7;
	c->copy[n].ifindex = ifindex;
	c->copy[n].vtep = vtep ? *vtep : (struct addr){};
	c->copy[n].vnid = vnid;
	bpf_skb_load_bytes(skb, 0, c->copy[n].mac, ETH_ALEN);
	c->n++;
}

static __always_inline void copy(struct __sk_buff *skb, __u32 ifindex)
{
	note_copy(skb, ifindex, NULL, 0);
}

static __always_inline void copy_to_host(struct __sk_buff *skb, const struct config *c, __u32 vnid, const struct addr *vtep)
{
	note_copy(skb, c->tunnel, vtep, vnid);
}

static __always_inline int deliver_group(struct __sk_buff *skb, const struct group *g, __u32 ifindex)
{
	return deliver(skb, ifindex, 0);
}

static __always_inline int enter(struct __sk_buff *skb, __u32 ifindex)
{
	return deliver(skb, ifindex, 0);
}

static __always_inline int send(struct __sk_buff *skb, __u32 ifindex)
{
	return deliver(skb, ifindex, 0);
}

static __always_inline int encapsulate(struct __sk_buff *skb, const struct config *c, __u32 vnid, const struct addr *vtep, int mtu)
{
	struct verdict v = { .ifindex = c->tunnel, .vtep = *vtep, .vnid = vnid };

	return decide(&v, mtu);
}

static __always_inline int tunnel_header(struct __sk_buff *skb, struct addr *from, __u32 *vnid)
{
	*vnid = skb->cb[0];
	*from = (struct addr){ { skb->cb[1], skb->cb[2], skb->cb[3], skb->cb[4] } };
	return 0;
}

static __always_inline int find_route(struct __sk_buff *skb, __u32 nic, const struct outer *o, __u32 size, struct hop *way)
{
	__u8 there[ETH_ALEN] = { 2, 9 }, here[ETH_ALEN] = { 2, 9 };

	__builtin_memcpy(there + 2, &o->ip.daddr, 4);
	__builtin_memcpy(here + 2, &o->ip.saddr, 4);
	__builtin_memcpy(way->eth.h_dest, there, ETH_ALEN);
	__builtin_memcpy(way->eth.h_source, here, ETH_ALEN);
	way->next.nh_family = AF_INET;
	way->next.ipv4_nh = o->ip.daddr;
	return size > 0xffff; // the test has no routes
}

static __always_inline __u32 find_port(struct __sk_buff *skb, const struct config *c, __u32 nic, const struct hop *way)
{
	return 0; // nor bridges
}

static __always_inline int transmit(struct __sk_buff *skb, __u32 nic, const struct outer *o, struct hop *way)
{
	struct verdict v = { .ifindex = nic, .vtep = { { 0, 0, bpf_htonl(0xffff), o->ip.daddr } }, .vnid = bpf_ntohl(o->vnid) >> 8 };

	return decide(&v, 0);
}

// By WireGuard without VXLAN is as by its device: what its addresses say is what VXLAN would have said.
static __always_inline int transmit_inside(struct __sk_buff *skb, const struct config *c, const struct inside *own, const struct inside *to)
{
	struct verdict v = { .ifindex = c->tunnel, .vtep = to->vtep, .vnid = own->vnid };

	if (set_ethernet(skb, NULL, skb->protocol))
		return TC_ACT_SHOT; // no memory
	return decide(&v, 0);
}

// The test's packets have their Ethernet headers.
#define INSIDE_AT ETH_HLEN

static __always_inline int give_ethernet(struct __sk_buff *skb)
{
	return 0;
}

static __always_inline int transmit_bare(struct __sk_buff *skb, __u32 nic, struct hop *way)
{
	struct verdict v = { .ifindex = nic };

	if (bpf_skb_store_bytes(skb, 0, &way->eth, sizeof(way->eth), 0))
		return TC_ACT_SHOT; // no memory
	return decide(&v, 0);
}
#else
// deliver hands the packet to the container behind the device. For the verdicts: mtu is not 0
// if it is an answer.
static __always_inline int deliver(struct __sk_buff *skb, __u32 ifindex, int mtu)
{
	// To the device that it came in by, the packet was somebody else's.
	if (skb->pkt_type != PACKET_HOST)
		bpf_skb_change_type(skb, PACKET_HOST);
	return bpf_redirect_peer(ifindex, 0);
}

static __always_inline void begin_copies(void)
{
}

// copy hands a copy of the packet to the container behind the device. Its kernel reads by the MAC address who it is for.
static __always_inline void copy(struct __sk_buff *skb, __u32 ifindex)
{
	bpf_clone_redirect(skb, ifindex, 0);
}

// deliver_group is deliver of a packet for a group.
static __always_inline int deliver_group(struct __sk_buff *skb, const struct group *g, __u32 ifindex)
{
	__u32 type = g->mac[0] == 0xffff ? PACKET_BROADCAST : PACKET_MULTICAST;

	if (skb->pkt_type != type)
		bpf_skb_change_type(skb, type);
	return bpf_redirect_peer(ifindex, 0);
}

// enter lets the packet arrive at a device, with all that stands there: packet sockets, others'
// tc programs, nftables' ingress and then the host's stack.
static __always_inline int enter(struct __sk_buff *skb, __u32 ifindex)
{
	return bpf_redirect(ifindex, BPF_F_INGRESS);
}

// send hands the packet to the container behind the device where redirect_peer may not be
// used, at an egress.
static __always_inline int send(struct __sk_buff *skb, __u32 ifindex)
{
	return bpf_redirect(ifindex, 0);
}

static __always_inline __u32 none_of_ipv4(const struct addr *a)
{
	return a->w[0] | a->w[1] | (a->w[2] ^ bpf_htonl(0xffff));
}

// address has the VXLAN device send the packet to a VTEP; not 0: there is no memory.
static __always_inline int address(struct __sk_buff *skb, const struct config *c, __u32 vnid, const struct addr *vtep)
{
	struct bpf_tunnel_key key = { .tunnel_id = vnid, .tunnel_ttl = 64 };
	const struct addr *source = &c->source;
	__u32 ipv4 = none(none_of_ipv4(vtep)), all = -ipv4, other;
	__u64 flags;

	// Of IPv4 the kernel reads the first word only, which is 0 in an addr.
	__builtin_memcpy(key.remote_ipv6, vtep, sizeof(*vtep));
	key.remote_ipv6[0] |= bpf_ntohl(vtep->w[3]) & all;
	__builtin_memcpy(key.local_ipv6, source, sizeof(*source));
	key.local_ipv6[0] |= bpf_ntohl(source->w[3]) & all;
	// RFC 7348, 5: the usual over IPv4 is none; over IPv6 with checksum: RFC 8200, 8.1.
	flags = (BPF_F_ZERO_CSUM_TX & (all | (none(c->unsummed) - 1))) | (BPF_F_TUNINFO_IPV6 & ~all);
	// A source is one of its own family only, and inside what encrypts or not: else the kernel chooses.
	other = none(source->w[0] | source->w[1] | source->w[2] | source->w[3]) | (ipv4 ^ none(none_of_ipv4(source))) | (inside(source) ^ inside(vtep));
	return bpf_skb_set_tunnel_key(skb, &key, KEY_SIZE + ((other - 1) & sizeof(struct addr)), flags);
}

static __always_inline int encapsulate(struct __sk_buff *skb, const struct config *c, __u32 vnid, const struct addr *vtep, int mtu)
{
	if (address(skb, c, vnid, vtep))
		return TC_ACT_SHOT; // no memory
	return bpf_redirect(c->tunnel, 0);
}

// copy_to_host sends a copy of the packet to a VTEP.
static __always_inline void copy_to_host(struct __sk_buff *skb, const struct config *c, __u32 vnid, const struct addr *vtep)
{
	if (!address(skb, c, vnid, vtep))
		bpf_clone_redirect(skb, c->tunnel, 0);
}

// tunnel_header reads who sent the packet to this host; not 0: nobody did.
static __always_inline int tunnel_header(struct __sk_buff *skb, struct addr *from, __u32 *vnid)
{
	struct bpf_tunnel_key key = {};

	if (!bpf_skb_get_tunnel_key(skb, &key, KEY_SIZE, 0))
		*from = (struct addr){ { 0, 0, bpf_htonl(0xffff), bpf_htonl(key.remote_ipv4) } };
	else if (!bpf_skb_get_tunnel_key(skb, &key, KEY_SIZE, BPF_F_TUNINFO_IPV6))
		__builtin_memcpy(from, key.remote_ipv6, sizeof(*from));
	else
		return -1;
	*vnid = key.tunnel_id;
	return 0;
}

// find_route looks up how a packet of this host's leaves it, as for any other: from lo, by all
// rules and routes. Not 0: not by the NIC, or not yet, or size is too big for the way.
static __always_inline int find_route(struct __sk_buff *skb, __u32 nic, const struct outer *o, __u32 size, struct hop *way)
{
	struct bpf_redir_neigh *next = &way->next;
	struct bpf_fib_lookup f = {
		.family = AF_INET,
		.l4_protocol = IPPROTO_UDP,
		.sport = o->udp.source,
		.dport = o->udp.dest,
		.tot_len = size,
		.ifindex = LOOPBACK,
		.ipv4_src = o->ip.saddr,
		.ipv4_dst = o->ip.daddr,
	};

	if (size > 0xffff || bpf_fib_lookup(skb, &f, sizeof(f), 0) || f.ifindex != nic)
		return -1;
	next->nh_family = f.family;
	if (f.family == AF_INET)
		next->ipv4_nh = f.ipv4_dst;
	else
		__builtin_memcpy(next->ipv6_nh, f.ipv6_dst, sizeof(next->ipv6_nh));
	__builtin_memcpy(way->eth.h_dest, f.dmac, ETH_ALEN);
	__builtin_memcpy(way->eth.h_source, f.smac, ETH_ALEN);
	way->eth.h_proto = bpf_htons(ETH_P_IP);
	return 0;
}

// find_port finds the port of a bridge by which that sends to where the packet goes; 0: the bridge is to be asked. It cuts what the
// kernel has still to segment, before it hands it to a port. So all else goes by the bridge, and of this some, in 17 ms of each
// second: the kernel asks again for neighbours that nobody has heard of for long only where it writes their MAC addresses itself.
static __always_inline __u32 find_port(struct __sk_buff *skb, const struct config *c, __u32 nic, const struct hop *way)
{
	struct port_key key = { .bridge = nic };
	const __u32 *port;

	if (nic != c->judged || !skb->gso_size || !(bpf_ktime_get_coarse_ns() >> 24 & 63))
		return 0;
	__builtin_memcpy(key.mac, way->eth.h_dest, ETH_ALEN);
	port = bpf_map_lookup_elem(&gv_ports, &key);
	return port ? *port : 0;
}

// transmit leaves the Ethernet header to the kernel's neighbours, which stay fresh by it.
static __always_inline int transmit(struct __sk_buff *skb, __u32 nic, const struct outer *o, struct hop *way)
{
	if (!way->port)
		return bpf_redirect_neigh(nic, &way->next, sizeof(way->next), 0);
	if (bpf_skb_store_bytes(skb, 0, &way->eth, sizeof(way->eth), 0))
		return TC_ACT_SHOT; // no memory
	return bpf_redirect(way->port, 0);
}

// transmit_inside hands the packet to the device, without its Ethernet header, which the kernel takes off. GO_ON: the device is gone.
static __always_inline int transmit_inside(struct __sk_buff *skb, const struct config *c, const struct inside *own, const struct inside *to)
{
	__u32 first = 0;
	const __u32 *device = bpf_map_lookup_elem(&gv_in_device, &first);

	return device ? bpf_redirect(*device, 0) : GO_ON;
}

// What comes from the device of WireGuard begins with its IP header.
#define INSIDE_AT 0

// give_ethernet puts an Ethernet header before it; not 0: there is no memory.
static __always_inline int give_ethernet(struct __sk_buff *skb)
{
	return bpf_skb_change_head(skb, ETH_HLEN, 0);
}

// transmit_bare writes the neighbour's MAC address, which is in its record: the kernel has looked up that it is still the same.
static __always_inline int transmit_bare(struct __sk_buff *skb, __u32 nic, struct hop *way)
{
	if (bpf_skb_store_bytes(skb, 0, &way->eth, sizeof(way->eth), 0))
		return TC_ACT_SHOT; // no memory
	return bpf_redirect(nic, 0);
}
#endif

static __always_inline void count_bare(__u32 what, __u32 bytes)
{
	struct bare_counter *c = bpf_map_lookup_elem(&gv_bare_counts, &what);

	if (!c)
		return;
	c->packets++;
	c->bytes += bytes;
}

static __always_inline struct bare_pair *bare_pair(const struct bare_host *neighbour)
{
	__u32 pair = neighbour ? neighbour->pair : 0;

	return pair ? bpf_map_lookup_elem(&gv_bare_pairs, &pair) : 0;
}

// said is what a host has said of an address, by the MAC address that a packet comes from.
static __always_inline const struct bare *said(const void *mac, const struct addr *a)
{
	struct bare_key key = { .bits = BARE_BITS, .addr = *a };

	__builtin_memcpy(key.mac, mac, sizeof(key.mac));
	return bpf_map_lookup_elem(&gv_bare_from, &key);
}

// bare_host is the neighbour with a MAC address.
static __always_inline const struct bare_host *bare_host(const void *mac)
{
	struct bare_mac key = {};

	__builtin_memcpy(key.mac, mac, sizeof(key.mac));
	return bpf_map_lookup_elem(&gv_bare_hosts, &key);
}

// may_be_bare says whether the switch of the other host makes of the packet without headers what it makes of it with them, and whether
// that host's kernel hands it on as it came: it takes tunnels apart that it knows, to put packets of one together.
static __always_inline int may_be_bare(struct __sk_buff *skb, __be16 vxlan, const struct headers *h)
{
	__be16 ports[2];

	if (h->fragment)
		return 0;
	if (h->protocol == IPPROTO_UDP)
		return !bpf_skb_load_bytes(skb, h->transport, ports, sizeof(ports)) && ports[1] != vxlan;
	return h->protocol == IPPROTO_TCP || h->protocol == IPPROTO_ICMP || h->protocol == IPPROTO_ICMPV6;
}

// go_bare sends the packet without headers if its receiver, the next hop itself, has heard that it is of that VNID. GO_ON: it has
// not, and nothing was changed.
static __always_inline int go_bare(struct __sk_buff *skb, const struct config *c, __u32 nic, const struct headers *h, __u32 vnid, __be32 vtep, struct hop *way)
{
	const struct bare_host *to;
	const struct bare *own;
	struct bare_pair *pair;

	if (!vnid || way->next.nh_family != AF_INET || way->next.ipv4_nh != vtep || !may_be_bare(skb, c->port, h))
		return GO_ON;
	to = bare_host(way->eth.h_dest);
	if (!to || to->vtep != vtep || bpf_ktime_get_coarse_ns() >= to->until)
		return GO_ON;
	own = said(way->eth.h_source, &h->src);
	if (!own || own->vtep != c->vtep || own->vnid != vnid)
		return GO_ON;
	skb->mark = to->token;
	way->eth.h_proto = skb->protocol;
	count_bare(BARE_SENT, skb->len);
	pair = bare_pair(to);
	if (pair)
		pair->sent++;
	return transmit_bare(skb, nic, way);
}

static __always_inline void count_inside(__u32 what, __u32 bytes)
{
	struct bare_counter *c = bpf_map_lookup_elem(&gv_in_counts, &what);

	if (!c)
		return;
	c->packets++;
	c->bytes += bytes;
}

// find_inside is whose an address is that WireGuard sends to and takes; NULL: nobody's.
static __always_inline const struct inside *find_inside(const struct addr *a)
{
	struct range_key key = { 128, *a };
	const struct inside *i = bpf_map_lookup_elem(&gv_in_ranges, &key);

	return i && !zero(&i->vtep) ? i : NULL;
}

// go_inside sends the packet by WireGuard as it is, if the host that it is for takes it so, and there it is of that VNID. GO_ON: it
// goes by VXLAN, and nothing was changed.
static __always_inline int go_inside(struct __sk_buff *skb, const struct config *c, const struct headers *h, __u32 vnid, const struct addr *vtep)
{
	const struct inside *own, *to;
	const struct inside_self *self;
	const __u64 *until;
	__u32 first = 0;
	int ret;

	self = bpf_map_lookup_elem(&gv_in_self, &first);
	if (!self || !self->on || !vnid || !may_be_bare(skb, self->port, h))
		return GO_ON;
	until = bpf_map_lookup_elem(&gv_in_hosts, vtep);
	if (!until || bpf_ktime_get_coarse_ns() >= *until)
		return GO_ON;
	own = find_inside(&h->src);
	if (!own || !own->own || own->vnid != vnid)
		return GO_ON;
	to = find_inside(&h->dst);
	if (!to || to->own || !same(&to->vtep, vtep))
		return GO_ON;
	ret = transmit_inside(skb, c, own, to);
	if (ret != GO_ON)
		count_inside(INSIDE_SENT, skb->len);
	return ret;
}

// write_outer makes the headers of a packet that is to be as long.
static __always_inline void write_outer(struct __sk_buff *skb, const struct config *c, const struct headers *h, struct outer *o, __be32 from, __be32 to, __u32 vnid, __u32 length, __u32 hash)
{
	o->ip.version = 4;
	o->ip.ihl = 5;
	o->ip.tos = (h->tos & ECN) == ECN_CE ? ECN_ECT0 : h->tos & ECN; // RFC 6040, 4.1, compatibility mode
	o->ip.tot_len = bpf_htons(length);
	o->ip.id = bpf_get_prandom_u32();
	o->ip.ttl = 64;
	o->ip.protocol = IPPROTO_UDP;
	o->ip.saddr = from;
	o->ip.daddr = to;
	o->ip.check = sum_header(&o->ip);
	o->udp.source = bpf_htons(c->least_port + (((__u64)hash * (__u16)(c->end_port - c->least_port)) >> 32));
	o->udp.dest = c->port;
	o->udp.len = bpf_htons(length - sizeof(o->ip));
	o->flags = bpf_htonl(VXLAN_VNI);
	o->vnid = bpf_htonl(vnid << 8);
	set_router_mac(o->inner.macs);
	set_router_mac(o->inner.macs + 3);
	o->inner.proto = skb->protocol;
}

// What of bpf_skb_adjust_room makes room for them.
#define ENCAPSULATE                                                                                                                           \
	(BPF_F_ADJ_ROOM_ENCAP_L3_IPV4 | BPF_F_ADJ_ROOM_ENCAP_L4_UDP | BPF_F_ADJ_ROOM_ENCAP_L2(ETH_HLEN) | BPF_F_ADJ_ROOM_ENCAP_L2_ETH |       \
	 BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_NO_CSUM_RESET)

// encapsulate_direct writes the headers of VXLAN as the VXLAN device does. GO_ON: that has to,
// and nothing was changed. nic is the index of the NIC; 0: there is none. bare: it writes none to who needs none.
static __always_inline int encapsulate_direct(struct __sk_buff *skb, const struct config *c, __u32 nic, const struct headers *h, __u32 vnid, const struct addr *vtep, int bare)
{
	__u32 hash, size = segment(skb, h) + OUTER, length = skb->len - ETH_HLEN + OUTER;
	struct outer o = {};
	struct hop way = {};

	if (!nic || vtep->w[0] || vtep->w[1] || vtep->w[2] != bpf_htonl(0xffff) || length > 0xffff)
		return GO_ON;
	hash = bpf_get_hash_recalc(skb);
	hash ^= hash << 16;
	write_outer(skb, c, h, &o, c->vtep, vtep->w[3], vnid, length, hash);
	if (find_route(skb, nic, &o, size, &way))
		return GO_ON;
	if (bare && c->bare && nic == c->underlay) { // not by a judgement
		int ret = go_bare(skb, c, nic, h, vnid, vtep->w[3], &way);

		if (ret != GO_ON)
			return ret;
		way.eth.h_proto = bpf_htons(ETH_P_IP);
	}
	way.port = find_port(skb, c, nic, &way);
	if (bpf_skb_adjust_room(skb, OUTER, BPF_ADJ_ROOM_MAC, ENCAPSULATE))
		return GO_ON; // it is encapsulated already, or the kernel does not know a flag
	if (bpf_skb_store_bytes(skb, ETH_HLEN, &o, OUTER, 0))
		return TC_ACT_SHOT; // no memory
	return transmit(skb, nic, &o, &way);
}

// What follows is for groups. The last copy is the packet itself.

// members_fit says whether the packet is none too big for a member; less is what it will be shorter by.
static __always_inline int members_fit(struct __sk_buff *skb, const struct group *g, __u32 except, __u32 less, __u32 size)
{
	for (int i = 0; i < MAX_MEMBERS && i < g->members; i++) {
		__u32 mtu = 0, ifindex = g->member[i];

		if (!ifindex || ifindex == except)
			continue;
		if (!less) {
			if (exceeded(skb, ifindex))
				return 0;
		} else if (bpf_check_mtu(skb, ifindex, &mtu, -(__s32)less, 0) || size > mtu) {
			return 0;
		}
	}
	return 1;
}

// to_members hands a copy to each member but one, and returns the device of the last member, who is still to have his; 0: there is none.
// The kernel's check is to know of nothing here what it is: what it knows, it follows by itself through each turn.
static __always_inline __u32 to_members(struct __sk_buff *skb, const struct group *g, __u32 except)
{
	__u32 last = blank();

	for (int i = 0; i < MAX_MEMBERS && i < g->members; i++) {
		__u32 ifindex = g->member[i];

		if (!ifindex || ifindex == except)
			continue;
		if (last)
			copy(skb, last);
		last = *(volatile __u32 *)&g->member[i];
	}
	return last;
}

// arrive_at_group delivers what another host sent to members here, and to nobody else.
static __always_inline int arrive_at_group(struct __sk_buff *skb, const struct arrival *a, __be16 proto)
{
	const struct group *g = a->group;
	__u32 last;

	count(a->from->slot, skb->len, 1);
	count(g->slot, skb->len, 1);
	if (set_ethernet(skb, g->mac, proto))
		return TC_ACT_SHOT; // no memory
	begin_copies();
	last = to_members(skb, g, 0);
	return last ? deliver_group(skb, g, last) : TC_ACT_SHOT;
}

// spread sends what a container sent to a group to the other members here, and to each host with members. To the last of these it is
// direct if what is sent to that host alone is.
static __always_inline int spread(struct __sk_buff *skb, const struct config *c, __u32 nic, const struct headers *h, const struct local *src)
{
	const struct group *g = find_group(h, src->vnid);
	const struct addr *vtep;
	__u32 last, hosts;
	int ret;

	if (!g || src->guarded || !src->vnid)
		return GO_ON;
	if (!g->hosts && (!g->members || (g->members == 1 && g->member[0] == skb->ifindex)))
		return GO_ON; // to nobody
	if (!members_fit(skb, g, skb->ifindex, 0, 0))
		return GO_ON;
	if (g->hosts && (exceeded(skb, c->tunnel_mtu) || (c->tunnel != c->tunnel_mtu && exceeded(skb, c->tunnel))))
		return GO_ON;
	count(src->slot, skb->len, 0);
	count(g->slot, skb->len, 0);
	begin_copies();
	if (g->members) {
		if (set_ethernet(skb, g->mac, skb->protocol))
			return TC_ACT_SHOT; // no memory
		last = to_members(skb, g, skb->ifindex);
		if (!g->hosts)
			return last ? deliver_group(skb, g, last) : TC_ACT_SHOT;
		if (last)
			copy(skb, last);
	}
	if (set_ethernet(skb, NULL, skb->protocol))
		return TC_ACT_SHOT; // no memory
	hosts = g->hosts - 1;
	for (int i = 0; i < MAX_HOSTS - 1 && i < hosts; i++)
		copy_to_host(skb, c, src->vnid, &g->host[i]);
	if (hosts >= MAX_HOSTS)
		return TC_ACT_SHOT; // never
	// The compiler compares one copy of it and counts on another, of which Linux before 6.4 knows no bound.
	asm volatile("" : "+r"(hosts));
	vtep = &g->host[hosts & (MAX_HOSTS - 1)];
	ret = encapsulate_direct(skb, c, nic, h, src->vnid, vtep, 0);
	return ret != GO_ON ? ret : encapsulate(skb, c, src->vnid, vtep, 0);
}

// calls says whether a packet is the first one of a connection of TCP.
static __always_inline int calls(struct __sk_buff *skb, const struct headers *h)
{
	__u8 flags;

	return h->protocol == IPPROTO_TCP && !h->fragment && !bpf_skb_load_bytes(skb, h->transport + 13, &flags, 1) &&
	       (flags & (FIN | SYN | RST | ACK)) == SYN;
}

// judged is the index of the NIC by which packets are direct while an agent holds these programs and hears of changes.
static __always_inline __u32 judged(const struct config *c)
{
	__u32 zero = 0;
	const __u64 *until = bpf_map_lookup_elem(&gv_lease, &zero);

	return until && bpf_ktime_get_coarse_ns() < *until ? c->judged : 0;
}

// goal is where a container's packet goes.
enum { TO_CONTAINER, TO_TUNNEL, TO_GV0 };

struct goal {
	struct addr vtep;
	__u32 ifindex;
	__u32 slot;
	__u16 mac[3];
	__u16 unused;
};

// endpoint is gv_endpoint. What begins at the gateway ends with the agent, as what carries the answers does: the switch would not take
// the answer to a first packet that it has not seen. So does what is direct because it was judged: the agent alone knows what the
// host's rules have become. held says that there is one.
static __always_inline int endpoint(struct __sk_buff *skb, const struct config *c, __u32 held)
{
	__u32 bytes = skb->len, nic = c->underlay, nothing = blank(), kind = TO_TUNNEL, guarded, how = MAY_BEGIN | NEXT_IS_SWITCH;
	struct goal goal = { .vtep = { { nothing, nothing, nothing, nothing } }, .ifindex = 0 };
	const struct local *src, *dst;
	const struct range *to;
	struct ride r = {};
	struct headers h;
	__s64 vnid_slot;
	__u32 slot;
	int mtu, ret;

	if (held && c->judged)
		nic = judged(c);
	nic = hide(nic, nothing);
	held = hide(held, nothing);
	if (parse(skb, &h, 0, skb->protocol))
		return GO_ON;
	src = bpf_map_lookup_elem(&gv_locals, &h.src);
	if (!src || src->ifindex != skb->ifindex || !same_mac(src->mac, h.mac))
		return GO_ON;
	guarded = src->guarded;
	set_router_mac(goal.mac);
	dst = bpf_map_lookup_elem(&gv_locals, &h.dst);
	if (dst) {
		vnid_slot = check(src->vnid, number(src->vnid, src->realm), number(dst->vnid, dst->realm), src->vnid_slot);
		if (!dst->ifindex || dst->ifindex == skb->ifindex || vnid_slot < 0)
			return GO_ON;
		mtu = exceeded(skb, dst->ifindex);
		kind = TO_CONTAINER;
		guarded |= dst->guarded;
		goal.ifindex = dst->ifindex;
		goal.slot = dst->slot;
		__builtin_memcpy(goal.mac, dst->mac, ETH_ALEN);
	} else {
		to = find_range(&h.dst);
		if (!to)
			return GO_ON;
		goal.slot = to->slot;
		if (to->to) {
			// It arrives there, so that the host's stack sees all of it. What is too big for that goes on. Open vSwitch makes
			// its device anew when it starts again: until we know it, go on.
			if (!c->gateway || !may_leave(skb, c, &h, src, to->to) || exceeded(skb, c->gateway))
				return GO_ON;
			if (!held) {
				if (guarded && calls(skb, &h))
					bpf_tail_call(skb, &gv_held, HELD_LEAVE); // falls through if it is not held
				how = NEXT_IS_SWITCH;
			}
			vnid_slot = check(src->vnid, number(src->vnid, src->realm), 0, src->vnid_slot);
			mtu = 0;
			kind = TO_GV0;
			goal.ifindex = c->gateway;
			__builtin_memcpy(goal.mac, c->gateway_mac, ETH_ALEN);
		} else {
			if (zero(&to->vtep))
				return spread(skb, c, nic, &h, src);
			vnid_slot = check(src->vnid, number(src->vnid, src->realm), number(to->vnid, to->realm), src->vnid_slot);
			if (vnid_slot < 0)
				return GO_ON;
			mtu = exceeded(skb, c->tunnel_mtu);
			// So it does with that of the tunnel.
			if (!mtu && c->tunnel != c->tunnel_mtu)
				mtu = exceeded(skb, c->tunnel);
			goal.vtep = to->vtep;
		}
	}
	// From here on the kernel's check does not know which of these it was, and goes through the rest once for all.
	kind = hide(kind, nothing);
	mtu = hide(mtu, nothing);
	how = hide(how, nothing);
	guarded = hide(guarded, nothing);
	slot = hide(vnid_slot, nothing);
	goal.slot = hide(goal.slot, nothing);
	goal.ifindex = hide(goal.ifindex, nothing);
	for (int i = 0; i < 3; i++)
		goal.mac[i] = hide(goal.mac[i], nothing);
	if (guarded && (mtu || !rides(skb, &h, &r, how)))
		return GO_ON;
	if (mtu) {
		if (!zero(&src->router))
			h.dst = src->router;
		ret = answer(skb, &h.dst, mtu);
		if (ret)
			return ret;
		__builtin_memcpy(goal.mac, src->mac, ETH_ALEN);
	}
	ret = GO_ON;
	if (kind == TO_TUNNEL && !mtu && inside(&goal.vtep))
		ret = go_inside(skb, c, &h, src->vnid, &goal.vtep);
	if (kind == TO_TUNNEL && !mtu && ret == GO_ON && c->on & ON_SECURE)
		return GO_ON;
	count_all(bytes, src->slot, 0, goal.slot, kind == TO_CONTAINER, slot);
	if (guarded)
		count_ride(&r, bytes, kind == TO_CONTAINER ? BY_CONTAINER : kind == TO_GV0 ? BY_GATEWAY : BY_TUNNEL);
	if (ret != GO_ON)
		return ret;
	if (kind == TO_TUNNEL && !mtu && !inside(&goal.vtep)) {
		ret = encapsulate_direct(skb, c, nic, &h, src->vnid, &goal.vtep, 1);
		if (ret != GO_ON)
			return ret;
	}
	if (set_ethernet(skb, goal.mac, skb->protocol))
		return TC_ACT_SHOT; // no memory
	if (mtu)
		return deliver(skb, skb->ifindex, mtu);
	if (kind == TO_CONTAINER)
		return deliver(skb, goal.ifindex, 0);
	if (kind == TO_GV0)
		return enter(skb, goal.ifindex);
	return encapsulate(skb, c, src->vnid, &goal.vtep, 0);
}

SEC("tc")
int gv_endpoint(struct __sk_buff *skb)
{
	__u32 zero = 0, *again = bpf_map_lookup_elem(&gv_again_held, &zero), held = again ? *again : 0;
	const struct config *c = config();
	int ret = GO_ON;

	if (held)
		*again = 0;
	if (c && c->judged && !held)
		bpf_tail_call(skb, &gv_held, HELD_ENDPOINT); // falls through if it is not held
	if (c)
		ret = endpoint(skb, c, held);
	return ret == GO_ON ? hand(skb) : ret;
}

// gv_again ends with the agent. It is all that does of what gv_endpoint does: that is not checked and kept twice by the kernel.
SEC("tc")
int gv_again(struct __sk_buff *skb)
{
	__u32 zero = 0, *again = bpf_map_lookup_elem(&gv_again_held, &zero);

	if (again) {
		*again = 1;
		bpf_tail_call(skb, &gv_held, HELD_AGAIN);
		*again = 0;
	}
	return hand(skb);
}

static __always_inline int from_tunnel(struct __sk_buff *skb, const struct config *c)
{
	__u32 bytes = skb->len;
	struct ride r = {};
	struct arrival a;
	struct addr vtep;
	struct headers h;
	int mtu, ret;
	__u32 vnid;

	if (!c || parse(skb, &h, 0, skb->protocol) || tunnel_header(skb, &vtep, &vnid) || arrive(&h, &vtep, vnid, &a))
		return GO_ON;
	if (a.group)
		return members_fit(skb, a.group, 0, 0, 0) ? arrive_at_group(skb, &a, skb->protocol) : GO_ON;
	mtu = exceeded(skb, a.dst->ifindex);
	if (a.dst->guarded && (mtu || !rides(skb, &h, &r, MAY_BEGIN | NEXT_IS_SWITCH)))
		return GO_ON;
	if (mtu) {
		// To the other host only the container can speak: every host has the router's address.
		ret = answer(skb, &h.dst, mtu);
		if (ret)
			return ret;
	}
	count_arrival(&a, bytes);
	if (a.dst->guarded)
		count_ride(&r, bytes, BY_CONTAINER);
	if (set_ethernet(skb, mtu ? NULL : a.dst->mac, skb->protocol))
		return TC_ACT_SHOT; // no memory
	return mtu ? encapsulate(skb, c, a.dst->vnid, &vtep, mtu) : deliver(skb, a.dst->ifindex, 0);
}

SEC("tc")
int gv_tunnel(struct __sk_buff *skb)
{
	int ret = from_tunnel(skb, config());

	return ret == GO_ON ? hand(skb) : ret;
}

// gv_underlay is gv_tunnel, for a packet whose headers of VXLAN are still there. What is odd, and
// what would have to be answered, goes on to the VXLAN device.
static __always_inline int underlay(struct __sk_buff *skb, const struct config *c, __u32 nic)
{
	__u64 flags = BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_NO_CSUM_RESET;
	__u32 vnid, mtu = 0;
	struct ride r = {};
	struct arrival a;
	struct headers h;
	struct addr vtep;
	struct outer o;

	if (!nic || nic != skb->ifindex || skb->protocol != bpf_htons(ETH_P_IP) || skb->pkt_type != PACKET_HOST)
		return GO_ON;
	if (bpf_skb_load_bytes(skb, ETH_HLEN, &o, OUTER) || !plain_outer(skb, c, &o) || parse(skb, &h, OUTER, o.inner.proto))
		return GO_ON;
	vtep = (struct addr){ { 0, 0, bpf_htonl(0xffff), o.ip.saddr } };
	vnid = bpf_ntohl(o.vnid) >> 8;
	if (arrive(&h, &vtep, vnid, &a) || segmented_udp(skb, &h))
		return GO_ON;
	// Not by BPF_MTU_CHK_SEGS, which takes no difference.
	if (a.group) {
		if (!members_fit(skb, a.group, 0, OUTER, segment(skb, &h)))
			return GO_ON;
	} else if (bpf_check_mtu(skb, a.dst->ifindex, &mtu, -(__s32)OUTER, 0) || segment(skb, &h) > mtu) {
		return GO_ON;
	}
	if (a.dst && a.dst->guarded && !rides(skb, &h, &r, MAY_BEGIN))
		return GO_ON;
	if (o.inner.proto == bpf_htons(ETH_P_IPV6))
		flags |= BPF_F_ADJ_ROOM_DECAP_L3_IPV6;
	if (bpf_skb_adjust_room(skb, -(__s32)OUTER, BPF_ADJ_ROOM_MAC, flags))
		return GO_ON;
	bpf_csum_level(skb, BPF_CSUM_LEVEL_DEC); // what the NIC has said was of the outer packet
	if (a.group)
		return arrive_at_group(skb, &a, o.inner.proto);
	count_arrival(&a, skb->len);
	if (a.dst->guarded)
		count_ride(&r, skb->len, BY_CONTAINER);
	if (set_ethernet(skb, a.dst->mac, o.inner.proto))
		return TC_ACT_SHOT; // no memory
	return deliver(skb, a.dst->ifindex, 0);
}

SEC("tc")
int gv_underlay(struct __sk_buff *skb)
{
	const struct config *c = config();

	if (!c)
		return GO_ON;
	if (c->judged)
		bpf_tail_call(skb, &gv_held, HELD_UNDERLAY); // falls through if it is not held
	return underlay(skb, c, c->underlay);
}

// gv_underlay_judged ends with the agent, as what gv_again begins does.
SEC("tc")
int gv_underlay_judged(struct __sk_buff *skb)
{
	const struct config *c = config();

	return c ? underlay(skb, c, judged(c)) : GO_ON;
}

// wrap writes the headers that the sender has left out, for the switch.
static __always_inline int wrap(struct __sk_buff *skb, const struct config *c, const struct headers *h, __be32 from, __u32 vnid)
{
	__u32 hash = bpf_get_hash_recalc(skb), bytes = skb->len, length = bytes - ETH_HLEN + OUTER;
	__be16 proto = bpf_htons(ETH_P_IP);
	struct outer o = {};

	hash ^= hash << 16;
	write_outer(skb, c, h, &o, from, c->vtep, vnid, length, hash);
	if (length > 0xffff || bpf_skb_adjust_room(skb, OUTER, BPF_ADJ_ROOM_MAC, ENCAPSULATE)) {
		count_bare(BARE_LOST, bytes);
		return TC_ACT_SHOT; // the kernel takes it for one in a tunnel already
	}
	bpf_csum_level(skb, BPF_CSUM_LEVEL_INC); // what the NIC has said was of what is the inner packet now
	if (bpf_skb_store_bytes(skb, ETH_HLEN, &o, OUTER, BPF_F_RECOMPUTE_CSUM) || bpf_skb_store_bytes(skb, 2 * ETH_ALEN, &proto, sizeof(proto), 0)) {
		count_bare(BARE_LOST, bytes);
		return TC_ACT_SHOT; // no memory
	}
	count_bare(BARE_SWITCHED, bytes);
	return GO_ON;
}

// gv_bare takes at the NIC what neighbours send without headers. What gv_underlay would deliver it delivers; all else that they have
// sent so it hands to the VXLAN device, as if it had had its headers. It stays for a while when this host has said that it takes no
// such packets any more: the VXLAN device gets all of them then.
SEC("tc")
int gv_bare(struct __sk_buff *skb)
{
	const struct bare *from;
	const struct config *c;
	const struct range *r;
	struct bare_pair *pair;
	struct ride ride = {};
	struct arrival a;
	struct headers h;
	struct addr vtep;
	__u32 zero_key = 0;

	c = bpf_map_lookup_elem(&gv_config, &zero_key);
	if (!c || skb->pkt_type != PACKET_HOST || parse(skb, &h, 0, skb->protocol))
		return GO_ON;
	from = said(h.mac, &h.src);
	if (!from || from->vtep == c->vtep || !from->vnid) {
		// By the ranges it is another host's, and that does not say so: no host sends this.
		r = find_range(&h.src);
		if (!r || zero(&r->vtep) || !bpf_map_lookup_elem(&gv_locals, &h.dst))
			return GO_ON;
		count_bare(BARE_FORGED, skb->len);
		return TC_ACT_SHOT;
	}
	if (!bpf_map_lookup_elem(&gv_locals, &h.dst)) {
		r = find_range(&h.dst);
		if (!r || r->to)
			return GO_ON; // for the host, or for the outside
	}
	pair = bare_pair(bare_host(h.mac));
	if (pair)
		pair->taken++;
	vtep = (struct addr){ { 0, 0, bpf_htonl(0xffff), from->vtep } };
	if (!c->on || c->underlay != skb->ifindex || arrive(&h, &vtep, from->vnid, &a) || a.group || exceeded(skb, a.dst->ifindex))
		return wrap(skb, c, &h, from->vtep, from->vnid);
	if (a.dst->guarded && !rides(skb, &h, &ride, MAY_BEGIN))
		return wrap(skb, c, &h, from->vtep, from->vnid);
	count_arrival(&a, skb->len);
	if (a.dst->guarded)
		count_ride(&ride, skb->len, BY_CONTAINER);
	count_bare(BARE_DELIVERED, skb->len);
	if (set_ethernet(skb, a.dst->mac, skb->protocol))
		return TC_ACT_SHOT; // no memory
	return deliver(skb, a.dst->ifindex, 0);
}

// gv_bare_out keeps from leaving by the NIC to such a neighbour what it would take for a container's of this host, and is none's:
// this host may route for others, and what it routes has its MAC address.
SEC("tc")
int gv_bare_out(struct __sk_buff *skb)
{
	const struct bare_host *to;
	const struct config *c;
	const struct bare *own;
	const struct range *r;
	__u16 mac[ETH_ALEN / 2];
	struct headers h;
	__u32 zero_key = 0;

	if (bpf_skb_load_bytes(skb, 0, mac, sizeof(mac)))
		return GO_ON;
	to = bare_host(mac);
	if (!to)
		return GO_ON;
	if (skb->mark == to->token) {
		skb->mark = 0;
		return GO_ON;
	}
	c = bpf_map_lookup_elem(&gv_config, &zero_key);
	if (!c || !skb->ingress_ifindex || skb->ingress_ifindex == to->gateway || parse(skb, &h, 0, skb->protocol))
		return GO_ON; // of the host itself; by the switch; or it is taken for none
	own = said(h.mac, &h.src);
	if (!own || own->vtep != c->vtep)
		return GO_ON;
	r = find_range(&h.src);
	if (r && !zero(&r->vtep) && !bpf_map_lookup_elem(&gv_locals, &h.src))
		return GO_ON; // it is another host's, so that nobody takes it from this one
	count_bare(BARE_KEPT, skb->len);
	return TC_ACT_SHOT;
}

struct outer6 {
	struct ipv6hdr ip;
	struct udphdr udp;
	__be32 flags, vnid;
	struct frame inner;
};

#define OUTER6 (offsetof(struct outer6, inner) + sizeof(struct frame))

// wrap_inside writes the headers that the sender has left out, for the switch: they come by WireGuard then, from the sender's address there,
// as those that it writes.
static __always_inline int wrap_inside(struct __sk_buff *skb, const struct inside_self *self, const struct inside *from)
{
	__u32 hash = bpf_get_hash_recalc(skb), bytes = skb->len, length = bytes - ETH_HLEN + OUTER6 - sizeof(struct ipv6hdr);
	__u64 flags = BPF_F_ADJ_ROOM_ENCAP_L3_IPV6 | BPF_F_ADJ_ROOM_ENCAP_L4_UDP | BPF_F_ADJ_ROOM_ENCAP_L2(ETH_HLEN) | BPF_F_ADJ_ROOM_ENCAP_L2_ETH |
		      BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_NO_CSUM_RESET;
	__be16 proto = bpf_htons(ETH_P_IPV6);
	struct outer6 o = {};

	o.ip.version = 6;
	o.ip.payload_len = bpf_htons(length);
	o.ip.nexthdr = IPPROTO_UDP;
	o.ip.hop_limit = 64;
	__builtin_memcpy(&o.ip.saddr, &from->vtep, sizeof(o.ip.saddr));
	__builtin_memcpy(&o.ip.daddr, &self->vtep, sizeof(o.ip.daddr));
	o.udp.source = bpf_htons(0xc000 | (hash ^ hash >> 16));
	o.udp.dest = self->port;
	o.udp.len = bpf_htons(length);
	o.flags = bpf_htonl(VXLAN_VNI);
	o.vnid = bpf_htonl(from->vnid << 8);
	set_router_mac(o.inner.macs);
	set_router_mac(o.inner.macs + 3);
	o.inner.proto = skb->protocol;
	if (length > 0xffff || bpf_skb_adjust_room(skb, OUTER6, BPF_ADJ_ROOM_MAC, flags)) {
		count_inside(INSIDE_LOST, bytes);
		return TC_ACT_SHOT;
	}
	bpf_csum_level(skb, BPF_CSUM_LEVEL_INC); // what is known of its checksum is of the inner packet now
	if (bpf_skb_store_bytes(skb, ETH_HLEN, &o, OUTER6, BPF_F_RECOMPUTE_CSUM) || bpf_skb_store_bytes(skb, 2 * ETH_ALEN, &proto, sizeof(proto), 0)) {
		count_inside(INSIDE_LOST, bytes);
		return TC_ACT_SHOT; // no memory
	}
	count_inside(INSIDE_SWITCHED, bytes);
	return GO_ON;
}

// gv_inside takes what other hosts send by WireGuard without VXLAN. What gv_tunnel would deliver, if it had come by VXLAN, it delivers, and
// all else it hands to the switch, as if it had. VXLAN goes on.
SEC("tc")
int gv_inside(struct __sk_buff *skb)
{
	const struct inside_self *self;
	const struct inside *from;
	const struct config *c;
	struct ride r = {};
	struct arrival a;
	struct headers h;
	struct addr src;
	__u32 first = 0;

	if (skb->protocol == bpf_htons(ETH_P_IPV6) && !bpf_skb_load_bytes(skb, INSIDE_AT + offsetof(struct ipv6hdr, saddr), &src, sizeof(src)) && inside(&src))
		return GO_ON;
	self = bpf_map_lookup_elem(&gv_in_self, &first);
	c = bpf_map_lookup_elem(&gv_config, &first);
	if (!self || !c || give_ethernet(skb))
		return TC_ACT_SHOT; // no memory
	if (parse(skb, &h, 0, skb->protocol) || !(from = find_inside(&h.src)) || from->own) {
		count_inside(INSIDE_STRAY, skb->len);
		return TC_ACT_SHOT;
	}
	if (!c->on || !self->on || arrive(&h, &from->vtep, from->vnid, &a) || a.group || exceeded(skb, a.dst->ifindex))
		return wrap_inside(skb, self, from);
	if (a.dst->guarded && !rides(skb, &h, &r, MAY_BEGIN))
		return wrap_inside(skb, self, from);
	count_arrival(&a, skb->len);
	if (a.dst->guarded)
		count_ride(&r, skb->len, BY_CONTAINER);
	count_inside(INSIDE_DELIVERED, skb->len);
	if (set_ethernet(skb, a.dst->mac, skb->protocol))
		return TC_ACT_SHOT; // no memory
	return deliver(skb, a.dst->ifindex, 0);
}

static __always_inline int from_gateway(struct __sk_buff *skb, const struct config *c)
{
	const struct range *from;
	const struct local *dst;
	struct ride r = {};
	struct headers h;

	if (!c || !c->gateway || c->gateway != skb->ifindex || parse(skb, &h, 0, skb->protocol))
		return GO_ON;
	from = find_range(&h.src);
	if (!from || !from->from)
		return GO_ON;
	dst = bpf_map_lookup_elem(&gv_locals, &h.dst);
	if (!dst || !dst->ifindex || exceeded(skb, dst->ifindex))
		return GO_ON;
	// The switch notes what comes in from outside to who leaves by another host.
	if (!dst->outside && from->to != TO_GATEWAY)
		return GO_ON;
	if (dst->guarded && !rides(skb, &h, &r, MAY_BEGIN | NEXT_IS_SWITCH | FROM_GATEWAY))
		return GO_ON;
	count_all(skb->len, from->slot, 1, dst->slot, 1, SLOT_FROM_ZERO);
	if (dst->guarded)
		count_ride(&r, skb->len, BY_CONTAINER);
	if (set_ethernet(skb, dst->mac, skb->protocol))
		return TC_ACT_SHOT; // no memory
	return send(skb, dst->ifindex);
}

// gv_deliver delivers what the host sends, or forwards, to a container of its own.
SEC("tc")
int gv_deliver(struct __sk_buff *skb)
{
	int ret = from_gateway(skb, config());

	return ret == GO_ON ? hand(skb) : ret;
}

// gv_gateway delivers nothing by itself. Without an agent, too, the switch is told of connections that have begun without it.
SEC("tc")
int gv_gateway(struct __sk_buff *skb)
{
	bpf_tail_call(skb, &gv_held, HELD_DELIVER); // falls through if it is not held
	return hand(skb);
}

// The switch marks what it lets through without a judgement: the first byte of the source MAC address is one that no
// interface has. Behind it are the generation (16 bits) and, to a container, the slots of both rules (12 bits each). Into the
// tunnel, where the VNID stays behind the generation, the slot of the one rule is in the destination's: 4 bits above the lowest two
// of the first byte, and the second byte.
#define MARK 3
#define INGRESS 0x40 // in the destination's first byte: of a rule for ingress

SEC("tc")
int gv_note_local(struct __sk_buff *skb)
{
	__u8 mac[ETH_ALEN];
	__u16 router[3];

	if (bpf_skb_load_bytes(skb, ETH_ALEN, mac, sizeof(mac)) || mac[0] != MARK)
		return GO_ON;
	note(skb, mac[1] << 8 | mac[2], (mac[4] & 0xf) << 8 | mac[5], mac[3] << 4 | mac[4] >> 4);
	set_router_mac(router);
	bpf_skb_store_bytes(skb, ETH_ALEN, router, sizeof(router), 0);
	return GO_ON;
}

SEC("tc")
int gv_note_tunnel(struct __sk_buff *skb)
{
	__u8 mac[2 * ETH_ALEN], ingress;
	__u32 slot;

	if (bpf_skb_load_bytes(skb, 0, mac, sizeof(mac)) || mac[6] != MARK)
		return GO_ON;
	slot = (mac[0] >> 2 & 0xf) << 8 | mac[1];
	ingress = mac[0] & INGRESS;
	note(skb, mac[7] << 8 | mac[8], ingress ? 0 : slot, ingress ? slot : 0);
	mac[0] = 2;
	mac[1] = 1;
	mac[6] = 2;
	mac[7] = mac[8] = 0;
	bpf_skb_store_bytes(skb, 0, mac, sizeof(mac), 0);
	return GO_ON;
}

char _license[] SEC("license") = "GPL";
