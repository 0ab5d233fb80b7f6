package identity

import (
	"bytes"
	"cmp"
	"crypto/aes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Keyring is the gossip keys after `grapevine keys`, in keyring.json in the state
// directory.
type Keyring struct {
	// Keys: the first encrypts, all decrypt.
	Keys [][]byte `json:"keys"`
	// Since is when the first came to encrypt, in Unix milliseconds; 0: it is the
	// configured one. Of two hosts' keyrings that of the later one goes on.
	Since int64 `json:"since,omitempty"`
	// Base stands for the configured keys that this keyring came from: if the
	// configuration is changed after that, it wins.
	Base string `json:"base"`
}

const keyringFile = "keyring.json"

// LoadKeyring returns the keyring that was saved in dir, or one of the configured
// keys if there is none or they have been changed since. A damaged file is an
// error: the key that is configured may be one that the cluster has given up.
func LoadKeyring(dir string, configured [][]byte) (Keyring, error) {
	fresh := Keyring{Keys: configured, Base: base(configured)}
	name := filepath.Join(dir, keyringFile)
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return fresh, nil
	}
	if err != nil {
		return Keyring{}, fmt.Errorf("read the gossip keys: %w", err)
	}
	var saved Keyring
	if err := unseal(data, &saved); err != nil || !saved.good() {
		return Keyring{}, fmt.Errorf("%s is damaged (%v): put the cluster's key into GRAPEVINE_KEY "+
			"(`grapevine join-command` on another host prints it) and remove the file", name, cmp.Or(err, errParts))
	}
	if saved.Base != fresh.Base {
		return fresh, nil
	}
	if again, err := seal(saved); err != nil || !bytes.Equal(again, data) { // of before there were checksums
		return saved, saved.Save(dir)
	}
	return saved, nil
}

// good reports whether there are keys, all of a length that AES has.
func (k Keyring) good() bool {
	return len(k.Keys) > 0 && !slices.ContainsFunc(k.Keys, func(key []byte) bool {
		_, err := aes.NewCipher(key)
		return err != nil
	})
}

// Save writes the keyring to dir; it is durable on return.
func (k Keyring) Save(dir string) error {
	data, err := seal(k)
	if err != nil {
		return fmt.Errorf("encode the gossip keys: %w", err)
	}
	return writeFile(filepath.Join(dir, keyringFile), data)
}

// base is a hash of keys.
func base(keys [][]byte) string {
	sum := sha256.Sum256(bytes.Join(keys, []byte{0}))
	return hex.EncodeToString(sum[:8])
}
