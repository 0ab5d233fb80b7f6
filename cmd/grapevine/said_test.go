package main

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var (
	// aCommand is a command line of the program in a document: in backticks, or on an indented line of its own.
	aCommand = regexp.MustCompile("(?m)(?:`(?:sudo )?|^ {4}(?:sudo )?)grapevine ([a-z][^`\n]*)")
	// aLink is a link to another document, or to a place in one.
	aLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	// anID is a place that a document names itself, beside its headings.
	anID = regexp.MustCompile(`<a id="([^"]+)">`)
	// aSetting is a setting as the environment has it.
	aSetting = regexp.MustCompile(`\bGRAPEVINE_[A-Z_]*[A-Z]\b`)
	aWord    = regexp.MustCompile(`^[a-z][a-z|-]*$`)
	linked   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	unslug   = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// documents are all of the repository, by their paths from the root.
func documents(t *testing.T) map[string]string {
	t.Helper()
	docs := map[string]string{}
	for _, f := range tracked(t) {
		if path.Ext(f) != ".md" {
			continue
		}
		if b, err := os.ReadFile(filepath.Join("..", "..", f)); err == nil {
			docs[f] = string(b)
		}
	}
	return docs
}

// TestDocsSayWhatCanBeSaid: each command that a document says is one, and so are its flags.
func TestDocsSayWhatCanBeSaid(t *testing.T) {
	checked := 0
	for f, text := range documents(t) {
		for _, m := range aCommand.FindAllStringSubmatch(text, -1) {
			checked++
			for _, wrong := range unsaid(newRoot(), strings.Fields(m[1])) {
				t.Errorf("%s says `grapevine %s`: %s is none", f, m[1], wrong)
			}
		}
	}
	if checked < 300 {
		t.Errorf("%d commands are said: has the form changed?", checked)
	}
}

// TestUnsaid: what is no command and no flag is found.
func TestUnsaid(t *testing.T) {
	for line, want := range map[string]string{
		"status --check -H ssh://host2": "", "policy apply|delete --key FILE": "", "policy explain web db:5432": "", "trace FROM TO:PORT": "", "policy`": "",
		"wonder": "wonder", "policy apply|wonder": "wonder", "status --wonder": "--wonder", "policy apply --wonder=1": "--wonder",
	} {
		if got := strings.Join(unsaid(newRoot(), strings.Fields(strings.Trim(line, "`"))), " "); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// unsaid are the words of a command line that are no command, and no flag, of the program.
func unsaid(c *cobra.Command, words []string) (wrong []string) {
	for _, word := range words {
		if word == "|" || word == "&&" || strings.HasPrefix(word, "#") {
			break // what follows is not ours
		}
		if flag, is := strings.CutPrefix(word, "--"); is {
			flag, _, _ = strings.Cut(strings.Trim(flag, "[],.;:)"), "=")
			if flag != "" && flag != "help" && c.Flag(flag) == nil {
				wrong = append(wrong, "--"+flag)
			}
			continue
		}
		if !c.HasSubCommands() || !aWord.MatchString(word) {
			continue
		}
		next := c
		for name := range strings.SplitSeq(word, "|") {
			at := slices.IndexFunc(c.Commands(), func(sub *cobra.Command) bool { return sub.Name() == name || sub.HasAlias(name) })
			if at < 0 && strings.Contains(c.Use, " ") {
				break // it takes words of people's as well
			}
			if at < 0 {
				return append(wrong, name)
			}
			next = c.Commands()[at]
		}
		c = next
	}
	return wrong
}

// TestDocsNameSettings: each setting that a document names is one, or a variable of the tests and scripts.
func TestDocsNameSettings(t *testing.T) {
	var source strings.Builder
	for _, f := range tracked(t) {
		if strings.HasPrefix(f, "config/") || strings.HasPrefix(f, "scripts/") || strings.HasPrefix(f, "tests/") && path.Ext(f) != ".md" || f == "docs/use/options.md" {
			if b, err := os.ReadFile(filepath.Join("..", "..", f)); err == nil {
				source.Write(b)
			}
		}
	}
	known := map[string]bool{}
	for _, name := range aSetting.FindAllString(source.String(), -1) {
		known[name] = true
	}
	for f, text := range documents(t) {
		for _, name := range aSetting.FindAllString(text, -1) {
			if !known[name] {
				t.Errorf("%s names the setting %s, which is none", f, name)
			}
		}
	}
}

// TestDocsLinkToWhatIsThere: each link of a document to a file, or to a place in a document, leads there.
func TestDocsLinkToWhatIsThere(t *testing.T) {
	docs := documents(t)
	for f, text := range docs {
		if f == "docs/measurements/simulation/flows.md" {
			continue // a part of simulation.md, one folder above
		}
		for _, m := range aLink.FindAllStringSubmatch(text, -1) {
			file, place, _ := strings.Cut(m[1], "#")
			if strings.Contains(file, ":") {
				continue // elsewhere
			}
			to := f
			if file != "" {
				to = path.Join(path.Dir(f), file)
			}
			if _, err := os.Stat(filepath.Join("..", "..", to)); err != nil && strings.ContainsAny(m[1], "./") {
				t.Errorf("%s links to %s, which is not there", f, m[1])
			} else if other, is := docs[to]; is && place != "" && !places(other)[place] {
				t.Errorf("%s links to %s: there is no such place in it", f, m[1])
			}
		}
	}
}

// places are what a link may lead to in a document: its headings, as GitHub names them, and its IDs.
func places(text string) map[string]bool {
	found := map[string]bool{}
	for _, m := range anID.FindAllStringSubmatch(text, -1) {
		found[m[1]] = true
	}
	for line := range strings.Lines(text) {
		if heading, is := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); is && line[0] == '#' {
			heading = linked.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "$1")
			found[strings.ReplaceAll(unslug.ReplaceAllString(heading, ""), " ", "-")] = true
		}
	}
	return found
}
