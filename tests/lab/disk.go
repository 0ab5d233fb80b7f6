package lab

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ownDisk mounts a tmpfs on the directory of a host's disk, so that it can be full while
// others are not, and puts there what it begins with. It is there after the first boot.
func (l *Lab) ownDisk(dir string) error {
	switch err := os.Mkdir(dir, 0o755); {
	case errors.Is(err, os.ErrExist):
		return nil
	case err != nil:
		return err
	}
	if err := unix.Mount("grapevine-lab-disk", dir, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount a host's disk: %w", err)
	}
	return l.fill(dir)
}

// FillDisk lets nothing more be written to the host's disk, until FreeDisk: no space is
// left on it. Namespace hosts only.
func (h *Host) FillDisk() error {
	dir := h.lab.sub(h.Name, "disk")
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("look at a host's disk: %w", err)
	}
	return h.lab.resizeDisk(h.Name, fmt.Sprintf("size=%d", (st.Blocks-st.Bfree)*uint64(st.Bsize)))
}

// FreeDisk gives the disk its space back.
func (h *Host) FreeDisk() error { return h.lab.resizeDisk(h.Name, "size=50%") }

func (l *Lab) resizeDisk(host, size string) error {
	if err := unix.Mount("", l.sub(host, "disk"), "", unix.MS_REMOUNT, size); err != nil {
		return fmt.Errorf("change the size of %s's disk: %w", host, err)
	}
	return nil
}
