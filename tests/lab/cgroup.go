package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// removeCgroups removes the cgroups below a name in every hierarchy of the
// machine. They are empty once the processes are gone, which the kernel may
// notice a moment later.
func removeCgroups(name string) error {
	roots, err := filepath.Glob("/sys/fs/cgroup/*/" + name)
	if err != nil {
		return err
	}
	for _, root := range append(roots, "/sys/fs/cgroup/"+name) {
		if err := removeTree(root); err != nil {
			return fmt.Errorf("remove a cgroup: %w", err)
		}
	}
	return nil
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
		if err = syscall.Rmdir(root); err != syscall.EBUSY {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err == syscall.ENOENT {
		return nil
	}
	return err
}
