// SPDX-License-Identifier: Apache-2.0
//
// The userspace datapath's tunnel: two tc programs between Open vSwitch and a
// collect-metadata VXLAN device. Open vSwitch's userspace datapath reads and
// writes the device `gvtun` as plain Ethernet, so tunnel metadata travels in the
// MAC addresses of the inner frame, which the delivering host rewrites anyway:
//
//   source       02:00:00:vv:vv:vv   VNI (RFC 7348), 24 bits
//   destination  02:01:ii:ii:ii:ii   index of the remote VTEP, 32 bits
//
// On the way in the fast path may have something to say to the switch (HINT of its fastpath.c): its kind and 14 bits of its secret
// are then in the two bytes behind the source's first.
//
// gvtun_tx, at the egress of gvtun, takes such a frame, looks the index up and sends
// it into the VXLAN device; gvtun_rx, at that one's ingress, looks the remote address up and hands it to Open vSwitch with both fields written. A remote that is not in
// the maps is dropped and counted, in both directions.
//
// Written for kernels from 4.18 on: no global data, no BTF, no atomics with results.
#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define MAX_VTEPS 16384
#define HINT 0x0e

// The key without its later additions: every kernel from 4.18 on takes this size. With the
// source, which is its last member, Linux 5.19 does.
#define KEY_SIZE offsetof(struct bpf_tunnel_key, local_ipv6)
#define KEY_SIZE_WITH_SOURCE (KEY_SIZE + sizeof(struct vtep))

struct vtep {
	__u32 addr[4]; // network order; IPv4 as ::ffff:a.b.c.d (RFC 4291, 2.5.5.2)
};

struct devices {
	__u32 vxlan; // interface index of gvvxlan
	__u32 peer;  // interface index of gvtunx
	struct vtep source; // what this host sends from; zero: as the kernel chooses
	__u32 unsummed; // no checksum over IPv6 either
};

enum counter {
	TX_NOT_OURS,	  // from Open vSwitch without the two MAC prefixes
	TX_UNKNOWN_INDEX, // from Open vSwitch for an index that no VTEP has
	RX_UNKNOWN_VTEP,  // from the underlay, sender is no VTEP of the cluster
	NO_MEMORY,	  // the kernel could not change the packet
	COUNTERS,
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_VTEPS);
	__type(key, __u32);
	__type(value, struct vtep);
} gv_vtep_addr SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_VTEPS);
	__type(key, struct vtep);
	__type(value, __u32);
} gv_vtep_index SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct devices);
} gv_devices SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} gv_counters SEC(".maps");

static __always_inline int drop(__u32 reason)
{
	__u64 *n = bpf_map_lookup_elem(&gv_counters, &reason);

	if (n)
		(*n)++;
	// Not TC_ACT_SHOT: at egress that is an error of the sender's system call, and
	// Open vSwitch would drop the rest of its batch.
	return TC_ACT_STOLEN;
}

static __always_inline const struct devices *devices(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&gv_devices, &zero);
}

static __always_inline int is_ipv4(const struct vtep *v)
{
	return !v->addr[0] && !v->addr[1] && v->addr[2] == bpf_htonl(0xffff);
}

static __always_inline int is_zero(const struct vtep *v)
{
	return !(v->addr[0] | v->addr[1] | v->addr[2] | v->addr[3]);
}

// is_inside: the host takes what is encrypted there (cluster.SecureRange).
static __always_inline int is_inside(const struct vtep *v)
{
	return v->addr[0] == bpf_htonl(0xfd677261) && v->addr[1] == bpf_htonl(0x70650001);
}

SEC("tc")
int gvtun_tx(struct __sk_buff *skb)
{
	const struct devices *dev = devices();
	struct bpf_tunnel_key key = {};
	const struct vtep *vtep;
	__u64 flags;
	__u32 index;
	__u8 mac[12]; // destination, then source
	int failed;

	if (!dev || bpf_skb_load_bytes(skb, 0, mac, sizeof(mac)))
		return drop(TX_NOT_OURS);
	// With 03 the fast path's notes are in these bytes still, which nobody has taken off: they do not matter here.
	if (mac[6] == 3 ? (mac[0] & 3) != 2 : mac[0] != 2 || mac[1] != 1 || mac[6] != 2 || mac[7] || mac[8])
		return drop(TX_NOT_OURS);
	index = mac[2] << 24 | mac[3] << 16 | mac[4] << 8 | mac[5];
	vtep = bpf_map_lookup_elem(&gv_vtep_addr, &index);
	if (!vtep)
		return drop(TX_UNKNOWN_INDEX);

	key.tunnel_id = mac[9] << 16 | mac[10] << 8 | mac[11];
	key.tunnel_ttl = 64;
	if (is_ipv4(vtep)) {
		key.remote_ipv4 = bpf_ntohl(vtep->addr[3]);
		key.local_ipv4 = bpf_ntohl(dev->source.addr[3]);
		flags = BPF_F_ZERO_CSUM_TX; // RFC 7348, 5: the usual over IPv4
	} else {
		__builtin_memcpy(key.remote_ipv6, vtep->addr, 16);
		__builtin_memcpy(key.local_ipv6, dev->source.addr, 16);
		flags = BPF_F_TUNINFO_IPV6; // with checksum: RFC 8200, 8.1
		if (dev->unsummed)
			flags |= BPF_F_ZERO_CSUM_TX;
	}
	// A source is one of its own family only, and inside what encrypts or not: else the kernel chooses.
	if (!is_zero(&dev->source) && is_ipv4(&dev->source) == is_ipv4(vtep) && is_inside(&dev->source) == is_inside(vtep))
		failed = bpf_skb_set_tunnel_key(skb, &key, KEY_SIZE_WITH_SOURCE, flags);
	else
		failed = bpf_skb_set_tunnel_key(skb, &key, KEY_SIZE, flags);
	if (failed)
		return drop(NO_MEMORY);
	return bpf_redirect(dev->vxlan, 0);
}

// remote fills in the zeroed key and sender of a packet; not 0: it has no tunnel metadata.
static __always_inline int remote(struct __sk_buff *skb, struct bpf_tunnel_key *key, struct vtep *from)
{
	if (!bpf_skb_get_tunnel_key(skb, key, KEY_SIZE, 0)) {
		from->addr[2] = bpf_htonl(0xffff);
		from->addr[3] = bpf_htonl(key->remote_ipv4);
		return 0;
	}
	if (bpf_skb_get_tunnel_key(skb, key, KEY_SIZE, BPF_F_TUNINFO_IPV6))
		return -1;
	__builtin_memcpy(from->addr, key->remote_ipv6, sizeof(from->addr));
	return 0;
}

SEC("tc")
int gvtun_rx(struct __sk_buff *skb)
{
	const struct devices *dev = devices();
	struct bpf_tunnel_key key = {};
	struct vtep from = {};
	const __u32 *index;
	__u8 hint[6];
	__u32 i, vni;

	if (!dev || bpf_skb_load_bytes(skb, 0, hint, sizeof(hint)) || remote(skb, &key, &from))
		return drop(RX_UNKNOWN_VTEP);
	index = bpf_map_lookup_elem(&gv_vtep_index, &from);
	if (!index)
		return drop(RX_UNKNOWN_VTEP);
	i = *index;
	vni = key.tunnel_id;
	if (hint[0] != HINT)
		hint[1] = hint[4] = hint[5] = 0;

	__u8 mac[12] = {
		2, 1, i >> 24, i >> 16, i >> 8, i,
		2, hint[1] << 6 | (hint[4] & 0x3f), hint[5], vni >> 16, vni >> 8, vni,
	};
	// No checksum covers the Ethernet header: no BPF_F_RECOMPUTE_CSUM.
	if (bpf_skb_store_bytes(skb, 0, mac, sizeof(mac), 0))
		return drop(NO_MEMORY);
	// Out of gvtunx and so into gvtun: on the way the kernel segments and sums what
	// gvtunx's features do not allow, which a redirect to gvtun's ingress would not.
	return bpf_redirect(dev->peer, 0);
}

char _license[] SEC("license") = "GPL";
