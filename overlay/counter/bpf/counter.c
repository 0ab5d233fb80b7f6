// SPDX-License-Identifier: Apache-2.0
//
// gv_count counts what containers send, by connection: at the ingress of the host's end of each container's
// veth, and what the host and the outside send to them, at the egress of gv0. It stands in front of the fast path
// and of Open vSwitch, so that each packet is counted once, by whomever it is carried then. Its answer is always
// "go on": it can come and go under traffic.
//
// An entry is one direction of a connection, as it came by one interface: whoever writes another's address into his packets
// adds nothing to what that one sends. Of the room each interface has at most twice what is free, so one that floods leaves a
// third of it, and the less each the more there are of them. What there is no room for is counted as lost. Package counter reads the
// map, removes what has ended, and says how much of it each interface has.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define MAX_HALVES 16384
#define MAX_SHARES 4096

struct addr {
	__u32 w[4]; // network order; IPv4 as ::ffff:a.b.c.d
};

struct half {
	struct addr src, dst;
	__be16 sport, dport; // of ICMP's echoes: both are the identifier
	__u8 protocol, unused[3];
	__u32 ifindex;
};

struct count {
	__u64 packets, bytes;
	__u64 first, last; // nanoseconds since the host started
	__u8 flags;  // all that TCP's had; of ICMP 1: it was an echo request
	__u8 opened; // those of the first packet
	__u16 tick;  // of the kernel's, in which last was noted
	__u8 unused[4];
};

struct lost {
	__u64 packets, bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_HALVES);
	__type(key, struct half);
	__type(value, struct count);
} gv_halves SEC(".maps");

// Of each interface how many entries it has; 0: all of them. What the agent removes it takes off at its next look.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_SHARES);
	__type(key, __u32);
	__type(value, __u32);
} gv_shares SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lost);
} gv_uncounted SEC(".maps");

enum { ECHO_REPLY = 0, ECHO = 8, ECHO6 = 128, ECHO_REPLY6 = 129 };

// transport reads the ports; what has none, or is not all there, has 0.
static __always_inline __u8 transport(struct __sk_buff *skb, struct half *h, __u32 at)
{
	__u8 flags = 0;

	switch (h->protocol) {
	case IPPROTO_TCP:
		if (bpf_skb_load_bytes(skb, at + 13, &flags, 1))
			return 0;
	case IPPROTO_UDP: // falls through
	case IPPROTO_SCTP:
		bpf_skb_load_bytes(skb, at, &h->sport, 4);
		return flags;
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		if (bpf_skb_load_bytes(skb, at, &flags, 1))
			return 0;
		if (flags != (h->protocol == IPPROTO_ICMP ? ECHO : ECHO6) && flags != (h->protocol == IPPROTO_ICMP ? ECHO_REPLY : ECHO_REPLY6))
			return 0;
		bpf_skb_load_bytes(skb, at + 4, &h->sport, 2);
		h->dport = h->sport;
		return flags == ECHO || flags == ECHO6;
	}
	return 0;
}

// whole reads what most packets are, TCP and UDP in IPv4 without options, where their headers can be read at once: that takes a third
// of what helpers take; 0: it is not such.
static __always_inline int whole(struct __sk_buff *skb, struct half *h, __u8 *flags)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct iphdr *ip = data + ETH_HLEN;
	__u8 *ports = (void *)(ip + 1);

	if (skb->protocol != bpf_htons(ETH_P_IP) || (void *)(ports + 8) > end || ip->version != 4 || ip->ihl != 5 || ip->frag_off & bpf_htons(0x1fff))
		return 0;
	if (ip->protocol == IPPROTO_TCP) {
		if ((void *)(ports + 14) > end)
			return 0;
		*flags = ports[13];
	} else if (ip->protocol != IPPROTO_UDP) {
		return 0;
	}
	h->src.w[2] = h->dst.w[2] = bpf_htonl(0xffff);
	h->src.w[3] = ip->saddr;
	h->dst.w[3] = ip->daddr;
	h->protocol = ip->protocol;
	*(__u32 *)&h->sport = *(__u32 *)ports;
	return 1;
}

// parts reads all else, part by part, wherever it lies in the packet; 0: it is not IP.
static __always_inline int parts(struct __sk_buff *skb, struct half *h, __u8 *flags)
{
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		struct iphdr ip;

		if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)) || ip.version != 4 || ip.ihl < 5)
			return 0;
		h->src = (struct addr){ { 0, 0, bpf_htonl(0xffff), ip.saddr } };
		h->dst = (struct addr){ { 0, 0, bpf_htonl(0xffff), ip.daddr } };
		h->protocol = ip.protocol;
		if (!(ip.frag_off & bpf_htons(0x1fff)))
			*flags = transport(skb, h, ETH_HLEN + ip.ihl * 4);
		return 1;
	}
	if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr ip;

		if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)) || ip.version != 6)
			return 0;
		__builtin_memcpy(&h->src, &ip.saddr, sizeof(h->src));
		__builtin_memcpy(&h->dst, &ip.daddr, sizeof(h->dst));
		h->protocol = ip.nexthdr;
		*flags = transport(skb, h, ETH_HLEN + sizeof(ip));
		return 1;
	}
	return 0;
}

// begin makes an entry, if there is room for one more of its interface.
static __always_inline struct count *begin(struct half *h, struct count *fresh)
{
	__u32 zero = 0, none = 0, *mine, *all;

	all = bpf_map_lookup_elem(&gv_shares, &zero);
	mine = bpf_map_lookup_elem(&gv_shares, &h->ifindex);
	if (!mine) {
		bpf_map_update_elem(&gv_shares, &h->ifindex, &none, BPF_NOEXIST);
		mine = bpf_map_lookup_elem(&gv_shares, &h->ifindex);
	}
	if (all && (*all >= MAX_HALVES || (mine && *mine >= 2 * (MAX_HALVES - *all))))
		return 0;
	// Another processor may be quicker: then there is one.
	if (!bpf_map_update_elem(&gv_halves, h, fresh, BPF_NOEXIST)) {
		if (all)
			__sync_fetch_and_add(all, 1);
		if (mine)
			__sync_fetch_and_add(mine, 1);
	}
	return bpf_map_lookup_elem(&gv_halves, h);
}

SEC("tc")
int gv_count(struct __sk_buff *skb)
{
	struct half h = {};
	struct count *c, fresh = {};
	struct lost *l;
	__u16 tick = bpf_jiffies64();
	__u32 zero = 0;
	__u8 flags = 0;

	if (!whole(skb, &h, &flags) && !parts(skb, &h, &flags))
		return TC_ACT_UNSPEC;
	h.ifindex = skb->ifindex;
	c = bpf_map_lookup_elem(&gv_halves, &h);
	if (!c) {
		fresh.first = fresh.last = bpf_ktime_get_ns();
		fresh.opened = flags;
		fresh.tick = tick;
		c = begin(&h, &fresh);
	}
	if (!c) {
		l = bpf_map_lookup_elem(&gv_uncounted, &zero);
		if (l) {
			l->packets++;
			l->bytes += skb->len;
		}
		return TC_ACT_UNSPEC;
	}
	__sync_fetch_and_add(&c->packets, 1);
	__sync_fetch_and_add(&c->bytes, skb->len);
	if (c->tick != tick) { // to ask the clock takes a third of all that this does: last is as of the first packet in a tick
		c->tick = tick;
		c->last = bpf_ktime_get_ns();
	}
	if ((c->flags | flags) != c->flags)
		c->flags |= flags;
	return TC_ACT_UNSPEC;
}

char _license[] SEC("license") = "GPL";
