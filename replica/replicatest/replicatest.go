// Package replicatest gives tests a host's copy of the cluster's state.
package replicatest

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/replica"
)

// New is the replica of a host, with these bodies in it. It lasts as long as the test.
func New(t testing.TB, self cluster.NodeID, bodies ...cluster.Body) *replica.Replica {
	t.Helper()
	db, err := store.Open(filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	r, err := replica.Open(db, self)
	if err != nil {
		t.Fatal(err)
	}
	Put(t, r, bodies...)
	return r
}

// Put writes bodies at once, as the host's own.
func Put(t testing.TB, r *replica.Replica, bodies ...cluster.Body) {
	t.Helper()
	_, err := r.Update(func(tx *replica.Tx) error {
		var errs []error
		for _, b := range bodies {
			errs = append(errs, tx.Put(b))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Hear has the replica hear what another host writes first.
func Hear(t testing.TB, r *replica.Replica, from cluster.NodeID, bodies ...cluster.Body) {
	t.Helper()
	var recs []cluster.Record
	s := cluster.New(from)
	for _, b := range bodies {
		rec, _, err := s.Put(b)
		if err != nil {
			t.Fatal(err)
		}
		recs = append(recs, rec)
	}
	if _, err := r.Merge(cluster.Encode(recs)); err != nil {
		t.Fatal(err)
	}
}
