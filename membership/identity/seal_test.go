package identity

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/config"
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

// The key file is people's and has no checksum. A flipped bit is noticed all the same, and
// other keys are not taken for one.
func TestEveryFlipOfTheKeyFileIsFound(t *testing.T) {
	dir := t.TempDir()
	id, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "key")
	read := func(text string) ([][]byte, error) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		again, err := Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		keys, err := Keys(Seed, nil, file, config.ParseKeys)
		if err == nil {
			err = again.KnowKeys(dir, keys, file)
		}
		return keys, err
	}
	good := "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\nICEiIyQlJicoKSorLC0uLw==\n"
	want, err := read(good)
	if err != nil {
		t.Fatal(err)
	}
	for bit := range 8 * len(good) {
		bad := []byte(good)
		bad[bit/8] ^= 1 << (bit % 8)
		got, err := read(string(bad))
		if err == nil && !reflect.DeepEqual(got, want) {
			t.Errorf("with bit %d flipped it is read as %x", bit, got)
		}
		if err != nil && !strings.Contains(err.Error(), file) {
			t.Errorf("the error does not name the file: %v", err)
		}
	}
	for _, other := range []string{"AAECAwQFBgcICQoLDA0ODw==\n", good} {
		if _, err := read(other); err != nil {
			t.Errorf("other keys: %v", err)
		}
	}
	if again, err := Load(dir); err != nil || again.Keys == "" || again.Node != id.Node {
		t.Errorf("%+v, %v", again, err)
	}
}

// TestFilesWithoutAChecksum are read strictly, and have one when the agent has started.
func TestFilesWithoutAChecksum(t *testing.T) {
	dir := t.TempDir()
	id, keys := newIdentity(), [][]byte{make([]byte, 32)}
	ring := Keyring{Keys: keys, Base: base(keys)}
	write := func(file string, v any) {
		old, err := json.Marshal(v)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), old, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write(File, map[string]any{"node": id.Node, "key": id.Key, "clurter": NewCluster()})
	if got, err := Load(dir); err == nil {
		t.Errorf("a field that nobody knows: %+v", got)
	}
	write(File, id)
	write(keyringFile, ring)
	got, err := Load(dir)
	if err != nil || !reflect.DeepEqual(got, id) {
		t.Errorf("%+v, %v", got, err)
	}
	if err := got.KnowKeys(dir, keys, "key"); err != nil {
		t.Error(err)
	}
	if got, err := LoadKeyring(dir, keys); err != nil || !reflect.DeepEqual(got, ring) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, file := range []string{File, keyringFile} {
		if now, err := os.ReadFile(filepath.Join(dir, file)); err != nil || !strings.Contains(string(now), `"sum": "`) {
			t.Errorf("%s has no checksum: %s, %v", file, now, err)
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
	if more, err := seal(struct{ A, B, C string }{"a", "b", "c"}); err != nil || unseal(more, &got) != nil || got != (content{"a", "b"}) {
		t.Errorf("a file with a field that this agent does not know: %+v, %v", got, err)
	}
	newer := strings.Replace(string(text), `"version": 1`, `"version": 2`, 1)
	if err := unseal([]byte(newer), &got); err == nil || !strings.Contains(err.Error(), "run the newer one") {
		t.Errorf("a newer agent's: %v", err)
	}
}
