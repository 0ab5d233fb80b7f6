package identity

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// Keys returns the gossip keys, the one to encrypt with first: those configured,
// else those of the key file, read by parse. A seed that has neither makes a key
// of 32 bytes (AES-256) and writes it to the file, durable on return. For any
// other host that is an error.
func Keys(role Role, configured [][]byte, file string, parse func(string) ([][]byte, error)) ([][]byte, error) {
	if len(configured) > 0 {
		return configured, nil // see KeepKeys
	}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return newKey(role, file)
	}
	if err != nil {
		return nil, fmt.Errorf("read the gossip key: %w; the agent must run as root, with GRAPEVINE_KEY_FILE a file with a key a line", err)
	}
	keys, err := parse(string(data))
	if err == nil && len(keys) == 0 {
		err = errors.New("there is none in it")
	}
	if err != nil {
		return nil, fmt.Errorf("gossip key in %s: %w, or put the cluster's into it (`grapevine join-command` on another host prints it)", file, err)
	}
	return keys, nil
}

// KeepKeys writes the configured gossip keys to the file, durably, and reports whether they are
// there: so that the setting, which everybody sees who may ask Docker about a plugin, can be taken
// away.
func KeepKeys(configured [][]byte, file string, parse func(string) ([][]byte, error)) (kept bool, err error) {
	if data, err := os.ReadFile(file); err == nil {
		if have, err := parse(string(data)); err == nil && base(have) == base(configured) {
			return true, nil
		}
	}
	var text strings.Builder
	for _, k := range configured {
		text.WriteString(base64.StdEncoding.EncodeToString(k) + "\n")
	}
	if err := writeFile(file, []byte(text.String())); err != nil {
		return false, fmt.Errorf("keep the gossip key: %w", err)
	}
	return true, nil
}

func newKey(role Role, file string) ([][]byte, error) {
	if role != Seed {
		return nil, fmt.Errorf("no gossip key: put the cluster's into %s, or set GRAPEVINE_KEY; "+
			"`grapevine join-command` on a host of the cluster prints it", file)
	}
	key := make([]byte, 32)
	rand.Read(key)
	if err := writeFile(file, []byte(base64.StdEncoding.EncodeToString(key)+"\n")); err != nil {
		return nil, fmt.Errorf("keep the new gossip key: %w", err)
	}
	return [][]byte{key}, nil
}

// KnowKeys remembers the configured gossip keys, which are those of file, durably in
// dir: one bit that has flipped since the last start would make one of them another
// key, with which this host would be alone. So that is an error. The file has the
// form that people write, and no checksum.
func (id *Identity) KnowKeys(dir string, keys [][]byte, file string) error {
	now := base(keys)
	if id.Keys == now {
		return nil
	}
	if id.Keys != "" && flipped(keys, id.Keys) {
		return fmt.Errorf("a gossip key in %s is damaged: of the one at the last start it differs by one bit; "+
			"put the cluster's key into it (`grapevine join-command` on another host prints it), or that of a backup", file)
	}
	next := *id
	next.Keys = now
	if err := next.Save(dir); err != nil {
		return err
	}
	id.Keys = now
	return nil
}

// flipped reports whether keys would have that base but for one bit of their base64 text.
func flipped(keys [][]byte, was string) bool {
	for i, key := range keys {
		text := []byte(base64.StdEncoding.EncodeToString(key))
		for bit := range 8 * len(text) {
			text[bit/8] ^= 1 << (bit % 8)
			other, err := base64.StdEncoding.Strict().DecodeString(string(text))
			text[bit/8] ^= 1 << (bit % 8)
			if err != nil {
				continue
			}
			all := slices.Clone(keys)
			if all[i] = other; base(all) == was {
				return true
			}
		}
	}
	return false
}
