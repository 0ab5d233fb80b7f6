package identity

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Keys returns the gossip keys, the one to encrypt with first: those configured,
// else those of the key file, read by parse. A seed that has neither makes a key
// of 32 bytes (AES-256) and writes it to the file, durable on return. For any
// other host that is an error.
func Keys(role Role, configured [][]byte, file string, parse func(string) ([][]byte, error)) ([][]byte, error) {
	if len(configured) > 0 {
		return configured, nil
	}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return newKey(role, file)
	}
	if err != nil {
		return nil, fmt.Errorf("read the gossip key: %w", err)
	}
	keys, err := parse(string(data))
	if err == nil && len(keys) == 0 {
		err = errors.New("there is none in it")
	}
	if err != nil {
		return nil, fmt.Errorf("gossip key in %s: %w", file, err)
	}
	return keys, nil
}

func newKey(role Role, file string) ([][]byte, error) {
	if role != Seed {
		return nil, fmt.Errorf("no gossip key: set GRAPEVINE_KEY, or put the key into %s; "+
			"`grapevine join-command` on a host of the cluster prints it", file)
	}
	key := make([]byte, 32)
	rand.Read(key)
	if err := writeFile(file, []byte(base64.StdEncoding.EncodeToString(key)+"\n")); err != nil {
		return nil, fmt.Errorf("keep the new gossip key: %w", err)
	}
	return [][]byte{key}, nil
}
