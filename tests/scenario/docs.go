package scenario

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/grapevine-net/grapevine/tests/lab"
)

// DocBlock is a block of a document that is to be used: commands, or a file.
type DocBlock struct {
	Section string
	// On is the host that the block is for ("" for that of the scenario), and Needs what
	// a lab has not, for which it is not run: from "```sh host2" and "```sh needs-systemd".
	On, Needs string
	// File is where the text is put, if it is no commands: from "```yaml /srv/app/net.yaml".
	File string
	Text string
	Line int
}

// everyHost is the host of a block that is for all: "```sh every-host".
const everyHost = "every-host"

// DocBlocks finds the blocks of a Markdown text that begin with ```sh, or name a file.
// The section is the last heading's text.
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
			if b := blockOf(strings.Fields(fence)); b != nil {
				open = b
				open.Section, open.Line = section, n
			}
		case open != nil:
			open.Text += line
		case !fenced && strings.HasPrefix(text, "#"):
			section = strings.TrimSpace(strings.TrimLeft(text, "#"))
		}
	}
	return blocks
}

// blockOf reads the words behind a fence; nil: the block is only to be read.
func blockOf(words []string) *DocBlock {
	switch {
	case len(words) == 0:
		return nil
	case len(words) == 2 && strings.HasPrefix(words[1], "/"):
		return &DocBlock{File: words[1]}
	case words[0] != "sh":
		return nil
	}
	b := &DocBlock{}
	for _, w := range words[1:] {
		if strings.HasPrefix(w, "needs-") {
			b.Needs = w
		} else {
			b.On = w
		}
	}
	return b
}

// docs HOST FILE SECTION[#N] [OLD=NEW]...: run the commands of a section of a document, or
// of its N-th block, in the lab's shared directory, with the texts that stand for the
// reader's own replaced; write the files that it has.
func docs(ctx context.Context, s *state, args []string) (string, error) {
	if len(args) < 3 {
		return "", usageError("usage: docs HOST FILE SECTION[#N] [OLD=NEW]...")
	}
	root, err := lab.ModuleRoot()
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(root, args[1]))
	if err != nil {
		return "", usageError(err.Error())
	}
	blocks := DocBlocks(string(text))
	section, number, one := strings.Cut(args[2], "#")
	blocks = slices.DeleteFunc(blocks, func(b DocBlock) bool { return b.Section != section })
	if one {
		if n, err := strconv.Atoi(number); err == nil && 0 < n && n <= len(blocks) {
			blocks = blocks[n-1 : n]
		} else {
			blocks = nil
		}
	}
	if len(blocks) == 0 {
		return "", usageError(fmt.Sprintf("%s has no such block under %q", args[1], args[2]))
	}
	var said strings.Builder
	for _, b := range blocks {
		for _, pair := range args[3:] {
			was, is, ok := strings.Cut(pair, "=")
			if !ok {
				return "", usageError(pair + " is not OLD=NEW")
			}
			b.Text = strings.ReplaceAll(b.Text, was, is)
		}
		b.Text = page.ReplaceAllString(b.Text, "timeout --preserve-status 3 grapevine ui")
		out, err := s.doc(ctx, args[0], b)
		said.WriteString(out)
		if err != nil {
			return said.String(), fmt.Errorf("%s, line %d: %w", args[1], b.Line, err)
		}
	}
	return said.String(), nil
}

// doc does what a block says, on the host unless it is for another one or for all.
func (s *state) doc(ctx context.Context, host string, b DocBlock) (said string, err error) {
	switch {
	case b.Needs != "":
		return fmt.Sprintf("# not run, since it %s:\n%s", b.Needs, b.Text), nil
	case b.File != "":
		h, err := s.host(host)
		if err != nil {
			return "", err
		}
		return h.ExecInput(ctx, []byte(b.Text), "sh", "-c", `mkdir -p "$(dirname "$1")" && cat > "$1"`, "doc", b.File)
	case b.On == everyHost:
		var mu sync.Mutex
		err = s.lab.Each(func(h *lab.Host) error {
			out, err := s.shell(ctx, h.Name, b.Text)
			mu.Lock()
			defer mu.Unlock()
			said += out
			return err
		})
		return said, err
	case b.On != "":
		host = b.On
	}
	return s.shell(ctx, host, b.Text)
}

// shell runs a script that ends at its first error.
func (s *state) shell(ctx context.Context, host, text string) (string, error) {
	return s.onHost(ctx, host, []string{"sh", "-c", "cd /lab && set -ex\n" + text})
}

// runsOn is a command that does not end by itself.
var runsOn = regexp.MustCompile(`(?m)^ *grapevine (agent|ui)`)

// page is the one of these that a document may have among commands that end.
var page = regexp.MustCompile(`(?m)^ *grapevine ui\b`)

// goish is how Go prints lists, maps and mistakes in a format, which is nothing to show people.
var goish = regexp.MustCompile(`\[[\w.:/-]+( [\w.:/-]+)+\]|map\[|%![a-zA-Z(]`)

// examples HOST COMMAND...: run the examples that `grapevine COMMAND --help` has; what they print is for people.
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
		text = runsOn.ReplaceAllString(text, "timeout --preserve-status 3 grapevine $1")
		out, err := s.shell(ctx, args[0], text)
		said.WriteString(out)
		if err != nil {
			return said.String(), fmt.Errorf("the examples of grapevine %s: %w", verb, err)
		}
		if found := goish.FindString(out); found != "" && verb != "report" { // which has logs
			return said.String(), fmt.Errorf("the examples of grapevine %s print %s, which is Go's", verb, found)
		}
	}
	return said.String(), nil
}
