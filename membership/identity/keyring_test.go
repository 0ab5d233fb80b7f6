package identity

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestKeyring(t *testing.T) {
	dir := t.TempDir()
	old, next, third := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32), bytes.Repeat([]byte{3}, 32)
	k, err := LoadKeyring(dir, [][]byte{old})
	if err != nil || len(k.Keys) != 1 || k.Since != 0 {
		t.Fatalf("at first: %v, %v", k, err)
	}
	k.Keys, k.Since = [][]byte{next, old}, 7
	if err := k.Save(dir); err != nil {
		t.Fatal(err)
	}
	private(t, dir, keyringFile)
	if again, err := LoadKeyring(dir, [][]byte{old}); err != nil || !reflect.DeepEqual(again, k) {
		t.Errorf("with the configuration it came from: %v, %v", again, err)
	}
	if again, err := LoadKeyring(dir, [][]byte{third}); err != nil || len(again.Keys) != 1 || !bytes.Equal(again.Keys[0], third) {
		t.Errorf("with another configuration: %v, %v", again, err)
	}
	for _, text := range []string{"", "{", `{"base":"x"}`, `{"keys":["AAAA"],"base":"x"}`, `{"keys":["AAECAwQFBgcICQoLDA0ODw=="],"bare":"x"}`} {
		file := filepath.Join(dir, keyringFile)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if k, err := LoadKeyring(dir, [][]byte{old}); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%q: %v, %v", text, k, err)
		}
	}
}
