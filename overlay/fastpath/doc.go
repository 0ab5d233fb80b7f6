// Package fastpath carries the packets about which the cluster's state already says
// everything: this source on this port, that destination here or behind that VTEP,
// equal VNIDs. Tc programs (bpf/fastpath.c), at the container's veth, at the VXLAN device
// and at the gateway, forward those at once; whatever they do not know, or were told
// not to decide, goes on to Open vSwitch as if they were not there.
//
// Open vSwitch's verdict is the law. Compile makes the contents of the programs' maps
// from the same pipeline.Input as the flows. When that changes, Narrow comes before
// the flows and Widen after them, so that at every moment the programs carry only what
// the flows in force would have carried in the same way (Between).
//
// The state is in the kernel: programs and maps live as long as the devices that they
// are attached to, so packets are carried while no agent runs, and the next agent
// adopts the maps.
package fastpath
