package membership

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/gossip"
)

// TestKeysRotate changes the key of three hosts while they run, in the steps that
// the command line takes; no host loses another one, and a restart changes nothing.
func TestKeysRotate(t *testing.T) { virtual(t, testKeysRotate) }

func testKeysRotate(t *testing.T) {
	ctx := context.Background()
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	hosts := []*testHost{newHost(t, 1, dirs[0]).run(), newHost(t, 2, dirs[1], 1).run(), newHost(t, 3, dirs[2], 1).run()}
	together := func() bool {
		for _, h := range hosts {
			if len(h.gossip.Alive()) != len(hosts)-1 || len(h.Nodes(h.replica.Snapshot())) != len(hosts) {
				return false
			}
		}
		return true
	}
	eventually(t, "all see all", together)
	do := func(h *testHost, verb, key, want string) {
		t.Helper()
		done, err := h.Keys.Change(ctx, api.KeysRequest{Verb: verb, Key: key})
		if err != nil {
			done.Text = err.Error()
		}
		if !strings.Contains(done.Text, want) {
			t.Fatalf("%s %s: %q, want %q", verb, key, done.Text, want)
		}
		if !together() {
			t.Fatalf("%s: hosts have lost each other", verb)
		}
	}
	list := func(h *testHost) []api.Key {
		t.Helper()
		keys, err := h.Keys.List(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}
	old := fingerprint(testKey[0])
	if k := list(hosts[2]); !slices.Equal(k, []api.Key{{ID: old, On: 3, Using: 3, Hosts: 3}}) {
		t.Fatalf("at first: %v", k)
	}
	next := gossip.GenerateKey()
	do(hosts[0], "use", gossip.FormatKey(next), "does not have it")
	do(hosts[0], "remove", old, "encrypts with it")
	do(hosts[0], "install", gossip.FormatKey(next), "Every host (3)")
	do(hosts[1], "remove", old, "encrypts with it")
	// One host is left out when the key is taken into use, and learns of it, though the clock
	// of the host that ordered it stands at 1970.
	hosts[2].stop()
	for _, h := range hosts[:2] {
		if _, err := h.Keys.obey(keyOrder{Verb: "use", Key: next, Since: 0}); err != nil {
			t.Fatal(err)
		}
	}
	hosts[2] = newHost(t, 3, dirs[2], 1).run()
	eventually(t, "it uses the key as well", func() bool { return bytes.Equal(hosts[2].gossip.ListKeys()[0], next) && together() })
	do(hosts[1], "use", fingerprint(next), "Every host (3)") // again
	do(hosts[2], "use", "12345678", "no host has a key")
	do(hosts[2], "use", "zz", "neither a key's ID")
	do(hosts[2], "install", "zz", "is not base64")
	if k := list(hosts[0]); !slices.Equal(k, []api.Key{{ID: fingerprint(next), On: 3, Using: 3, Hosts: 3}, {ID: old, On: 3, Hosts: 3}}) {
		t.Errorf("in the middle: %v", k)
	}

	// A host that is away is not shut out, nor does it come back with the old key.
	hosts[2].stop()
	do2 := func(verb, key, want string) {
		t.Helper()
		if _, err := hosts[0].Keys.Change(ctx, api.KeysRequest{Verb: verb, Key: key}); err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("%s: %v, want %q", verb, err, want)
		}
	}
	do2("remove", old, "would be shut out")
	late := newHost(t, 3, dirs[2], 1)
	if !bytes.Equal(late.Keys.Keyring.Keys[0], next) {
		t.Error("after a restart it encrypts with the old key")
	}
	hosts[2] = late.run()
	eventually(t, "the host is back", together)
	do(hosts[2], "remove", old, "Every host (3)")
	for _, h := range hosts {
		if k := h.gossip.ListKeys(); len(k) != 1 || !bytes.Equal(k[0], next) {
			t.Errorf("%s has %d keys", h.cfg.Name, len(k))
		}
		if n := h.gossip.Stats()[gossip.RefusedKey]; n > 0 {
			t.Errorf("%s could not read %d messages", h.cfg.Name, n)
		}
	}
	// The configuration still has the old key.
	hosts[1].stop()
	hosts[1] = newHost(t, 2, dirs[1], 1).run()
	eventually(t, "after a restart the host is back", together)
}
