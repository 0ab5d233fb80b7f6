package identity

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/grapevine-net/grapevine/config"
)

func TestLoadKeepsTheNode(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	first, err := Load(dir)
	if err != nil || !nodeForm().MatchString(first.Node) || first.Cluster != "" {
		t.Fatalf("first start: %+v, %v", first, err)
	}
	first.Cluster = NewCluster()
	if err := first.Save(dir); err != nil {
		t.Fatal(err)
	}
	if again, err := Load(dir); err != nil || !reflect.DeepEqual(again, first) {
		t.Fatalf("second start: %+v, %v, want %+v", again, err, first)
	}
	other, err := Load(t.TempDir())
	if err != nil || other.Node == first.Node {
		t.Fatalf("another host has the same node ID %q, %v", other.Node, err)
	}
	private(t, dir, File)
}

// private fails if the file is not 0600, or if others lie beside it.
func private(t *testing.T, dir, name string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != name {
		t.Fatalf("in %s: %v, %v, want %s alone", dir, entries, err, name)
	}
	if info, err := entries[0].Info(); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%s: %v, %v", name, info.Mode(), err)
	}
}

func TestDamagedIdentityIsRefused(t *testing.T) {
	good, err := json.Marshal(newIdentity())
	if err != nil {
		t.Fatal(err)
	}
	key := regexp.MustCompile(`"key":".*"`)
	for _, text := range []string{
		"", "{", `{"node":"xyz"}`, string(good[:len(good)/2]),
		strings.Replace(string(good), `"node"`, `"cluster":"1","node"`, 1),
		`{"node":"0123456789abcdef",` + key.FindString(string(good)) + `}`, // not that key's ID
		key.ReplaceAllString(string(good), `"key":"AAAA"`),
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, File), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if id, err := Load(dir); err == nil || !strings.Contains(err.Error(), "is damaged") {
			t.Errorf("%q: %+v, %v", text, id, err)
		}
	}
}

func TestDecide(t *testing.T) {
	own := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}
	fresh, member := Identity{Node: "0123456789abcdef"}, Identity{Node: "0123456789abcdef", Cluster: NewCluster()}
	list := func(s ...string) (l []netip.AddrPort) {
		for _, a := range s {
			l = append(l, netip.AddrPortFrom(netip.MustParseAddr(a), 7947))
		}
		return l
	}
	for _, tt := range []struct {
		name string
		id   Identity
		join []netip.AddrPort
		want Role
	}{
		{"no list", fresh, nil, Seed},
		{"first", fresh, list("10.0.0.1", "10.0.0.2"), Seed},
		{"first, IPv6", fresh, list("fd00::1"), Seed},
		{"not first", fresh, list("10.0.0.2", "10.0.0.1"), Joiner},
		{"not in the list", fresh, list("10.0.0.2"), Joiner},
		{"first with state", member, list("10.0.0.1"), Member},
		{"no list with state", member, nil, Member},
	} {
		if got := Decide(tt.id, own, tt.join); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestKeys(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "key")
	if _, err := Keys(Joiner, nil, file, config.ParseKeys); err == nil || !strings.Contains(err.Error(), "grapevine join-command") {
		t.Fatalf("a joiner without a key: %v", err)
	}
	made, err := Keys(Seed, nil, file, config.ParseKeys)
	if err != nil || len(made) != 1 || len(made[0]) != 32 {
		t.Fatalf("a seed without a key: %d keys, %v", len(made), err)
	}
	private(t, dir, "key")
	for _, role := range []Role{Seed, Joiner, Member} {
		if again, err := Keys(role, nil, file, config.ParseKeys); err != nil || len(again) != 1 || !bytes.Equal(again[0], made[0]) {
			t.Fatalf("%v with a key file: %d keys, %v", role, len(again), err)
		}
	}
	given := [][]byte{make([]byte, 16)}
	if got, err := Keys(Joiner, given, file, config.ParseKeys); err != nil || !bytes.Equal(got[0], given[0]) {
		t.Fatalf("a configured key does not win: %v", err)
	}
}

func TestBadKeyFile(t *testing.T) {
	for _, text := range []string{"", "\n", "c2hvcnQ="} {
		file := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Keys(Seed, nil, file, config.ParseKeys); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestIdentityWithoutAKey: what was made before records were signed is not damaged.
func TestIdentityWithoutAKey(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, File), []byte(`{"node":"0123456789abcdef"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if id, err := Load(dir); err == nil || !strings.Contains(err.Error(), "no key to sign with") {
		t.Errorf("%+v, %v", id, err)
	}
}

// TestDiskThatTakesNothing: what was there stays, and the error names the file and what to do.
func TestDiskThatTakesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		fail  func(dir string) error
		words string
	}{
		"full": {func(dir string) error {
			err := os.WriteFile(filepath.Join(dir, "rest"), make([]byte, 1<<20), 0o600)
			if !errors.Is(err, syscall.ENOSPC) {
				return fmt.Errorf("the disk is not full: %w", err)
			}
			return nil
		}, "make room"},
		"read-only": {func(dir string) error { return syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, "") }, "writable"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
				t.Fatalf("mount a small file system: %v; the tests run as root", err)
			}
			t.Cleanup(func() { _ = syscall.Unmount(dir, 0) })
			id, err := Load(dir)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.fail(dir); err != nil {
				t.Fatal(err)
			}
			next := id
			next.Cluster = NewCluster()
			for file, err := range map[string]error{File: next.Save(dir), keyringFile: Keyring{Keys: [][]byte{make([]byte, 32)}}.Save(dir)} {
				if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, file)) || !strings.Contains(err.Error(), c.words) {
					t.Errorf("%s: %v", file, err)
				}
			}
			if got, err := Load(dir); err != nil || got.Cluster != "" || got.Node != id.Node {
				t.Errorf("afterwards it is %+v, %v", got, err)
			}
		})
	}
}
