package config

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/grapevine-net/grapevine/sshkey"
)

func TestPolicyKeys(t *testing.T) {
	load := func(value string) (Config, error) {
		return Load(pflag.NewFlagSet("", pflag.ContinueOnError), []string{"GRAPEVINE_POLICY_KEYS=" + value}, func(string) ([]byte, error) { return nil, fs.ErrNotExist })
	}
	one, two := sshkey.Line(sshkey.Key{1}), sshkey.Line(sshkey.Key{2})
	for value, want := range map[string]int{"": 0, one: 1, one + " alice@laptop": 1, one + ", " + two + " bob,": 2, one + "," + one: 1} {
		if c, err := load(value); err != nil || len(c.PolicyKeys) != want {
			t.Errorf("%q: %d keys, %v", value, len(c.PolicyKeys), err)
		}
	}
	var many []string
	for i := range byte(maxPolicyKeys + 1) {
		many = append(many, sshkey.Line(sshkey.Key{i}))
	}
	for value, want := range map[string]string{
		",": "has no key in it", "alice": "no line of a .pub file", one + " " + two: "two keys without a comma", "ssh-rsa AAAA": "ssh-keygen -t ed25519", one + ",x": "no line of a .pub file", strings.Join(many, ","): "has 17 keys, and may have 16",
	} {
		if _, err := load(value); err == nil || !strings.Contains(err.Error(), "GRAPEVINE_POLICY_KEYS") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", value, err, want)
		}
	}
}
