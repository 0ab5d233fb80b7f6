package identity

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/grapevine-net/grapevine/config"
)

// A key that was given as a setting is there when the setting has gone; another one takes its
// place.
func TestKeysOutliveTheirSetting(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "key")
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, keys := range [][][]byte{{bytes.Repeat([]byte("a"), 32)}, {bytes.Repeat([]byte("b"), 32), bytes.Repeat([]byte("a"), 32)}} {
		for range 2 {
			if kept, err := KeepKeys(keys, file, config.ParseKeys); err != nil || !kept {
				t.Fatal(kept, err)
			}
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
		got, err := Keys(Joiner, nil, file, config.ParseKeys)
		if err != nil || base(got) != base(keys) {
			t.Errorf("without the setting: %x, %v", got, err)
		}
	}
	if kept, err := KeepKeys([][]byte{bytes.Repeat([]byte("a"), 32)}, "/nowhere/key", config.ParseKeys); err == nil || kept {
		t.Error("a key is kept where no file can be")
	}
}
