// Package clientgo stands in the place of k8s.io/client-go in the module of tests/policy. Cyclonus is linked with a client of
// Kubernetes that no test has: its clusters are made up. The true one is 250 packages that are compiled for nothing,
// two minutes of a processor; this one has what cyclonus names of it, and whoever calls it is told that there is no cluster.
package clientgo
