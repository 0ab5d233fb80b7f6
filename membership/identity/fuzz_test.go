package identity

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// FuzzLoad: whatever is in the two files of this package, they are refused or good.
func FuzzLoad(f *testing.F) {
	old, err := json.Marshal(newIdentity()) // before there were seals
	if err != nil {
		f.Fatal(err)
	}
	f.Add(old)
	good, err := seal(newIdentity())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"keys":["AAAA"],"since":1,"base":"x"}`))
	f.Add([]byte(`{"node":"0123456789abcdef","key":""}`))
	f.Add([]byte(`{"node":"0123456789abcdef","key":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		for _, name := range []string{File, keyringFile} {
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if id, err := Load(dir); err == nil && !id.good() {
			t.Errorf("accepted %+v", id)
		}
		if k, err := LoadKeyring(dir, [][]byte{{1}}); err == nil && len(k.Keys) == 0 {
			t.Error("a keyring without a key")
		}
	})
}
