// Package page tests the web page in a real browser: Debian's Chromium, asked by the DevTools protocol over a pipe.
package page

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"
)

// Browser is a Chromium without a window.
type Browser struct {
	cmd  *exec.Cmd
	dir  string // its profile
	in   *os.File
	read sync.WaitGroup

	mu         sync.Mutex
	last       int
	waiting    map[int]chan message
	complaints map[string][]string // by tab
}

// Tab is a tab of a browser. What it complained about is in Complaints.
type Tab struct {
	*Browser
	id string // the session
}

type message struct {
	ID     int             `json:"id"`
	Tab    string          `json:"sessionId"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// Start starts a Chromium that reaches this machine and nothing else. It ends with ctx; Close waits for it.
func Start(ctx context.Context) (*Browser, error) {
	dir, err := os.MkdirTemp("", "page")
	if err != nil {
		return nil, err
	}
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirIn.Close()
	defer theirOut.Close()
	b := &Browser{dir: dir, in: in, waiting: map[int]chan message{}, complaints: map[string][]string{}}
	b.cmd = exec.CommandContext(ctx, "chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic", "--hide-scrollbars",
		"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--user-data-dir="+dir, "--remote-debugging-pipe", "about:blank")
	b.cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	b.cmd.Env = append(os.Environ(), "HOME="+dir)
	if err := b.cmd.Start(); err != nil {
		return nil, err
	}
	b.read.Go(func() { b.listen(out) })
	return b, nil
}

// Close ends the browser.
func (b *Browser) Close() error {
	err := (&Tab{Browser: b}).Do("Browser.close", nil)
	b.in.Close()
	b.read.Wait()
	err = errors.Join(err, b.cmd.Wait())
	for range 20 { // its other processes end a moment later, and write till then
		if os.RemoveAll(b.dir) == nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return errors.Join(err, os.RemoveAll(b.dir))
}

// Tab opens a tab, which has a sessionStorage of its own.
func (b *Browser) Tab() (*Tab, error) {
	t := &Tab{Browser: b}
	target, err := call[struct {
		ID string `json:"targetId"`
	}](t, "Target.createTarget", map[string]any{"url": "about:blank"})
	if err != nil {
		return nil, err
	}
	attached, err := call[struct {
		ID string `json:"sessionId"`
	}](t, "Target.attachToTarget", map[string]any{"targetId": target.ID, "flatten": true})
	if err != nil {
		return nil, err
	}
	t.id = attached.ID
	for _, domain := range []string{"Page.enable", "Runtime.enable", "Log.enable"} {
		if err := t.Do(domain, nil); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (b *Browser) listen(out *os.File) {
	defer out.Close()
	for r := bufio.NewReader(out); ; {
		data, err := r.ReadBytes(0)
		b.mu.Lock()
		if err != nil {
			for id, c := range b.waiting {
				close(c)
				delete(b.waiting, id)
			}
			b.waiting = nil
			b.mu.Unlock()
			return
		}
		var m message
		if json.Unmarshal(bytes.TrimSuffix(data, []byte{0}), &m) == nil {
			if c := b.waiting[m.ID]; c != nil {
				c <- m
				delete(b.waiting, m.ID)
			}
			switch m.Method {
			case "Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled", "Page.javascriptDialogOpening":
				b.complaints[m.Tab] = append(b.complaints[m.Tab], m.Method+" "+string(m.Params))
			}
		}
		b.mu.Unlock()
	}
}

// Complaints are what the tab said on its console, threw or asked since it was asked last.
func (b *Tab) Complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.complaints[b.id]
	delete(b.complaints, b.id)
	return list
}

func call[T any](b *Tab, method string, params any) (value T, err error) {
	answer := make(chan message, 1)
	b.mu.Lock()
	if b.waiting == nil {
		b.mu.Unlock()
		return value, errors.New("the browser has ended")
	}
	b.last++
	id := b.last
	b.waiting[id] = answer
	b.mu.Unlock()
	question := map[string]any{"id": id, "method": method}
	if params != nil {
		question["params"] = params
	}
	if b.id != "" {
		question["sessionId"] = b.id
	}
	data, err := json.Marshal(question)
	if err != nil {
		return value, err
	}
	if _, err := b.in.Write(append(data, 0)); err != nil {
		return value, err
	}
	select {
	case m, ok := <-answer:
		if !ok {
			return value, errors.New("the browser has ended")
		}
		if m.Error != nil {
			return value, fmt.Errorf("%s: %s", method, m.Error.Message)
		}
		return value, json.Unmarshal(m.Result, &value)
	case <-time.After(patience):
		return value, fmt.Errorf("%s: no answer from the browser in %v", method, patience)
	}
}

// Do calls a method of the protocol for its effect.
func (b *Tab) Do(method string, params any) error {
	_, err := call[json.RawMessage](b, method, params)
	return err
}

// Eval is what a JavaScript expression comes to, in the page; a promise is waited for.
func Eval[T any](b *Tab, expression string) (value T, err error) {
	r, err := call[struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Exception *struct {
			Text      string `json:"text"`
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
	}](b, "Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true})
	if err != nil {
		return value, err
	}
	if r.Exception != nil {
		return value, fmt.Errorf("%s: %s %s", expression, r.Exception.Text, r.Exception.Exception.Description)
	}
	if len(r.Result.Value) == 0 {
		return value, nil
	}
	return value, json.Unmarshal(r.Result.Value, &value)
}

// patience bounds all waiting: beside other tests a browser takes long.
const patience = 90 * time.Second

// Until waits until an expression is true.
func (b *Tab) Until(expression string) error {
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		ok, err := Eval[bool](b, "!!("+expression+")")
		if err == nil && ok {
			return nil
		}
		if time.Now().After(end) {
			text, _ := Eval[string](b, "document.body?.innerText ?? location.href")
			return fmt.Errorf("%s is not so in %v (%v); the page says:\n%s\nand the browser %q", expression, patience, err, text, b.Complaints())
		}
	}
}

// Open goes to an address.
func (b *Tab) Open(url string) error { return b.Do("Page.navigate", map[string]any{"url": url}) }

// Look sets the size of the window and the colour scheme.
func (b *Tab) Look(width, height int, scheme string) error {
	return errors.Join(
		b.Do("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}),
		b.Do("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}))
}

// Picture is what the tab shows, as PNG: all of it, however high.
func (b *Tab) Picture() ([]byte, error) {
	p, err := call[struct {
		Data string `json:"data"`
	}](b, "Page.captureScreenshot", map[string]any{"captureBeyondViewport": true, "format": "png"})
	if err != nil {
		return nil, err
	}
	return base64.StdEncoding.DecodeString(p.Data)
}
