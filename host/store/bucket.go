package store

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
)

// Bucket is a table of values of one type by key. Values are stored as JSON,
// but []byte as it is, each after a checksum. A bucket is made when it is first written to; until then
// it reads as empty.
type Bucket[V any] struct{ name []byte }

// NewBucket names a bucket. The name is part of the file format.
func NewBucket[V any](name string) Bucket[V] { return Bucket[V]{[]byte(name)} }

// Put stores v under a key of 1 to 32768 bytes. The transaction must be an Update.
func (b Bucket[V]) Put(tx *Tx, key string, v V) error {
	raw, err := encode(v)
	if err != nil {
		return fmt.Errorf("store %s %q: %w", b.name, key, err)
	}
	bucket := tx.bolt.Bucket(b.name)
	if bucket == nil {
		bucket, err = tx.bolt.CreateBucket(b.name)
	}
	if err == nil {
		sealed := b.seal([]byte(key), raw)
		tx.counted(b.name, bucket.Get([]byte(key)), sealed)
		err = bucket.Put([]byte(key), sealed)
	}
	if err != nil {
		return fmt.Errorf("store %s %q: %w", b.name, key, err)
	}
	return nil
}

// Get returns the value under a key, and false if there is none.
func (b Bucket[V]) Get(tx *Tx, key string) (v V, found bool, err error) {
	bucket := tx.bolt.Bucket(b.name)
	if bucket == nil {
		return v, false, nil
	}
	raw := bucket.Get([]byte(key))
	if raw == nil {
		return v, false, nil
	}
	raw, err = b.unseal([]byte(key), raw)
	if err == nil {
		err = decode(raw, &v)
	}
	if err != nil {
		return v, false, fmt.Errorf("read %s %q from the store: %w", b.name, key, err)
	}
	return v, true, nil
}

// Delete removes a key; it is no error if it is not there. The transaction must
// be an Update.
func (b Bucket[V]) Delete(tx *Tx, key string) error {
	bucket := tx.bolt.Bucket(b.name)
	if bucket == nil {
		return nil
	}
	tx.counted(b.name, bucket.Get([]byte(key)), nil)
	if err := bucket.Delete([]byte(key)); err != nil {
		return fmt.Errorf("delete %s %q from the store: %w", b.name, key, err)
	}
	return nil
}

// Clear removes all keys. The transaction must be an Update.
func (b Bucket[V]) Clear(tx *Tx) error {
	if tx.bolt.Bucket(b.name) == nil {
		return nil
	}
	if err := tx.bolt.DeleteBucket(b.name); err != nil {
		return fmt.Errorf("clear %s in the store: %w", b.name, err)
	}
	delete(tx.inventories, string(b.name))
	return nil
}

// ErrStop ends a ForEach early, without an error.
var ErrStop = errors.New("stop")

// ForEach calls fn for each key in byte order and ends at its first error. fn
// must not write to the bucket.
func (b Bucket[V]) ForEach(tx *Tx, fn func(key string, v V) error) error {
	bucket := tx.bolt.Bucket(b.name)
	if bucket == nil {
		return nil
	}
	err := bucket.ForEach(func(k, raw []byte) error {
		var v V
		raw, err := b.unseal(k, raw)
		if err == nil {
			err = decode(raw, &v)
		}
		if err != nil {
			return fmt.Errorf("read %s %q from the store: %w", b.name, k, err)
		}
		return fn(string(k), v)
	})
	if errors.Is(err, ErrStop) {
		return nil
	}
	return err
}

// sealSize is the length of a checksum, bytes.
const sealSize = 4

// sum is the CRC-32C of a key and its value: bbolt does not see whether the disk
// gives back what was written.
func sum(key, raw []byte) []byte {
	table := crc32.MakeTable(crc32.Castagnoli)
	return binary.BigEndian.AppendUint32(make([]byte, 0, sealSize+len(raw)), crc32.Update(crc32.Update(0, table, key), table, raw))
}

// seal puts the checksum before a value.
func (b Bucket[V]) seal(key, raw []byte) []byte {
	if !isSealed(b.name, key) {
		return raw
	}
	return append(sum(key, raw), raw...)
}

// unseal checks and removes the checksum.
func (b Bucket[V]) unseal(key, sealed []byte) ([]byte, error) {
	if !isSealed(b.name, key) {
		return sealed, nil
	}
	return opened(key, sealed)
}

// isSealed reports whether a value has a checksum. The schema's version has none: it says
// whether others have.
func isSealed(bucket, key []byte) bool {
	return !bytes.Equal(bucket, schema.name) || string(key) != schemaKey
}

func opened(key, sealed []byte) ([]byte, error) {
	if len(sealed) < sealSize || !bytes.Equal(sealed[:sealSize], sum(key, sealed[sealSize:])) {
		return nil, fmt.Errorf("%w: its checksum is wrong", ErrCorrupt)
	}
	return sealed[sealSize:], nil
}

func encode(v any) ([]byte, error) {
	if raw, ok := v.([]byte); ok {
		return raw, nil
	}
	return json.Marshal(v)
}

// decode copies: what bbolt returns is gone after the transaction.
func decode[V any](raw []byte, v *V) error {
	if b, ok := any(v).(*[]byte); ok {
		*b = append([]byte{}, raw...)
		return nil
	}
	return json.Unmarshal(raw, v)
}
