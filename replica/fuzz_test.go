package replica

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/store"
)

// FuzzDisk: whatever is in the buckets, Open refuses it, with the file's name and a way out, or
// what it opened is written and buried as any state, and read again the same.
func FuzzDisk(f *testing.F) {
	var recs [][]byte
	r := open(f, id(1))
	put(f, r, cluster.Node{ID: id(1), Name: "host1"}, cluster.Network{Name: "blue", VNID: 7})
	if _, err := r.Update(func(tx *Tx) error { tx.Delete(cluster.Network{Name: "blue"}.Key()); return nil }); err != nil {
		f.Fatal(err)
	}
	var tomb cluster.Key
	for k := range r.Snapshot().Tombstones() {
		tomb = k
	}
	for rec := range r.Snapshot().Records() {
		recs = append(recs, cluster.Encode([]cluster.Record{rec}))
	}
	marks1 := cluster.EncodeDigest(cluster.Digest{Marks: r.Snapshot().Marks()})
	for _, b := range recs {
		f.Add("", b, ownKey, marks1, nameOf(tomb), uint64(2), string(id(1)), int64(-time.Hour))
		f.Add("000/x", b, settledKey, []byte{}, "", uint64(0), "", int64(0))
	}
	f.Add("", bytes.Join(recs, nil), marksKey, []byte("x"), "", uint64(0), "", int64(0))
	f.Fuzz(func(t *testing.T, name string, rec []byte, mark string, digest []byte, grv string, counter uint64, node string, since int64) {
		if name == "" {
			if one, err := cluster.Decode(rec); err == nil && len(one) > 0 {
				name = nameOf(one[0].Key)
			}
		}
		t.Setenv("TMPDIR", "/dev/shm")
		path := filepath.Join(t.TempDir(), "state.db")
		db, err := store.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if db.Update(func(tx *store.Tx) error {
			if err := records.Put(tx, name, rec); err != nil {
				return err
			}
			if err := graves.Put(tx, grv, grave{counter, cluster.NodeID(node), time.Duration(since)}); err != nil {
				return err
			}
			return marks.Put(tx, mark, digest)
		}) != nil {
			return
		}
		r, err := Open(db, id(1))
		if err != nil {
			if strings.Count(err.Error(), path) != 1 || strings.Count(err.Error(), "grapevine restore") != 1 {
				t.Errorf("it is refused by %v", err)
			}
			return
		}
		if _, err := r.Update(func(tx *Tx) error { return tx.Put(cluster.Network{Name: "own", VNID: 9}) }); err != nil {
			return
		}
		if err := r.Expire(); err != nil {
			t.Fatal(err)
		}
		if err := r.Flush(context.Background()); err != nil {
			t.Fatal(err)
		}
		again, err := Open(db, id(1))
		if err != nil {
			t.Fatalf("what it wrote is refused: %v", err)
		}
		if all(again) != all(r) {
			t.Errorf("it was\n%q\nand is\n%q", all(r), all(again))
		}
	})
}
