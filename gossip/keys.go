package gossip

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"

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

// InstallKey adds a key that decrypts. Rotation over a cluster is: install the
// new key on every host, then use it on every host, then remove the old one.
func (g *Gossip) InstallKey(key []byte) error {
	g.keyMu.Lock()
	defer g.keyMu.Unlock()
	if err := g.keyring.AddKey(bytes.Clone(key)); err != nil {
		return fmt.Errorf("install key: %w", err)
	}
	return nil
}

// UseKey makes an installed key the one that encrypts.
func (g *Gossip) UseKey(key []byte) error {
	g.keyMu.Lock()
	defer g.keyMu.Unlock()
	if err := g.keyring.UseKey(key); err != nil {
		return fmt.Errorf("use key: %w: install it first", err)
	}
	return nil
}

// RemoveKey takes a key off the ring. The key in use cannot be removed; one that
// is not there already is removed.
func (g *Gossip) RemoveKey(key []byte) error {
	g.keyMu.Lock()
	defer g.keyMu.Unlock()
	keys := g.keyring.GetKeys()
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
		if err := g.keyring.UseKey(after); err != nil {
			return fmt.Errorf("remove key: %w", err)
		}
	}
	return g.keyring.RemoveKey(key)
}

// ListKeys returns copies of the keys, the one in use first.
func (g *Gossip) ListKeys() [][]byte {
	g.keyMu.Lock()
	defer g.keyMu.Unlock()
	var keys [][]byte
	for _, k := range g.keyring.GetKeys() {
		keys = append(keys, bytes.Clone(k))
	}
	return keys
}
