package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/membership/backup"
)

func newBackup() *cobra.Command {
	return verb(&cobra.Command{
		Use:   "backup FILE",
		Short: "Write this host's state to a file",
		Long: `Write this host's state to a file, as it is at one moment, while the agent runs: who it
is, its keys, what it owns and has handed out. Whoever has the file can be this host.`,
		Example: "  grapevine backup /root/grapevine-$(hostname).tar",
		Args:    named("a file", 1, 1),
	}, 5*time.Minute, func(ctx context.Context, c *api.Client, args []string) (backup.Manifest, error) {
		return writeBackup(ctx, c, args[0])
	}, func(w io.Writer, m backup.Manifest) error {
		_, err := fmt.Fprintf(w, "Backed up host %s (%s) of cluster %s.\n", m.Name, m.Node, dash(m.Cluster))
		return err
	})
}

// writeBackup makes the file, whole and checked, or none.
func writeBackup(ctx context.Context, c *api.Client, name string) (m backup.Manifest, err error) {
	if _, err := os.Lstat(name); !errors.Is(err, os.ErrNotExist) {
		return m, fmt.Errorf("%s is there already: name another file", name)
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".grapevine-backup-*") // 0600
	if err != nil {
		return m, fmt.Errorf("back up: %w%s", err, store.Advice(err))
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if err := c.Backup(ctx, f); err != nil {
		return m, err
	}
	if _, err = f.Seek(0, io.SeekStart); err == nil {
		m, err = backup.Check(f)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return m, fmt.Errorf("back up to %s: %w%s", name, err, store.Advice(err))
	}
	return m, nil
}
