// Package backup writes a host's state to one file, and makes a state directory
// from such a file.
package backup

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/membership/identity"
)

// A backup is a tar file: the manifest first, then the files of the state
// directory, and an empty entry last, without which it is cut off.
const (
	manifestEntry = "grapevine-backup.json"
	endEntry      = "end"
	// StateFile is the name of the state file in the state directory.
	StateFile = "grapevine.db"
	format    = 1
	// maxFile bounds the small files of a backup, bytes.
	maxFile = 1 << 20
)

// small are the files beside the state file; only the identity has to be there.
var small = []string{identity.File, "key", "keyring.json"}

// Manifest says what a backup is of.
type Manifest struct {
	Format  int       `json:"format"`
	Node    string    `json:"node"`
	Cluster string    `json:"cluster"`
	Name    string    `json:"name"`
	Agent   string    `json:"agent"`
	Made    time.Time `json:"made"`
}

// ErrDamaged is wrapped by the errors about a file that is no whole backup.
var ErrDamaged = errors.New("damaged, cut off, or not a backup")

// Write writes the state directory dir, whose state file is open as db, to w. It
// has the state at one moment; the agent goes on meanwhile.
func Write(w io.Writer, m Manifest, dir string, db *store.DB) error {
	m.Format = format
	t := tar.NewWriter(w)
	manifest, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("back up: %w", err)
	}
	if err := add(t, manifestEntry, manifest); err != nil {
		return err
	}
	for _, name := range small {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) && name != identity.File {
			continue
		}
		if err == nil {
			err = add(t, name, data)
		}
		if err != nil {
			return fmt.Errorf("back up: %w", err)
		}
	}
	if err := db.Copy(func(size int64) (io.Writer, error) { return t, header(t, StateFile, size) }); err != nil {
		return fmt.Errorf("back up %s: %w", db.Path(), err)
	}
	if err := add(t, endEntry, nil); err != nil {
		return err
	}
	return t.Close()
}

func header(t *tar.Writer, name string, size int64) error {
	if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: size}); err != nil {
		return fmt.Errorf("back up: %w", err)
	}
	return nil
}

func add(t *tar.Writer, name string, data []byte) error {
	err := header(t, name, int64(len(data)))
	if err == nil {
		_, err = t.Write(data)
	}
	return err
}

// Check reads a backup to its end and returns its manifest.
func Check(r io.Reader) (m Manifest, err error) {
	err = each(r, func(found Manifest, name string, _ io.Reader) error {
		m = found
		return nil
	})
	return m, err
}

// each calls fn for each file of a backup, in which the end entry stands last.
func each(r io.Reader, fn func(m Manifest, name string, data io.Reader) error) error {
	damaged := func(what any) error { return fmt.Errorf("%w: %v", ErrDamaged, what) }
	t := tar.NewReader(r)
	h, err := t.Next()
	if err != nil || h.Name != manifestEntry {
		return damaged("it does not begin like one")
	}
	var m Manifest
	if err := json.NewDecoder(io.LimitReader(t, maxFile)).Decode(&m); err != nil {
		return damaged(err)
	}
	if m.Format != format {
		return fmt.Errorf("the backup is of format %d, this program knows %d: use that of agent %.40q", m.Format, format, m.Agent)
	}
	for {
		h, err := t.Next()
		switch {
		case err != nil:
			return damaged(err)
		case h.Name == endEntry:
			return nil
		case h.Name != StateFile && (!slices.Contains(small, h.Name) || h.Size > maxFile):
			return damaged(fmt.Sprintf("%.40q is no file of it", h.Name))
		}
		err = fn(m, h.Name, t)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return damaged(err)
		}
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, t); err != nil {
			return damaged(err)
		}
	}
}

// Restore makes the state directory dir from a backup. It must have no state yet.
// The restored host hands out nothing until the others say that it knows all that
// it has ever said (identity.Identity.Restored), or, alone, for some seconds if none does. A restore that is interrupted
// leaves a state that does not open.
func Restore(r io.Reader, dir string, alone bool) (m Manifest, err error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return m, fmt.Errorf("make the state directory: %w%s", err, store.Advice(err))
	}
	// An agent that starts meanwhile waits until this has ended.
	release, err := store.Lock(dir, 0)
	if errors.Is(err, store.ErrInUse) {
		return m, fmt.Errorf("%s is in use, so the agent runs: stop it first; nothing was changed", dir)
	}
	if err != nil {
		return m, fmt.Errorf("%w; nothing was changed", err)
	}
	defer release()
	for _, name := range append([]string{StateFile}, small...) {
		if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			return m, fmt.Errorf("%s has state already (%s): stop the agent and move the directory away first; nothing was changed", dir, name)
		}
	}
	work, err := os.MkdirTemp(dir, ".restore-*")
	if err != nil {
		return m, fmt.Errorf("make room for what is restored: %w%s", err, store.Advice(err))
	}
	defer os.RemoveAll(work)
	if m, err = unpack(r, work, alone); err != nil {
		return m, fmt.Errorf("%w%s; nothing was changed", err, store.Advice(err))
	}
	// The identity first: without its state file it is refused, and the other way round.
	for _, name := range append(small, StateFile) {
		err = os.Rename(filepath.Join(work, name), filepath.Join(dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			break
		}
		err = nil
	}
	if err == nil {
		err = store.SyncDir(dir)
	}
	if err != nil {
		return m, fmt.Errorf("put what is restored into place: %w%s; then empty %s and restore again", err, store.Advice(err), dir)
	}
	return m, nil
}

// unpack makes the files in a directory and sees whether they are good.
func unpack(r io.Reader, dir string, alone bool) (m Manifest, err error) {
	err = each(r, func(found Manifest, name string, data io.Reader) error {
		m = found
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, data)
		return errors.Join(err, f.Sync(), f.Close())
	})
	if err != nil {
		return m, err
	}
	for _, name := range []string{identity.File, StateFile} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return m, fmt.Errorf("%w: it has no %s", ErrDamaged, name)
		}
	}
	id, err := identity.Load(dir)
	if err != nil {
		return m, fmt.Errorf("%w: its %s is not whole, or of a newer agent", ErrDamaged, identity.File)
	}
	db, err := store.Open(filepath.Join(dir, StateFile))
	switch {
	case errors.Is(err, store.ErrNewer):
		return m, fmt.Errorf("it was made by a newer agent (%.40q): use that program", m.Agent)
	case errors.Is(err, store.ErrCorrupt):
		return m, fmt.Errorf("%w: its %s is not whole", ErrDamaged, StateFile)
	case err != nil:
		return m, err
	}
	if err := db.Close(); err != nil {
		return m, err
	}
	id.Restored, id.Alone = true, alone
	return m, id.Save(dir)
}
