// SPDX-License-Identifier: Apache-2.0
//
// The fast path: two tc programs before Open vSwitch. gv_endpoint stands at the ingress
// of the host's end of each container's veth, gv_tunnel at that of the VXLAN device.
// They forward what the maps decide and let everything else go on untouched, to the
// next filter of the device or to Open vSwitch: whatever is odd, unknown, forbidden or
// too big gets its verdict, its answer and its counter there.
//
// The maps are filled by package fastpath, whose Contents.Verdict says the same in Go.
//
// With -DVERDICT the programs write down what they would do with a packet instead of
// doing it, and take the tunnel header from skb->cb: for the test that compares them
// with Open vSwitch.
//
// Needs Linux 5.12 (bpf_check_mtu; bpf_redirect_peer is of 5.10).
#include <stddef.h>
#include <linux/bpf.h>
#include <linux/icmpv6.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define MAX_LOCALS 16384
#define MAX_RANGES 65536
#define MAX_SLOTS 32768

#define GO_ON TC_ACT_UNSPEC

// The key without its later additions: every kernel takes this size.
#define KEY_SIZE offsetof(struct bpf_tunnel_key, local_ipv6)

struct addr {
	__u32 w[4]; // network order; IPv4 as ::ffff:a.b.c.d (RFC 4291, 2.5.5.2)
};

struct local {
	__u32 ifindex; // host's end of the container's veth; 0: the switch decides
	__u32 vnid;
	__u16 mac[3];
	__u16 unused;
	__u32 slot;	 // of gv_counters, for this address
	__u32 vnid_slot; // and for packets between equal VNIDs
};

struct range_key {
	__u32 bits;
	struct addr addr;
};

struct range {
	struct addr vtep; // zero: the switch decides
	__u32 vnid;
	__u32 slot;
};

struct config {
	__u32 on;	  // 0: everything goes on
	__u32 tunnel;	  // index of the VXLAN device
	__u32 tunnel_mtu; // index of a device with the largest MTU that the tunnel carries
};

struct counter {
	__u64 sent, sent_bytes;		// by the address; into the range
	__u64 received, received_bytes; // by the address; out of the range
};

// Slots that belong to no entry: packets that pass since the sender or the receiver
// is privileged.
enum { SLOT_FROM_ZERO, SLOT_TO_ZERO };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct config);
} gv_config SEC(".maps");

// Not preallocated: an element that was deleted is not written to while a program may
// still read it.
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

#ifdef VERDICT
struct verdict {
	__u32 ifindex;
	struct addr vtep;
	__u32 vnid;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct verdict);
} gv_verdict SEC(".maps");
#endif

static const __u16 router_mac[3] = { bpf_htons(0x0267), bpf_htons(0x7600), bpf_htons(0x0001) };

static __always_inline int same(const struct addr *a, const struct addr *b)
{
	return a->w[0] == b->w[0] && a->w[1] == b->w[1] && a->w[2] == b->w[2] && a->w[3] == b->w[3];
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

struct headers {
	struct addr src, dst;
	__u16 mac[3]; // source
};

static __always_inline int parse_ipv4(struct __sk_buff *skb, struct headers *h)
{
	struct iphdr ip;
	__u32 length;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)))
		return -1;
	length = bpf_ntohs(ip.tot_len);
	if (ip.version != 4 || ip.ihl != 5 || length < sizeof(ip) || length > skb->len - ETH_HLEN)
		return -1;
	h->src = (struct addr){ { 0, 0, bpf_htonl(0xffff), ip.saddr } };
	h->dst = (struct addr){ { 0, 0, bpf_htonl(0xffff), ip.daddr } };
	return 0;
}

// Neighbour discovery is the switch's to answer, and extension headers to read.
static __always_inline int plain_ipv6(struct __sk_buff *skb, __u8 next)
{
	__u8 type;

	if (next == IPPROTO_TCP || next == IPPROTO_UDP)
		return 1;
	if (next != IPPROTO_ICMPV6 || bpf_skb_load_bytes(skb, ETH_HLEN + sizeof(struct ipv6hdr), &type, 1))
		return 0;
	return type == ICMPV6_ECHO_REQUEST || type == ICMPV6_ECHO_REPLY;
}

static __always_inline int parse_ipv6(struct __sk_buff *skb, struct headers *h)
{
	struct ipv6hdr ip;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)))
		return -1;
	if (ip.version != 6 || bpf_ntohs(ip.payload_len) > skb->len - ETH_HLEN - sizeof(ip) || !plain_ipv6(skb, ip.nexthdr))
		return -1;
	__builtin_memcpy(&h->src, &ip.saddr, sizeof(h->src));
	__builtin_memcpy(&h->dst, &ip.daddr, sizeof(h->dst));
	return 0;
}

// parse fills in h; not 0: it is no packet for us.
static __always_inline int parse(struct __sk_buff *skb, struct headers *h)
{
	if (skb->vlan_present || bpf_skb_load_bytes(skb, ETH_ALEN, h->mac, sizeof(h->mac)))
		return -1;
	if (skb->protocol == bpf_htons(ETH_P_IP))
		return parse_ipv4(skb, h);
	if (skb->protocol == bpf_htons(ETH_P_IPV6))
		return parse_ipv6(skb, h);
	return -1;
}

static __always_inline const struct range *find_range(const struct addr *a)
{
	struct range_key key = { 128, *a };
	const struct range *r = bpf_map_lookup_elem(&gv_ranges, &key);

	return r && (r->vtep.w[0] | r->vtep.w[1] | r->vtep.w[2] | r->vtep.w[3]) ? r : NULL;
}

// fits says whether there is the device and it carries the packet, or each segment of it.
static __always_inline int fits(struct __sk_buff *skb, __u32 ifindex)
{
	__u32 mtu = 0;

	return !bpf_check_mtu(skb, ifindex, &mtu, 0, BPF_MTU_CHK_SEGS);
}

// check returns the slot of the VNID's counter; negative: the two may not meet.
static __always_inline __s64 check(__u32 from, __u32 to, __u32 slot)
{
	if (!from)
		return SLOT_FROM_ZERO;
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

static __always_inline void count_all(struct __sk_buff *skb, __u32 from, int out_of_range, __u32 to, int received, __s64 vnid)
{
	count(from, skb->len, out_of_range);
	count(to, skb->len, received);
	count(vnid, skb->len, 0);
}

// set_macs writes both addresses; no checksum covers them.
static __always_inline int set_macs(struct __sk_buff *skb, const __u16 *to)
{
	__u16 macs[6] = { to[0], to[1], to[2], router_mac[0], router_mac[1], router_mac[2] };

	return bpf_skb_store_bytes(skb, 0, macs, sizeof(macs), 0);
}

#ifdef VERDICT
static __always_inline int decide(struct verdict *v)
{
	__u32 zero = 0;

	bpf_map_update_elem(&gv_verdict, &zero, v, BPF_ANY);
	return TC_ACT_REDIRECT;
}

static __always_inline int deliver(struct __sk_buff *skb, const struct local *dst)
{
	struct verdict v = { .ifindex = dst->ifindex };

	return set_macs(skb, dst->mac) ? TC_ACT_SHOT : decide(&v);
}

static __always_inline int encapsulate(struct __sk_buff *skb, const struct config *c, __u32 vnid, const struct range *r)
{
	struct verdict v = { .ifindex = c->tunnel, .vtep = r->vtep, .vnid = vnid };

	return set_macs(skb, router_mac) ? TC_ACT_SHOT : decide(&v);
}

static __always_inline int tunnel_header(struct __sk_buff *skb, struct addr *from, __u32 *vnid)
{
	*vnid = skb->cb[0];
	*from = (struct addr){ { skb->cb[1], skb->cb[2], skb->cb[3], skb->cb[4] } };
	return 0;
}
#else
static __always_inline int deliver(struct __sk_buff *skb, const struct local *dst)
{
	if (set_macs(skb, dst->mac))
		return TC_ACT_SHOT; // no memory
	// To the device that it came in by, the packet was somebody else's.
	if (skb->pkt_type != PACKET_HOST)
		bpf_skb_change_type(skb, PACKET_HOST);
	return bpf_redirect_peer(dst->ifindex, 0);
}

static __always_inline int encapsulate(struct __sk_buff *skb, const struct config *c, __u32 vnid, const struct range *r)
{
	struct bpf_tunnel_key key = { .tunnel_id = vnid, .tunnel_ttl = 64 };
	__u64 flags;

	if (!r->vtep.w[0] && !r->vtep.w[1] && r->vtep.w[2] == bpf_htonl(0xffff)) {
		key.remote_ipv4 = bpf_ntohl(r->vtep.w[3]);
		flags = BPF_F_ZERO_CSUM_TX; // RFC 7348, 5: the usual over IPv4
	} else {
		__builtin_memcpy(key.remote_ipv6, &r->vtep, sizeof(r->vtep));
		flags = BPF_F_TUNINFO_IPV6; // with checksum: RFC 8200, 8.1
	}
	if (set_macs(skb, router_mac) || bpf_skb_set_tunnel_key(skb, &key, KEY_SIZE, flags))
		return TC_ACT_SHOT; // no memory
	return bpf_redirect(c->tunnel, 0);
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
#endif

SEC("tc")
int gv_endpoint(struct __sk_buff *skb)
{
	const struct config *c = config();
	const struct local *src, *dst;
	const struct range *to;
	struct headers h;
	__s64 vnid_slot;

	if (!c || parse(skb, &h))
		return GO_ON;
	src = bpf_map_lookup_elem(&gv_locals, &h.src);
	if (!src || src->ifindex != skb->ifindex || !same_mac(src->mac, h.mac))
		return GO_ON;
	dst = bpf_map_lookup_elem(&gv_locals, &h.dst);
	if (dst) {
		vnid_slot = check(src->vnid, dst->vnid, src->vnid_slot);
		if (!dst->ifindex || dst->ifindex == skb->ifindex || vnid_slot < 0 || !fits(skb, dst->ifindex))
			return GO_ON;
		count_all(skb, src->slot, 0, dst->slot, 1, vnid_slot);
		return deliver(skb, dst);
	}
	to = find_range(&h.dst);
	if (!to)
		return GO_ON;
	vnid_slot = check(src->vnid, to->vnid, src->vnid_slot);
	// Open vSwitch makes its device anew when it starts again: until we know it, go on.
	if (vnid_slot < 0 || !fits(skb, c->tunnel_mtu) || (c->tunnel != c->tunnel_mtu && !fits(skb, c->tunnel)))
		return GO_ON;
	count_all(skb, src->slot, 0, to->slot, 0, vnid_slot);
	return encapsulate(skb, c, src->vnid, to);
}

SEC("tc")
int gv_tunnel(struct __sk_buff *skb)
{
	const struct local *dst;
	const struct range *from;
	struct addr vtep;
	struct headers h;
	__s64 vnid_slot;
	__u32 vnid;

	if (!config() || parse(skb, &h) || tunnel_header(skb, &vtep, &vnid))
		return GO_ON;
	from = find_range(&h.src);
	if (!from || !same(&from->vtep, &vtep) || from->vnid != vnid)
		return GO_ON;
	dst = bpf_map_lookup_elem(&gv_locals, &h.dst);
	if (!dst || !dst->ifindex)
		return GO_ON;
	vnid_slot = check(vnid, dst->vnid, dst->vnid_slot);
	if (vnid_slot < 0 || !fits(skb, dst->ifindex))
		return GO_ON;
	count_all(skb, from->slot, 1, dst->slot, 1, vnid_slot);
	return deliver(skb, dst);
}

char _license[] SEC("license") = "GPL";
