// Package k8s reads policies in the words of Kubernetes, and writes them: NetworkPolicy of
// networking.k8s.io/v1, and ClusterNetworkPolicy of policy.networking.k8s.io, v1alpha2 and v1beta1.
//
// It is strict: what it does not know, and what has no meaning here, is an error that says where it
// is and what may be there instead. A policy of which a part is left out is another policy.
package k8s
