package config

import (
	"encoding/json"
	"os"
	"slices"
	"testing"
)

// TestPluginEnv holds plugin.json's env list to the table: each setting that is
// not fixed by the mounts, in order, settable, with an empty value (the agent's
// own default holds) and a description.
func TestPluginEnv(t *testing.T) {
	data, err := os.ReadFile("../plugin.json")
	if err != nil {
		t.Fatal(err)
	}
	var plugin struct {
		Env []struct {
			Name, Description, Value string
			Settable                 []string
		}
	}
	if err := json.Unmarshal(data, &plugin); err != nil {
		t.Fatal(err)
	}
	var want, have []string
	for _, s := range Table {
		if !s.Fixed {
			want = append(want, s.Env())
		}
	}
	for _, e := range plugin.Env {
		have = append(have, e.Name)
		if e.Value != "" || e.Description == "" || !slices.Equal(e.Settable, []string{"value"}) {
			t.Errorf("%s: want no value, a description, and settable by value: %+v", e.Name, e)
		}
	}
	if !slices.Equal(have, want) {
		t.Errorf("plugin.json has env\n%q\nthe table says\n%q", have, want)
	}
}
