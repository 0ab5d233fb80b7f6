package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/sshkey"
)

// maxPolicyKeys is how many a host says to the others that it goes by.
const maxPolicyKeys = 16

func setPolicyKeys(c *Config, v string) error {
	c.PolicyKeys = nil
	for line := range strings.SplitSeq(v, ",") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		key, err := sshkey.Parse(line)
		if err == nil && strings.Count(line, "ssh-ed25519") > 1 {
			err = errors.New("it has two keys without a comma between them")
		}
		if err != nil {
			return fmt.Errorf("%w; it takes public keys with commas between, each the line of a .pub file that `ssh-keygen -t ed25519` made", err)
		}
		if !slices.Contains(c.PolicyKeys, key) {
			c.PolicyKeys = append(c.PolicyKeys, key)
		}
	}
	switch n := len(c.PolicyKeys); {
	case n == 0:
		return fmt.Errorf("%q has no key in it: leave it empty, if policies are not to be signed", v)
	case n > maxPolicyKeys:
		return fmt.Errorf("it has %d keys, and may have %d", n, maxPolicyKeys)
	}
	return nil
}
