// Package sim holds a simulation of whole clusters: the gossip, the replicated state
// and the allocator of every host, as they are, in one process, over a network in
// memory and in virtual time (testing/synctest). What it cannot show is the time that
// processors take, since virtual time stands still while they work; the last part of
// the report measures that in real time, over sockets: a new host that catches up, and
// fifty hosts beside fifty simulated ones.
//
// `make sim` runs it and writes docs/measurements/simulation.md; `go test ./tests/sim` runs a small
// cluster through all of it.
package sim
