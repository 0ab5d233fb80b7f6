package docker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/docker/docker/client"
)

// Kept reads what Docker keeps of containers on its disk. That can be read while Docker starts, and answers nothing.
type Kept struct {
	note string // the file that says where it is
	mu   sync.Mutex
	root string
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

// RootFile is the note of where Docker keeps what it has, in the state directory.
const RootFile = "docker-root"

// NewKept is for where Docker said last that it keeps what it has, as is noted in this file. Where it has not said it yet, its configuration
// file does, or it is where it is by itself.
func NewKept(note string) *Kept {
	return &Kept{note: note, root: noted(note), has: map[string]keptFile{}}
}

func noted(note string) string {
	if b, err := os.ReadFile(note); err == nil && filepath.IsAbs(string(b)) {
		return string(b)
	}
	var config struct {
		Root string `json:"data-root"`
	}
	if b, err := os.ReadFile("/etc/docker/daemon.json"); err == nil {
		_ = json.Unmarshal(b, &config) // one that is no JSON keeps Docker from starting
	}
	return cmp.Or(config.Root, "/var/lib/docker")
}

// Ask asks Docker where it keeps what it has, and notes that for when it answers nothing: its command line may say it, which comes and goes.
func (k *Kept) Ask(ctx context.Context, c *Client) error {
	root, err := c.root(ctx)
	if err != nil || !filepath.IsAbs(root) {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if b, err := os.ReadFile(k.note); err == nil && string(b) == root {
		k.root = root
		return nil
	}
	k.root = root
	next := k.note + ".new"
	if err := errors.Join(os.WriteFile(next, []byte(root), 0o600), os.Rename(next, k.note)); err != nil {
		return fmt.Errorf("note where Docker keeps containers: %w", err)
	}
	return nil
}

// root asks the engine where it keeps what it has.
func (c *Client) root(ctx context.Context) (dir string, err error) {
	err = c.do(ctx, "ask where it keeps containers", func(ctx context.Context, cli *client.Client) error {
		info, err := cli.Info(ctx)
		dir = info.DockerRootDir
		return err
	})
	return dir, err
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
