package docker

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Kept reads what Docker keeps of containers on its disk. That can be read while Docker starts, and answers nothing.
type Kept struct {
	root string
	mu   sync.Mutex
	has  map[string]keptFile // by path
}

// keptFile is one that does not change but by being written anew.
type keptFile struct {
	written time.Time
	size    int64
	Container
}

// maxKept bounds what is read of one container: Docker's own are some ten kilobytes.
const maxKept = 16 << 20

// NewKept is for Docker with this root (`docker info` says it).
func NewKept(root string) *Kept { return &Kept{root: root, has: map[string]keptFile{}} }

// Root is where Docker on this host keeps what it has, as far as its configuration file says it.
func Root() string {
	var config struct {
		Root string `json:"data-root"`
	}
	if b, err := os.ReadFile("/etc/docker/daemon.json"); err == nil {
		_ = json.Unmarshal(b, &config) // one that is no JSON keeps Docker from starting
	}
	return cmp.Or(config.Root, "/var/lib/docker")
}

// Containers are those with this word in what Docker keeps of them, with their labels and networks. Of a network its name is there,
// and its ID if the container has been on it. A container that cannot be read is left out, and the error says so.
func (k *Kept) Containers(word string) (list []Container, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	paths, err := filepath.Glob(filepath.Join(k.root, "containers", "*", "config.v2.json"))
	if err != nil {
		return nil, err
	}
	had := k.has
	k.has = make(map[string]keptFile, len(paths))
	var errs []error
	for _, path := range paths {
		info, err := os.Stat(path)
		if errors.Is(err, os.ErrNotExist) { // it is just being removed
			continue
		}
		f, there := had[path]
		if err == nil && !(there && f.size == info.Size() && f.written.Equal(info.ModTime())) {
			f = keptFile{written: info.ModTime(), size: info.Size()}
			f.Container, err = readKept(path, info.Size(), word)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("read what Docker keeps of a container: %w", err))
			continue
		}
		if k.has[path] = f; f.ID != "" {
			list = append(list, f.Container)
		}
	}
	return list, errors.Join(errs...)
}

// readKept returns the zero Container for one without the word.
func readKept(path string, size int64, word string) (c Container, err error) {
	if size > maxKept {
		return c, fmt.Errorf("%s has %d bytes, at most %d are read", path, size, maxKept)
	}
	b, err := os.ReadFile(path)
	if err != nil || !bytes.Contains(b, []byte(word)) {
		return c, err
	}
	var kept struct {
		ID     string
		Name   string
		Config struct {
			Labels map[string]string
		}
		NetworkSettings struct {
			Networks map[string]struct{ NetworkID string }
		}
	}
	if err := json.Unmarshal(b, &kept); err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	c = Container{ID: cmp.Or(kept.ID, filepath.Base(filepath.Dir(path))), Name: kept.Name, Labels: kept.Config.Labels}
	for name, n := range kept.NetworkSettings.Networks {
		c.Networks = append(c.Networks, Attachment{Network: name, NetworkID: n.NetworkID})
	}
	return c, nil
}
