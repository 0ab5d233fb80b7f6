package lab

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// What Docker has on its disk once it has loaded the containers' image is the same on every new host. To load it
// takes a third of what a host's boot costs, and in User-Mode Linux seconds, so it is done once for each release of
// Docker and kept where scripts/tree keeps its trees. A new host's disk begins with a copy.

// loaded is the directory with the two directories that a new host's disk begins with, docker and containerd. It is
// made if it is not there; others who want the same wait meanwhile.
func (l *Lab) loaded(ctx context.Context) (string, error) {
	key, err := l.loadedKey()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(caches(), "docker-"+key)
	if err := os.MkdirAll(caches(), 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(caches(), "docker.lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("wait for who makes %s: %w", dir, err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return dir, err
	}
	return dir, makeLoaded(ctx, l.opts, dir)
}

func caches() string {
	if dir := os.Getenv("TREES"); dir != "" {
		return dir
	}
	return "/var/cache/grapevine-lab"
}

// loadedKey is made of the image and the programs that write to the disk.
func (l *Lab) loadedKey() (string, error) {
	image, err := os.ReadFile(filepath.Join(l.share(), "image.tar"))
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	sum.Write(image)
	for _, program := range []string{"usr/sbin/dockerd", "usr/bin/dockerd", "usr/bin/containerd"} {
		info, err := os.Stat(filepath.Join("/", l.opts.Tree, program))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		fmt.Fprintln(sum, program, info.Size(), info.ModTime().UnixNano())
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:8]), nil
}

// makeLoaded lets a host of its own load the image, ends its Docker, and keeps what is on its disk then.
func makeLoaded(ctx context.Context, opts Options, dir string) error {
	l := newLab(Options{Hosts: 1, Tree: opts.Tree, MTU: 1500})
	l.bare = true
	err := l.build(ctx)
	if err == nil {
		err = l.Hosts[0].keepLoaded(ctx, dir)
	}
	if err = errors.Join(err, l.Close()); err != nil {
		return fmt.Errorf("load the containers' image once, for all hosts: %w", err)
	}
	return nil
}

func (h *Host) keepLoaded(ctx context.Context, dir string) error {
	if err := h.StopDocker(ctx); err != nil {
		return err
	}
	if err := h.Stop(ctx, "containerd", syscall.SIGTERM, 30*time.Second); err != nil {
		return err
	}
	part, err := os.MkdirTemp(filepath.Dir(dir), "new.")
	if err != nil {
		return err
	}
	defer os.RemoveAll(part) // gone by its other name, if all went well
	disk := h.lab.sub(h.Name, "disk")
	// Which host this was, and the networks that its Docker had, are nobody else's.
	for _, own := range []string{"docker/engine-id", "docker/network"} {
		if err := os.RemoveAll(filepath.Join(disk, own)); err != nil {
			return err
		}
	}
	for _, name := range []string{"docker", "containerd"} {
		if err := copyTree(filepath.Join(disk, name), part); err != nil {
			return err
		}
	}
	if err := os.Chmod(part, 0o755); err != nil {
		return err
	}
	return os.Rename(part, dir)
}

// fill puts what a new host's disk begins with into its directory.
func (l *Lab) fill(disk string) error {
	if l.bare {
		return nil
	}
	out, err := exec.Command("cp", "-a", filepath.Join(l.begin, "docker"), filepath.Join(l.begin, "containerd"), disk).CombinedOutput()
	if err != nil {
		return fmt.Errorf("copy what a host's disk begins with: %w: %s", err, out)
	}
	return nil
}
