package gossip

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/hashicorp/memberlist"
)

// GenerateKey makes a random AES-256 key.
func GenerateKey() []byte {
	k := make([]byte, 32)
	_, _ = rand.Read(k) // never fails: crypto/rand crashes the program instead
	return k
}

// CheckKey says why key cannot encrypt gossip; nil: it can.
func CheckKey(key []byte) error {
	if memberlist.ValidateKey(key) != nil {
		return fmt.Errorf("gossip key of %d bytes: want 16, 24 or 32", len(key))
	}
	return nil
}

// FormatKey writes a key in base64, as the setting GRAPEVINE_KEY has it.
func FormatKey(key []byte) string { return base64.StdEncoding.EncodeToString(key) }

// keyring are the keys that decrypt gossip, of which one encrypts. It changes one at a time.
type keyring struct {
	mu   sync.Mutex
	keys *memberlist.Keyring
}

// newKeyring takes the keys that decrypt, of which the first encrypts.
func newKeyring(keys [][]byte) (*keyring, error) {
	list, err := memberlist.NewKeyring(keys, keys[0])
	if err != nil {
		return nil, err
	}
	return &keyring{keys: list}, nil
}

func (r *keyring) install(key []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.keys.AddKey(bytes.Clone(key)); err != nil {
		return fmt.Errorf("install key: %w", err)
	}
	return nil
}

func (r *keyring) use(key []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.keys.UseKey(key); err != nil {
		return fmt.Errorf("use key: %w: install it first", err)
	}
	return nil
}

func (r *keyring) remove(key []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	keys := r.keys.GetKeys()
	at := slices.IndexFunc(keys, func(k []byte) bool { return bytes.Equal(k, key) })
	if at < 0 {
		return nil
	}
	if at == 0 {
		return errors.New("remove key: it is the one in use: use another first")
	}
	// memberlist removes by shifting an array that decrypting goroutines still
	// read, unless the key is the last. Rotate it there. For a few nanoseconds a
	// key after it encrypts: at worst one packet is lost on a host without it.
	for _, after := range append(slices.Clone(keys[at+1:]), keys[0]) {
		if err := r.keys.UseKey(after); err != nil {
			return fmt.Errorf("remove key: %w", err)
		}
	}
	return r.keys.RemoveKey(key)
}

// list returns copies of the keys, the one that encrypts first.
func (r *keyring) list() [][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	var keys [][]byte
	for _, k := range r.keys.GetKeys() {
		keys = append(keys, bytes.Clone(k))
	}
	return keys
}

// opening are the keys that decrypt, not to be written to.
func (r *keyring) opening() [][]byte { return r.keys.GetKeys() }
