// Package ovs is the effects on Open vSwitch: its database, its OpenFlow tables
// and, where the host has no Open vSwitch of its own, its daemons.
//
// An Instance is one running Open vSwitch, known by its directory of sockets. A
// Bridge is our bridge in it; nothing else in the instance is ever written to.
//
// The database is read, watched and written by its own protocol, OVSDB (RFC 7047): a
// write waits until ovs-vswitchd has done what was written. Flows are read, watched and
// changed by ovs-ofctl, in atomic bundles (OpenFlow 1.4), but for those of a
// container's start and end: these are sent to the switch from here, since a process
// costs more than all the rest of it. The counters of the kernel's datapath are asked for with
// digitalocean/go-openvswitch's ovsnl; docs/design/decisions.md says what of that library is not used.
package ovs
