package scenario

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/grapevine-net/grapevine/tests/lab"
)

// DocBlock is a block of commands in a document.
type DocBlock struct {
	Section string
	// On is the host that the block is for ("" for that of the scenario), and Needs what
	// a lab has not, for which it is not run: from "```sh host2" and "```sh needs-systemd".
	On, Needs string
	Text      string
	Line      int
}

// DocBlocks finds the blocks of shell commands in a Markdown text: those that begin
// with ```sh. The section is the last heading's text.
func DocBlocks(markdown string) (blocks []DocBlock) {
	section, n := "", 0
	var open *DocBlock
	fenced := false
	for line := range strings.Lines(markdown) {
		n++
		text := strings.TrimRight(line, "\n")
		fence, isFence := strings.CutPrefix(strings.TrimSpace(text), "```")
		switch {
		case isFence && fenced:
			if open != nil {
				blocks = append(blocks, *open)
			}
			fenced, open = false, nil
		case isFence:
			fenced = true
			words := strings.Fields(fence)
			if len(words) == 0 || words[0] != "sh" {
				continue
			}
			open = &DocBlock{Section: section, Line: n}
			for _, w := range words[1:] {
				if strings.HasPrefix(w, "needs-") {
					open.Needs = w
				} else {
					open.On = w
				}
			}
		case open != nil:
			open.Text += line
		case !fenced && strings.HasPrefix(text, "#"):
			section = strings.TrimSpace(strings.TrimLeft(text, "#"))
		}
	}
	return blocks
}

// docs HOST FILE SECTION [OLD=NEW]...: run the commands of a section of a document, in
// the lab's shared directory, with the texts that stand for the reader's own replaced.
func docs(ctx context.Context, s *state, args []string) (string, error) {
	if len(args) < 3 {
		return "", usageError("usage: docs HOST FILE SECTION [OLD=NEW]...")
	}
	root, err := lab.ModuleRoot()
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(root, args[1]))
	if err != nil {
		return "", usageError(err.Error())
	}
	var said strings.Builder
	found := false
	for _, b := range DocBlocks(string(text)) {
		if b.Section != args[2] {
			continue
		}
		found = true
		if b.Needs != "" {
			fmt.Fprintf(&said, "# not run, since it %s:\n%s", b.Needs, b.Text)
			continue
		}
		for _, pair := range args[3:] {
			was, is, ok := strings.Cut(pair, "=")
			if !ok {
				return "", usageError(pair + " is not OLD=NEW")
			}
			b.Text = strings.ReplaceAll(b.Text, was, is)
		}
		on := args[0]
		if b.On != "" {
			on = b.On
		}
		out, err := s.shell(ctx, on, b.Text)
		said.WriteString(out)
		if err != nil {
			return said.String(), fmt.Errorf("%s, line %d: %w", args[1], b.Line, err)
		}
	}
	if !found {
		return "", usageError(fmt.Sprintf("%s has no ```sh under %q", args[1], args[2]))
	}
	return said.String(), nil
}

// shell runs a script that ends at its first error.
func (s *state) shell(ctx context.Context, host, script string) (string, error) {
	return s.onHost(ctx, host, []string{"sh", "-c", "cd /lab && set -ex\n" + script})
}

// runsOn is a command that does not end by itself.
var runsOn = regexp.MustCompile(`(?m)^ *grapevine agent`)

// examples HOST COMMAND...: run the examples that `grapevine COMMAND --help` has.
func examples(ctx context.Context, s *state, args []string) (string, error) {
	if len(args) < 2 {
		return "", usageError("usage: examples HOST COMMAND...")
	}
	var said strings.Builder
	for _, verb := range args[1:] {
		help, err := s.onHost(ctx, args[0], []string{"grapevine", verb, "--help"})
		if err != nil {
			return said.String(), err
		}
		_, text, found := strings.Cut(help, "Examples:\n")
		if !found {
			return said.String(), fmt.Errorf("grapevine %s --help has no examples", verb)
		}
		text, _, _ = strings.Cut(text, "\n\n")
		text = runsOn.ReplaceAllString(text, "timeout --preserve-status 3 grapevine agent")
		out, err := s.shell(ctx, args[0], text)
		said.WriteString(out)
		if err != nil {
			return said.String(), fmt.Errorf("the examples of grapevine %s: %w", verb, err)
		}
	}
	return said.String(), nil
}
