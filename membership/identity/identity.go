// Package identity keeps what makes a host the same host after a reboot: its
// node ID, the key it signs with, the ID of its cluster, and the gossip keys.
package identity

import (
	"cmp"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sync"

	"github.com/grapevine-net/grapevine/cluster"
)

// Identity is the content of identity.json in the state directory.
type Identity struct {
	// Node is 16 lower-case hexadecimal digits: cluster.HostID of the key.
	Node string `json:"node"`
	// Cluster is 32 lower-case hexadecimal digits, made by the seed; empty until
	// this host has become part of a cluster.
	Cluster string `json:"cluster,omitempty"`
	// Key is the seed of the Ed25519 key (RFC 8032) that signs what this host says,
	// made at the first start. Node is the ID that stands for it.
	Key []byte `json:"key"`
	// Restored says that the state is from a backup, and that the cluster has not
	// been asked yet whether this host has said anything since.
	Restored bool `json:"restored,omitempty"`
	// Keys stands for the configured gossip keys of the last start; see KnowKeys.
	Keys string `json:"keys,omitempty"`
	// Alone says that whoever restored it knows of no other host that could be asked.
	Alone bool `json:"alone,omitempty"`
	// Forgotten says that the cluster has forgotten this identity, which is spent: its files are
	// to be set aside, under names that end in this.
	Forgotten string `json:"forgotten,omitempty"`
	// Was is the Node that this host was before the cluster had forgotten it.
	Was string `json:"former,omitempty"`
}

// Private returns the key that signs what this host says. It reads nothing else: the cluster's ID may be
// written meanwhile.
func (id *Identity) Private() ed25519.PrivateKey { return ed25519.NewKeyFromSeed(id.Key) }

// File is the name of the identity's file in the state directory.
const File = "identity.json"

var (
	nodeForm    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{16}$`) })
	clusterForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{32}$`) })
)

// Load reads the identity in directory dir. At the first start it makes dir
// (0700) and a node ID, and both are durable on return. A damaged file is an
// error: to go on under a new ID would forget what this host owns.
func Load(dir string) (Identity, error) {
	name := filepath.Join(dir, File)
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return create(dir)
	}
	if err != nil {
		return Identity{}, fmt.Errorf("read this host's identity: %w; the agent must run as root, with GRAPEVINE_STATE a directory that it can write", err)
	}
	var id Identity
	err = unseal(data, &id)
	if err == nil && nodeForm().MatchString(id.Node) && id.Key == nil {
		return Identity{}, fmt.Errorf("%s has no key to sign with: an agent from before the first release made it; "+
			"`grapevine forget` this host on another one, if there are others, and remove %s to join as a new host", name, dir)
	}
	if err != nil || !id.good() {
		return Identity{}, fmt.Errorf("%s is damaged (%v): restore it from a backup; "+
			"else `grapevine forget` this host on another one, and remove %s to join as a new host", name, cmp.Or(err, errParts), dir)
	}
	return id, nil
}

var errParts = errors.New("its parts do not belong together")

func create(dir string) (Identity, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Identity{}, fmt.Errorf("make the state directory: %w; the agent must run as root, with GRAPEVINE_STATE a directory that it can write", err)
	}
	id := newIdentity()
	return id, id.Save(dir)
}

func newIdentity() Identity {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		panic(err) // crypto/rand does not fail
	}
	return Identity{Node: string(cluster.HostID(cluster.Public(key))), Key: key.Seed()}
}

// Anew returns the identity of a new host, in the same cluster.
func (id Identity) Anew() Identity {
	next := newIdentity()
	next.Cluster, next.Was = id.Cluster, id.Node
	return next
}

// good reports whether the parts are well formed and belong together.
func (id Identity) good() bool {
	return len(id.Key) == ed25519.SeedSize && (id.Cluster == "" || clusterForm().MatchString(id.Cluster)) &&
		string(cluster.HostID(cluster.Public(id.Private()))) == id.Node
}

// Save writes the identity to dir; it is durable on return.
func (id Identity) Save(dir string) error { return id.SaveAs(filepath.Join(dir, File)) }

// SaveAs writes the identity to a file; it is durable on return.
func (id Identity) SaveAs(name string) error {
	data, err := seal(id)
	if err != nil {
		return fmt.Errorf("encode this host's identity: %w", err)
	}
	return writeFile(name, data)
}

// NewCluster makes a cluster ID.
func NewCluster() string { return random(16) }

// random is n random bytes in hexadecimal; crypto/rand does not fail.
func random(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}
