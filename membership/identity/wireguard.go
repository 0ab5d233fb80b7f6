package identity

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// WireGuardFile is the name of the file with this host's private key of WireGuard in the state directory.
const WireGuardFile = "wireguard.key"

// SecondFile is the name of the file with the one that it has besides while keys change.
const SecondFile = "wireguard-second.key"

// ClientsFile is the name of the file with the private key that it has for clients of WireGuard, which are no hosts.
const ClientsFile = "clients.key"

// LoadWireGuard reads this host's private key of WireGuard (X25519) in the state directory. At the first start it makes
// one, for root's eyes only (0600), which is durable on return. A damaged one is an error, and not replaced: the other
// hosts know it.
func LoadWireGuard(dir string) (key [32]byte, err error) {
	return loadKey(filepath.Join(dir, WireGuardFile))
}

// WireGuardKeys are this host's keys of WireGuard in a state directory, for who changes them.
type WireGuardKeys struct{ Dir string }

// Renew puts a new key in the place of the one that LoadWireGuard reads. It is durable on return.
func (k WireGuardKeys) Renew() ([32]byte, error) {
	return createWireGuard(filepath.Join(k.Dir, WireGuardFile))
}

// Second reads the key that stands in while keys change, and makes one if there is none.
func (k WireGuardKeys) Second() ([32]byte, error) { return loadKey(filepath.Join(k.Dir, SecondFile)) }

// HasSecond reports whether there is one.
func (k WireGuardKeys) HasSecond() bool {
	_, err := os.Stat(filepath.Join(k.Dir, SecondFile))
	return err == nil
}

// Drop removes it.
func (k WireGuardKeys) Drop() error {
	if err := os.Remove(filepath.Join(k.Dir, SecondFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the WireGuard key that stood in: %w", err)
	}
	return nil
}

// LoadClients reads the one that this host has for clients, likewise: they know it.
func LoadClients(dir string) (key [32]byte, err error) {
	return loadKey(filepath.Join(dir, ClientsFile))
}

// readSecret reads the file of one of this host's keys, which nobody but root may read. An error that is fs.ErrNotExist: there is none.
func readSecret(name, what string) ([]byte, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read this host's %s key: %w", what, err)
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("read this host's %s key: %w", what, err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("others than root can read this host's %s key: %s has the mode %#o: remove it, and the agent makes another one at its next start", what, name, mode)
	}
	return text, nil
}

func loadKey(name string) (key [32]byte, err error) {
	text, err := readSecret(name, "WireGuard")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return createWireGuard(name)
	case err != nil:
		return key, err
	}
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(raw) != len(key) {
		return key, fmt.Errorf("this host's WireGuard key %s is damaged: remove it, and the agent makes another one at its next start", name)
	}
	return [32]byte(raw), nil
}

func createWireGuard(name string) (key [32]byte, err error) {
	private, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return key, fmt.Errorf("make a WireGuard key: %w", err)
	}
	key = [32]byte(private.Bytes())
	return key, writeFile(name, []byte(base64.StdEncoding.EncodeToString(key[:])+"\n"))
}
