// Package page tests the web page in a real browser: Debian's Chromium, driven by playwright-core.
package page

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Browser is a Chromium without a window.
type Browser struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	said bytes.Buffer // on its standard error
	read sync.WaitGroup

	mu      sync.Mutex
	last    int
	waiting map[int]chan reply // nil: it has ended
}

// Tab is a tab of a browser.
type Tab struct {
	browser *Browser
	name    string
}

type reply struct {
	ID    int             `json:"id"`
	Value json.RawMessage `json:"value"`
	Error string          `json:"error"`
}

// patience bounds all waiting: beside other tests a browser takes long.
const patience = 90 * time.Second

// drive is the program that playwright-core is asked by.
//
//go:embed drive.mjs
var drive string

// Missing says what is not there that a browser takes, of a working copy at root; "": nothing.
func Missing(root string) string {
	for _, program := range []string{"chromium", "node"} {
		if _, err := exec.LookPath(program); err != nil {
			return "there is no " + program + ": run scripts/setup page"
		}
	}
	if _, err := os.Stat(library(root)); err != nil {
		return "there is no playwright-core: run scripts/setup page, which takes npm"
	}
	return ""
}

// library is playwright-core of the npm registry, which scripts/setup puts there.
func library(root string) string { return filepath.Join(root, "build", "playwright-core", "index.mjs") }

// Start starts a Chromium that reaches the loopback interface and nothing else: of this machine, or of where the command in front of it
// runs what follows. root is the working copy's. It ends with ctx; Close waits for it.
func Start(ctx context.Context, root string, in ...string) (*Browser, error) {
	if missing := Missing(root); missing != "" {
		return nil, errors.New(missing)
	}
	at, err := filepath.Abs(library(root))
	if err != nil {
		return nil, err
	}
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		return nil, err
	}
	args := append(slices.Clip(in), "node", "--input-type=module", "--eval", drive)
	b := &Browser{cmd: exec.CommandContext(ctx, args[0], args[1:]...), waiting: map[int]chan reply{}}
	b.cmd.Env = append(os.Environ(), "PLAYWRIGHT="+at, "CHROMIUM="+chromium, fmt.Sprintf("PATIENCE=%d", patience.Milliseconds()))
	b.cmd.Stderr = &b.said
	if b.in, err = b.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := b.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := b.cmd.Start(); err != nil {
		return nil, err
	}
	b.read.Go(func() { b.listen(out) })
	return b, nil
}

// Close ends the browser.
func (b *Browser) Close() error {
	err := b.in.Close()
	b.read.Wait()
	if ended := b.cmd.Wait(); ended != nil {
		err = errors.Join(err, fmt.Errorf("%w: %s", ended, b.said.String()))
	}
	return err
}

// Tab opens a tab, which has a sessionStorage of its own.
func (b *Browser) Tab() (*Tab, error) {
	b.mu.Lock()
	b.last++
	t := &Tab{b, fmt.Sprint(b.last)}
	b.mu.Unlock()
	return t, t.do("tab", nil)
}

func (b *Browser) listen(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 64<<20) // pictures
	for lines.Scan() {
		var r reply
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			continue
		}
		b.mu.Lock()
		if c := b.waiting[r.ID]; c != nil {
			c <- r
			delete(b.waiting, r.ID)
		}
		b.mu.Unlock()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.waiting {
		close(c)
	}
	b.waiting = nil
}

// ask has the tab do something, and is what comes of it.
func ask[T any](t *Tab, verb string, args map[string]any) (value T, err error) {
	b, answer := t.browser, make(chan reply, 1)
	b.mu.Lock()
	if b.waiting == nil {
		b.mu.Unlock()
		return value, errors.New("the browser has ended")
	}
	b.last++
	question := map[string]any{"id": b.last, "tab": t.name, "verb": verb}
	b.waiting[b.last] = answer
	for name, arg := range args {
		question[name] = arg
	}
	data, err := json.Marshal(question)
	if err == nil {
		_, err = b.in.Write(append(data, '\n'))
	}
	b.mu.Unlock()
	if err != nil {
		return value, err
	}
	select {
	case r, ok := <-answer:
		switch {
		case !ok:
			return value, fmt.Errorf("%s: the browser has ended", verb)
		case r.Error != "":
			return value, fmt.Errorf("%s: %s", verb, r.Error)
		case len(r.Value) == 0:
			return value, nil
		}
		return value, json.Unmarshal(r.Value, &value)
	case <-time.After(2 * patience): // it has patience of its own
		return value, fmt.Errorf("%s: no answer from the browser in %v", verb, 2*patience)
	}
}

func (t *Tab) do(verb string, args map[string]any) error {
	_, err := ask[json.RawMessage](t, verb, args)
	return err
}

// DevTools is what a method of Chromium's own protocol returns.
func DevTools[T any](t *Tab, method string, params any) (T, error) {
	return ask[T](t, "devtools", map[string]any{"method": method, "params": params})
}

// Eval is what a JavaScript expression comes to, in the page; a promise is waited for.
func Eval[T any](t *Tab, expression string) (T, error) {
	return ask[T](t, "eval", map[string]any{"expression": expression})
}

// Complaints are what the tab said on its console, threw or asked since it was asked last.
func (t *Tab) Complaints() []string {
	list, err := ask[[]string](t, "complaints", nil)
	if err != nil {
		return []string{err.Error()}
	}
	return list
}

// Until waits until an expression is true.
func (t *Tab) Until(expression string) error {
	err := t.do("until", map[string]any{"expression": "!!(" + expression + ")"})
	if err != nil {
		text, _ := Eval[string](t, "document.body?.innerText ?? location.href")
		return fmt.Errorf("%s is not so: %w; the page says:\n%s\nand the browser %q", expression, err, text, t.Complaints())
	}
	return nil
}

// Open goes to an address.
func (t *Tab) Open(url string) error { return t.do("open", map[string]any{"url": url}) }

// Reload loads the page anew.
func (t *Tab) Reload() error { return t.do("reload", nil) }

// Click clicks what a selector of playwright finds, which is one thing, once it can be seen, rests, and nothing covers it.
func (t *Tab) Click(at string) error { return t.do("click", map[string]any{"at": at}) }

// Type types a text into a field.
func (t *Tab) Type(at, text string) error {
	return t.do("type", map[string]any{"at": at, "text": text})
}

// Press presses a key, as "Enter".
func (t *Tab) Press(key string) error { return t.do("press", map[string]any{"key": key}) }

// Look sets the size of the window and the colour scheme.
func (t *Tab) Look(width, height int, scheme string) error {
	return t.do("look", map[string]any{"width": width, "height": height, "scheme": scheme})
}

// Picture is what the tab shows, as PNG: all of it, however high.
func (t *Tab) Picture() ([]byte, error) { return ask[[]byte](t, "picture", nil) }
