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
	"github.com/grapevine-net/grapevine/config"
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

func newRestore() *cobra.Command {
	var alone bool
	c := &cobra.Command{
		Use:   "restore FILE",
		Short: "Make this host's state from a backup",
		Long: `Make this host's state directory from a backup of it. The agent must be stopped, and the
directory must have no state. Once the agent runs again it first asks every other host
whether it has heard more of this host than the backup has: if one has, addresses may
have been given away since, and the host has to be forgotten and to join as a new one,
as ` + "`grapevine status`" + ` then says. Until all have answered it hands out nothing. What a host says that was restored
itself proves nothing. Where there is no other host any more, or all of them were restored,
nobody can answer: restore one of them with --alone, which asks for some seconds only.`,
		Example: `  grapevine restore /root/grapevine-$(hostname).tar    # the agent is stopped, its old state moved away`,
		Args:    named("a file", 1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			cfg, err := config.Load(c.Flags(), os.Environ(), os.ReadFile)
			if err != nil {
				return err
			}
			f, err := os.Open(args[0])
			if err != nil {
				return fmt.Errorf("restore: %w; name a file that `grapevine backup` has made", err)
			}
			defer f.Close()
			m, err := backup.Restore(f, cfg.State, alone)
			if err != nil {
				return fmt.Errorf("restore from %s: %w", args[0], err)
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "Restored host %s (%s) as it was at %s into %s. Start the agent.\n",
				m.Name, m.Node, m.Made.Format(time.RFC3339), cfg.State)
			return err
		},
	}
	config.AddFlags(c.Flags(), "state")
	c.Flags().BoolVar(&alone, "alone", false, "no other host knows more: there is none, or all were restored")
	return c
}
