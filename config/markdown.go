package config

import (
	"fmt"
	"strings"
)

// Markdown is docs/use/options.md.
func Markdown() string {
	var b strings.Builder
	b.WriteString("# Options\n\n" +
		"<!-- Generated from config/table.go by `go test ./config -update`. Do not edit. -->\n\n" +
		"A setting can be given as a flag of `grapevine agent`, as an environment variable, or as a line\n" +
		"`GRAPEVINE_...=...` of `" + DefaultFile + "` (`--config` or `GRAPEVINE_CONFIG` name another file).\n" +
		"The flag wins over the environment, the environment over the file, the file over the default. An empty\n" +
		"value is no value. Unknown variables and lines are errors.\n\n" +
		"The managed plugin takes the environment variables: `docker plugin install ... GRAPEVINE_JOIN=...`, or\n" +
		"`docker plugin set` while it is disabled. Those marked * follow from the plugin's mounts and cannot be set there.\n\n" +
		"| flag | environment, file | default | |\n|---|---|---|---|\n")
	for _, s := range Table {
		def, mark := "", ""
		if s.Default != "" {
			def = "`" + s.Default + "`"
		}
		if s.Fixed {
			mark = " *"
		}
		fmt.Fprintf(&b, "| `--%s`%s | `%s` | %s | %s |\n", s.Name, mark, s.Env(), def, strings.ReplaceAll(s.Doc, "|", "\\|"))
	}
	return b.String()
}
