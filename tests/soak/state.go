package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/membership/backup"
	"github.com/grapevine-net/grapevine/tests/lab"
)

// account is what a host's state file has, counted.
type account struct {
	// live and dead are records and tombstones by kind, and bytes what the latter take in the file.
	live, dead map[cluster.Kind]int
	bytes      int
	// entries by bucket.
	entries map[string]int
	file    int64 // of the state file, as it is on the disk
}

// tombstones is how many there are of all kinds.
func (a account) tombstones() (n int) {
	for _, of := range a.dead {
		n += of
	}
	return n
}

// accountOf reads a host's state by way of a backup, which is of one moment.
func accountOf(ctx context.Context, h *lab.Host) (a account, err error) {
	text, err := h.Exec(ctx, "sh", "-ec", `f=$(mktemp -u /tmp/soak-XXXXXX); grapevine backup $f >/dev/null; base64 -w 0 $f; rm $f; echo; stat -c %s /var/lib/grapevine/grapevine.db`)
	if err != nil {
		return a, err
	}
	coded, size, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if _, err := fmt.Sscan(size, &a.file); err != nil {
		return a, fmt.Errorf("read the state file's size: %w", err)
	}
	raw, err := base64.StdEncoding.DecodeString(coded)
	if err != nil {
		return a, fmt.Errorf("read a backup: %w", err)
	}
	dir, err := os.MkdirTemp("", "grapevine-soak-")
	if err != nil {
		return a, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, backup.StateFile)
	if err := unpack(raw, path); err != nil {
		return a, err
	}
	return a, errors.Join(a.readRecords(path), a.readBuckets(path))
}

// unpack takes the state file out of a backup.
func unpack(raw []byte, path string) error {
	for t := tar.NewReader(bytes.NewReader(raw)); ; {
		head, err := t.Next()
		if err != nil {
			return fmt.Errorf("find the state file in a backup: %w", err)
		}
		if head.Name != backup.StateFile {
			continue
		}
		data, err := io.ReadAll(t)
		if err != nil {
			return err
		}
		return os.WriteFile(path, data, 0o600)
	}
}

func (a *account) readRecords(path string) error {
	db, err := store.Open(path)
	if err != nil {
		return err
	}
	a.live, a.dead = map[cluster.Kind]int{}, map[cluster.Kind]int{}
	err = db.View(func(tx *store.Tx) error {
		return store.NewBucket[[]byte]("replica/records").ForEach(tx, func(key string, raw []byte) error {
			recs, err := cluster.Decode(raw)
			for _, r := range recs {
				if r.Deleted == 0 {
					a.live[r.Key.Kind]++
					continue
				}
				a.dead[r.Key.Kind]++
				a.bytes += len(key) + len(raw)
			}
			return err
		})
	})
	return errors.Join(err, db.Close())
}

func (a *account) readBuckets(path string) error {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	a.entries = map[string]int{}
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			return b.ForEach(func(key, _ []byte) error {
				kind, _, parted := strings.Cut(string(key), " ")
				if !parted || string(name) != "ipam" { // others' keys begin with no kind
					kind = ""
				}
				a.entries[strings.TrimSpace(string(name)+" "+kind)]++
				return nil
			})
		})
	})
	return errors.Join(err, db.Close())
}

// remembered are what there is for each tombstone, or VNID that rests, for three days, for
// each host that was forgotten, for each subnet up to 64 and some, for each address that had a policy up to 1,024, and for each that a container
// had up to 1,024, or until all hosts have heard that it is gone: these grow, the others must not.
var remembered = []string{"replica/records", "replica/graves", "ipam seen", "ipam vnid", "ipam promise", "ipam attempt", "ipam cursor", "overlay/epochs", "former/entries", "former/heard"}

// left says what a state has more than before, tombstones apart.
func (a account) left(host string, before account) (wrong []string) {
	for kind, n := range a.live {
		if was := before.live[kind]; n > was && kind != cluster.KindClaim { // of those: grown
			wrong = append(wrong, fmt.Sprintf("%s: %d records of kind %s, and %d before", host, n, kind, was))
		}
	}
	for bucket, n := range a.entries {
		if was := before.entries[bucket]; n > was && !slices.Contains(remembered, bucket) {
			wrong = append(wrong, fmt.Sprintf("%s: %d entries of %s in the state file, and %d before", host, n, bucket, was))
		}
	}
	slices.Sort(wrong)
	return wrong
}
