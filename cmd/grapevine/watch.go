package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// watchEvery is how often --watch asks.
const watchEvery = 2 * time.Second

// watched gives a verb the flag --watch.
func watched(c *cobra.Command) *cobra.Command {
	c.Flags().BoolP("watch", "w", false, "show it anew every two seconds, until Ctrl-C; to a pipe, whenever it changes")
	return c
}

func isWatched(c *cobra.Command) bool {
	f := c.Flag("watch")
	return f != nil && f.Value.String() == "true"
}

// watch shows what print prints, again and again, until ctx ends. That the first one fails is an
// error; later ones may.
func watch(ctx context.Context, w io.Writer, title string, print func(context.Context, io.Writer) error) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	shown := ""
	for first := true; ; first = false {
		p := &pane{on: screenOf(w), colours: colours(w)}
		err := print(ctx, p)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && first:
			return err
		case err != nil:
			fmt.Fprintf(p, "grapevine: %v\n", err)
		}
		switch text := p.String(); {
		case p.on.rows > 0:
			_, err = io.WriteString(w, p.paint(title, time.Now(), first))
		case text != shown:
			if !first {
				text = "\n" + text
			}
			_, err = io.WriteString(w, text)
		default:
			err = nil
		}
		if err != nil {
			return err
		}
		shown = p.String()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// follow asks at once and then each second, each time for patience at most, until ctx ends (nil) or something fails.
func follow[T any](ctx context.Context, ask func(context.Context) (T, error), show func(T) error) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		asked, cancel := context.WithTimeout(ctx, patience)
		answer, err := ask(asked)
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := show(answer); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// pane is what is about to be shown: it is as large as the terminal, and as colourful.
type pane struct {
	bytes.Buffer
	on      screen
	colours bool
}

// paint is the pane over what the terminal shows, line by line, so that nothing flickers. The title comes
// first, and what does not fit is left out.
func (p *pane) paint(title string, now time.Time, first bool) string {
	var b strings.Builder
	if first {
		b.WriteString("\x1b[2J")
	}
	b.WriteString("\x1b[H")
	lines := strings.Split(strings.TrimSuffix(p.String(), "\n"), "\n")
	room := p.on.rows - 2 // the title, and the cursor's
	if left := len(lines) - room; left > 0 {
		lines = append(lines[:room-1], fmt.Sprintf("and %d more lines", left+1))
	}
	head := fmt.Sprintf("%s, %s (Ctrl-C ends)\n", title, now.Format("15:04:05"))
	for line := range strings.Lines(p.on.cut(head) + strings.Join(lines, "\n") + "\n") {
		b.WriteString(strings.TrimSuffix(line, "\n") + "\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	return b.String()
}

// colours reports whether w is a terminal that is to have them (see no-color.org).
func colours(w io.Writer) bool {
	if p, ok := w.(*pane); ok {
		return p.colours
	}
	file, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
