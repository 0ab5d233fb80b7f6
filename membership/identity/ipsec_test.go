package identity

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestLoadIPsec(t *testing.T) {
	dir := t.TempDir()
	first, err := LoadIPsec(dir)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, IPsecFile)
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info.Mode(), err)
	}
	if again, err := LoadIPsec(dir); err != nil || !again.Equal(first) {
		t.Fatalf("the second start has another key, %v", err)
	}
	if other, err := LoadIPsec(t.TempDir()); err != nil || other.Equal(first) {
		t.Fatalf("another host has the same key, %v", err)
	}
	if err := os.Chmod(name, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadIPsec(dir); err == nil || !strings.Contains(err.Error(), "can read") {
		t.Errorf("a key that all can read: %v", err)
	}
	for _, text := range []string{"", "AAAA", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(name, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadIPsec(dir); err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// What strongSwan was told is known until it is told nothing any more.
func TestIPsecTold(t *testing.T) {
	told := IPsecTold{t.TempDir()}
	for _, want := range [][]string{nil, {"aa"}, {"aa", "bb"}, nil, nil} {
		if err := told.Save(want); err != nil {
			t.Fatal(err)
		}
		if got, err := told.Load(); err != nil || !slices.Equal(got, want) {
			t.Errorf("of %v is kept %v, %v", want, got, err)
		}
	}
	if _, err := (IPsecTold{told.Dir + "/none"}).Load(); err != nil {
		t.Error(err)
	}
	if err := os.Mkdir(filepath.Join(told.Dir, ToldFile), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := told.Load(); err == nil {
		t.Error("what cannot be read is nothing")
	}
}
