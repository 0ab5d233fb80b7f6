package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// removeCgroups removes the cgroups below a name in every hierarchy of the
// machine. They are empty once the processes are gone, which the kernel may
// notice a moment later.
func removeCgroups(name string) error {
	roots, err := filepath.Glob(filepath.Join("/sys/fs/cgroup/*", name))
	if err != nil {
		return err
	}
	for _, root := range append(roots, filepath.Join("/sys/fs/cgroup", name)) {
		if err := removeTree(root); err != nil {
			return fmt.Errorf("remove a cgroup: %w", err)
		}
	}
	return nil
}

// pluginID is the form of the directories of managed plugins in Docker's data.
var pluginID = regexp.MustCompile(`^[0-9a-f]{64}$`)

// removePluginCgroups removes the cgroups of managed plugins that still ran when
// the hosts of the lab in dir ended. dockerd's --cgroup-parent is not for plugins:
// runc puts those at the top, or below the cgroup that we are in ourselves.
func removePluginCgroups(dir string) error {
	plugins, err := filepath.Glob(filepath.Join(dir, "*/disk/docker/plugins/*"))
	if err != nil {
		return err
	}
	own, err := ownCgroups()
	if err != nil {
		return err
	}
	var errs []error
	for _, plugin := range plugins {
		if id := filepath.Base(plugin); pluginID.MatchString(id) {
			for _, at := range append(own, "/") {
				errs = append(errs, removeCgroups(filepath.Join(at, id)))
			}
		}
	}
	return errors.Join(errs...)
}

// ownCgroups are the paths of this process' cgroups in their hierarchies (cgroups(7)).
func ownCgroups() ([]string, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	var paths []string
	for line := range strings.Lines(string(text)) {
		if fields := strings.SplitN(strings.TrimSpace(line), ":", 3); len(fields) == 3 && fields[2] != "/" {
			paths = append(paths, fields[2])
		}
	}
	return paths, nil
}

// removeTree removes directories only, deepest first.
func removeTree(root string) error {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(root, e.Name())); err != nil {
				return err
			}
		}
	}
	for range 100 {
		if err = syscall.Rmdir(root); !errors.Is(err, syscall.EBUSY) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if errors.Is(err, syscall.ENOENT) {
		return nil
	}
	return err
}
