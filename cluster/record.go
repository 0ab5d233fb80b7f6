// Package cluster is the replicated state of a grapevine cluster, as values:
// records, their versions, and a merge that does not depend on the order, the
// number or the grouping of the messages that carry them.
//
// The package is pure: no sockets, no disk, no clock (now is passed in) and no
// goroutines. Package replica owns the one mutable State of an agent.
package cluster

import "github.com/grapevine-net/grapevine/ring"

// NodeID names a host for the life of its state directory: 16 lower-case
// hexadecimal digits, the hash of the key that it signs its records with (HostID).
type NodeID = ring.Owner

// Version orders all writes of the cluster: by Lamport counter, ties by the
// writer. No two writes of one cluster have the same Version.
type Version struct {
	Counter uint64
	Node    NodeID
}

// Record is one versioned fact. The record with the higher Version replaces
// the one with the lower; claims also replace every claim inside their block
// that is older (package ring).
type Record struct {
	Key     Key
	Version Version
	// Prev is the Counter of the writer's previous write (0: this is its first).
	// It lets a receiver see whether it has heard everything the writer said.
	Prev uint64
	// Deleted is the Unix time in seconds of a deletion, 0 for a live record.
	// A tombstone has no Body.
	Deleted int64
	Body    Body
	// raw is the body as it came: of one that says more than Body does, since a newer agent
	// wrote it, or else until the record is kept (forget), to be verified and passed on.
	raw  []byte
	more bool
	// of is, in the tombstone of another host's endpoint or use, that host, which
	// the writer has forgotten.
	of NodeID
	// proofs are the claims of others that a claim replaces, by which its writer
	// came to own what it gives away (proofs.go).
	proofs []Record
	// sig is the writer's signature, nil if there is none.
	sig *signature
}
