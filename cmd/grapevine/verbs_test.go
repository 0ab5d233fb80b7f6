package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestVerbsHaveAFile: each verb is a file of its name, and no other verb is in it; what is below a verb may be.
func TestVerbsHaveAFile(t *testing.T) {
	use := regexp.MustCompile(`Use: +"([a-z-]+)[ "]`)
	root := newRoot()
	verbs := map[string]bool{}
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			verbs[c.Name()] = true
		}
	}
	for v := range verbs {
		name := strings.ReplaceAll(v, "-", "") + ".go"
		text, err := os.ReadFile(name)
		if err != nil {
			t.Errorf("the verb %s is in no file of its name: %v", v, err)
			continue
		}
		m := use.FindSubmatch(text)
		if m == nil || string(m[1]) != v {
			t.Errorf("%s does not begin with the verb %s, but with %q", name, v, m)
		}
	}
}
