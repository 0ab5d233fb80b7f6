// Package names is what the resolver knows of containers: their names, aliases
// and addresses by network, taken from snapshots of the cluster, and the rule of
// who may see which of them.
//
// The rule: a container sees the names and addresses of the networks that it is
// itself on, and of no others. What it does not see does not exist for it.
//
// The package is pure: no sockets, no clock, no goroutines.
package names
