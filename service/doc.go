// Package service says who is behind the services of the cluster: which replicas a container's connections to a
// service's address are led to. It is pure: package service/inside does it, in containers' network namespaces.
package service
