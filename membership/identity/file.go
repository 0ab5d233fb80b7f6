package identity

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/grapevine-net/grapevine/host/store"
)

// writeFile replaces the file by data, for root's eyes only (0600). After a loss
// of power it has either the old content or the new one; on return, the new one.
func writeFile(name string, data []byte) error {
	dir := filepath.Dir(name)
	tmp, err := os.CreateTemp(dir, "."+filepath.Base(name)+"-*") // 0600
	if err != nil {
		return fmt.Errorf("write %s: %w%s", name, err, store.Advice(err))
	}
	defer os.Remove(tmp.Name()) // gone already after the rename
	_, err = tmp.Write(data)
	if err == nil {
		err = tmp.Sync()
	}
	if closed := tmp.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(tmp.Name(), name)
	}
	if err == nil {
		err = store.SyncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w%s", name, err, store.Advice(err))
	}
	return nil
}
