package main

import (
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// screen is a terminal's size in characters; the zero value bounds nothing.
type screen struct{ columns, rows int }

// screenOf is the size of the terminal that w is; of anything else, zero: who reads a
// pipe wants whole lines.
func screenOf(w io.Writer) screen {
	if p, ok := w.(*pane); ok {
		return p.on
	}
	file, ok := w.(*os.File)
	if !ok {
		return screen{}
	}
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 || size.Row == 0 {
		return screen{}
	}
	return screen{int(size.Col), int(size.Row)}
}

// wrap breaks text at spaces into lines that begin with the first line's indent.
func (s screen) wrap(indent, text string) string {
	blank := strings.Repeat(" ", len(indent))
	var lines []string
	line, empty := indent, true
	for _, word := range strings.Fields(text) {
		if s.columns > 0 && !empty && len([]rune(line))+1+len([]rune(word)) > s.columns {
			lines = append(lines, line)
			line, empty = blank, true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	return s.cut(strings.Join(append(lines, line), "\n") + "\n")
}

// hang wraps a line whose text begins at a column, under which what follows stands.
func (s screen) hang(line string, at int) string {
	r := []rune(line)
	if s.columns == 0 || len(r) <= s.columns || len(r) <= at {
		return line
	}
	head := string(r[:at])
	return strings.TrimSuffix(s.wrap(head, string(r[at:])), "\n")
}

// cut ends lines that are too long with a mark.
func (s screen) cut(text string) string {
	if s.columns == 0 {
		return text
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		if r := []rune(strings.TrimSuffix(line, "\n")); len(r) > s.columns {
			line = string(r[:s.columns-1]) + "…\n"
		}
		b.WriteString(line)
	}
	return b.String()
}
