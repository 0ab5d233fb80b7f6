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

// ClientsFile is the name of the file with the private key that it has for clients of WireGuard, which are no hosts.
const ClientsFile = "clients.key"

// LoadWireGuard reads this host's private key of WireGuard (X25519) in the state directory. At the first start it makes
// one, for root's eyes only (0600), which is durable on return. A damaged one is an error, and not replaced: the other
// hosts know it.
func LoadWireGuard(dir string) (key [32]byte, err error) {
	return loadKey(filepath.Join(dir, WireGuardFile))
}

// LoadClients reads the one that this host has for clients, likewise: they know it.
func LoadClients(dir string) (key [32]byte, err error) {
	return loadKey(filepath.Join(dir, ClientsFile))
}

func loadKey(name string) (key [32]byte, err error) {
	text, err := os.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return createWireGuard(name)
	case err != nil:
		return key, fmt.Errorf("read this host's WireGuard key: %w", err)
	}
	info, err := os.Stat(name)
	if err != nil {
		return key, fmt.Errorf("read this host's WireGuard key: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return key, fmt.Errorf("others than root can read this host's WireGuard key: %s has the mode %#o: remove it, and the agent makes another one at its next start", name, mode)
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
