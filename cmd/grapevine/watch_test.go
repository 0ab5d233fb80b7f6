package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestWatchPipe: to a pipe only what has changed is said, and an agent that is gone for a while ends nothing.
func TestWatchPipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		said := []string{"a\n", "a\n", "", "b\n", "b\n"}
		var out bytes.Buffer
		err := watch(ctx, &out, "", func(_ context.Context, w io.Writer) error {
			if len(said) == 0 {
				cancel()
				return errors.New("interrupted")
			}
			next := said[0]
			said = said[1:]
			if next == "" {
				return errors.New("no agent")
			}
			_, err := io.WriteString(w, next)
			return err
		})
		if want := "a\n\ngrapevine: no agent\n\nb\n"; err != nil || out.String() != want {
			t.Errorf("%v\n%s", err, out.String())
		}
		if err := watch(t.Context(), &out, "", func(context.Context, io.Writer) error { return errNotAsked }); err != errNotAsked {
			t.Errorf("nobody there in the beginning: %v", err)
		}
	})
}

func TestPaint(t *testing.T) {
	p := &pane{on: screen{20, 6}}
	for i := range 9 {
		fmt.Fprintf(p, "line %d\n", i)
	}
	got := p.paint("grapevine ps of a long name", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), true)
	want := "\x1b[2J\x1b[Hgrapevine ps of a l…\x1b[K\nline 0\x1b[K\nline 1\x1b[K\nline 2\x1b[K\nand 6 more lines\x1b[K\n\x1b[J"
	if got != want {
		t.Errorf("%q\nwant\n%q", got, want)
	}
	if n := strings.Count(p.paint("", time.Time{}, false), "\n"); n > p.on.rows-1 {
		t.Errorf("%d lines on %d rows", n, p.on.rows)
	}
}
