package link

import "strings"

// ForUserspace prepares the interface by which the kernel sends to a port of Open
// vSwitch's userspace datapath: the other end of the veth that the switch reads.
//
// The switch reads a packet with a virtio_net_hdr if it does TSO and bare if not. What
// that header, or Open vSwitch's reading of it, cannot say (tunnels in a container,
// UDP and SCTP segmentation, CRC32c) must be done before: the features that would
// leave it undone are turned off. See docs/design/datapath.md.
func ForUserspace(name string, tso bool) error {
	have, err := Features(name)
	if err != nil {
		return err
	}
	return SetFeatures(name, userspaceFeatures(have, tso))
}

// userspaceFeatures returns the features of have to turn off, or, with tso, on. It
// keeps to a list of what is known to be right, so that offloads of kernels to come
// are off.
func userspaceFeatures(have map[string]bool, tso bool) map[string]bool {
	right := map[string]bool{
		"tx-checksum-ipv4":       tso,
		"tx-checksum-ipv6":       tso,
		"tx-checksum-ip-generic": tso,
		"tx-tcp-segmentation":    tso,
		"tx-tcp6-segmentation":   tso,
		// In software, in the kernel, from packets beyond the MTU to those within:
		"tx-generic-segmentation": true,
	}
	want := make(map[string]bool)
	for n, on := range have {
		offload := strings.HasPrefix(n, "tx-checksum-") || strings.HasSuffix(n, "-segmentation") ||
			n == "tx-gso-list" || n == "tx-gso-partial"
		if offload && on && !right[n] {
			want[n] = false
		}
	}
	return want
}
