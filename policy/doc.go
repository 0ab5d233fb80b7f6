// Package policy says who may talk to whom: Kubernetes' NetworkPolicy and ClusterNetworkPolicy, with
// a network for a namespace and an endpoint for a pod. It is pure: a [World] of networks, endpoints
// and policies goes in; what the switch of one host enforces ([Compiled]), and why a packet passes
// or not ([Verdict]), come out.
//
// # What is not known
//
// An endpoint whose labels this host has not heard (Known is false) may have any. So each selector
// has three answers: it selects, it does not, it may. What isolates and what denies takes who may be
// selected; what accepts takes only who is; a Pass that only may apply denies, since nobody knows at
// which tier to go on. What comes of it is never more open than it is once the labels are known.
package policy
