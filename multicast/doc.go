// Package multicast finds out which multicast groups this host's containers are members of, on networks that carry
// multicast, and tells the cluster (cluster.Listen).
//
// It asks the kernel, in each container's sandbox (/proc/net/igmp, /proc/net/igmp6), and hears no reports. So nobody is to
// be asked by a querier, no packet of a container's reaches the agent, and a forged report is a packet that nobody reads. What
// it costs is a look at two files for each container, three times a second, on these networks alone. A container
// whose programs have a network stack of their own (gVisor) is a member of nothing.
//
// A group is told at once, and is taken back when it was left for some seconds. However fast a container joins and leaves, its host says something
// new once a second, and no more groups than cluster.MaxGroups of one container, and cluster.MaxHostGroups of all.
package multicast
