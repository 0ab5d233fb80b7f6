package identity

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/grapevine-net/grapevine/host/store"
)

// Left is the note of a host that has left its cluster, in the state directory: that it
// stays out, over reboots too, until somebody wants it back.
type Left struct {
	Node    string    `json:"node"`
	Cluster string    `json:"cluster,omitempty"`
	Since   time.Time `json:"since"`
	// Settings stands for what the agent was told then: see Told.
	Settings string `json:"settings"`
	// Remains is why not everything that the agent made is removed; "": it is.
	Remains string `json:"remains,omitempty"`
}

// LeftFile is the name of the note's file in the state directory.
const LeftFile = "left.json"

// LoadLeft reads the note in dir, and whether there is one. Of a damaged one nothing is
// known but that it is there.
func LoadLeft(dir string) (l Left, there bool, err error) {
	data, err := os.ReadFile(filepath.Join(dir, LeftFile))
	if errors.Is(err, fs.ErrNotExist) {
		return l, false, nil
	}
	if err != nil {
		return l, false, fmt.Errorf("look whether this host has left its cluster: %w; the agent must run as root", err)
	}
	if unseal(data, &l) != nil {
		return Left{}, true, nil //nolint:nilerr // damaged: it has left, and nobody knows whom
	}
	return l, true, nil
}

// Save writes the note to dir; it is durable on return.
func (l Left) Save(dir string) error {
	data, err := seal(l)
	if err != nil {
		return fmt.Errorf("encode that this host has left: %w", err)
	}
	return writeFile(filepath.Join(dir, LeftFile), data)
}

// RemoveLeft removes the note: this host may join again. None there is no error.
func RemoveLeft(dir string) error {
	err := os.Remove(filepath.Join(dir, LeftFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = store.SyncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("remove the note that this host has left: %w%s", err, store.Advice(err))
	}
	return nil
}

// Told stands for who installed the agent and which cluster it is to join: another value
// than at the leave is a person's word that this host is wanted again.
func Told(installation string, join []string, keys [][]byte) string {
	data, _ := json.Marshal([]any{installation, join, base(keys)}) // strings do not fail
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}
