package identity

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// No bit of the files can rot without being noticed, unless it changes nothing that they say.
func TestEveryFlipIsFound(t *testing.T) {
	dir := t.TempDir()
	id, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	id.Cluster, id.Restored = NewCluster(), true
	keys := Keyring{Keys: [][]byte{[]byte("0123456789abcdef"), []byte("fedcba9876543210")}, Since: 1234, Base: base([][]byte{[]byte("0123456789abcdef")})}
	if err := id.Save(dir); err != nil {
		t.Fatal(err)
	}
	if err := keys.Save(dir); err != nil {
		t.Fatal(err)
	}
	for name, load := range map[string]func() (got, want any, err error){
		File: func() (any, any, error) {
			got, err := Load(dir)
			return got, id, err
		},
		keyringFile: func() (any, any, error) {
			got, err := LoadKeyring(dir, [][]byte{[]byte("0123456789abcdef")})
			return got, keys, err
		},
	} {
		path := filepath.Join(dir, name)
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for bit := range 8 * len(good) {
			bad := []byte(string(good))
			bad[bit/8] ^= 1 << (bit % 8)
			if err := os.WriteFile(path, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			got, want, err := load()
			if err == nil && !reflect.DeepEqual(got, want) {
				t.Errorf("%s with bit %d flipped is read as %+v:\n%s", name, bit, got, bad)
			}
			if err != nil && !strings.Contains(err.Error(), path) {
				t.Errorf("the error does not name the file: %v", err)
			}
		}
		if err := os.WriteFile(path, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSeal(t *testing.T) {
	type content struct{ A, B string }
	text, err := seal(content{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	var got content
	for _, good := range []string{string(text), `{"A": "a", "B": "b"}`} {
		if got = (content{}); unseal([]byte(good), &got) != nil || got != (content{"a", "b"}) {
			t.Errorf("%s is read as %+v", good, got)
		}
	}
	newer := strings.Replace(string(text), `"version": 1`, `"version": 2`, 1)
	if err := unseal([]byte(newer), &got); err == nil || !strings.Contains(err.Error(), "run the newer one") {
		t.Errorf("a newer agent's: %v", err)
	}
}
