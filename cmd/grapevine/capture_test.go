package main

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/observe/pcapng"
)

// aCapture is of app, to which a host that means harm gave a name.
func aCapture(packets int) []byte {
	frame := append(make([]byte, 12), 8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x9c, 0x40, 0x15, 0x38, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 2, 0, 0, 0, 0, 0, 0)
	b := pcapng.Section{Application: "test"}.Append(nil)
	b = pcapng.Interface{Name: "app@host1", Snap: 1500}.Append(b)
	b = pcapng.Names{netip.MustParseAddr("10.0.0.1"): "app", netip.MustParseAddr("10.0.0.2"): "db\x1b[2J"}.Append(b)
	for range packets {
		b = pcapng.Packet{At: time.Date(2026, 1, 2, 12, 4, 5, 6000, time.Local), Data: frame, Length: 60, Out: true}.Append(b)
	}
	return b
}

func TestCapture(t *testing.T) {
	var asked api.CaptureRequest
	end, failure := api.CaptureEnd{Packets: 2, Lost: 1, Why: "the time is over"}, error(nil)
	h := &api.Handlers{Capture: func(_ context.Context, r api.CaptureRequest, w io.Writer) (api.CaptureEnd, error) {
		asked = r
		if r.Container == "ghost" {
			return api.CaptureEnd{}, errors.New("there is no container ghost")
		}
		b := aCapture(2)
		if failure != nil {
			b = append(b, aCapture(0)[:10]...) // in the middle of a block
		}
		_, err := w.Write(b)
		return end, errors.Join(err, failure)
	}}
	out, err := run(t, h, "capture", "app", "--peer", "db", "--port", "5432", "--for", "2s", "--count", "9", "--megabytes", "3")
	const line = "12:04:05.000006  out  app:40000 > db?[2J:5432  tcp S  60 bytes\n"
	if err != nil || !strings.HasPrefix(out, line+line) {
		t.Errorf("%v\n%q", err, out)
	}
	if want := (api.CaptureRequest{Container: "app", Peer: "db", Port: 5432, Packets: 9, Bytes: 3_000_000, Seconds: 2}); asked != want {
		t.Errorf("asked %+v", asked)
	}
	file := filepath.Join(t.TempDir(), "a.pcapng")
	out, err = run(t, h, "capture", "app", "-w", file, "-o", "json")
	data, _ := os.ReadFile(file)
	if st, e := os.Stat(file); err != nil || e != nil || st.Mode() != 0o600 || string(data) != string(aCapture(2)) || !strings.Contains(out, `"lost": 1`) {
		t.Errorf("%v, %v, %d bytes\n%s", err, e, len(data), out)
	}
	for args, want := range map[string]string{
		"capture app -w " + file: "is there already", "capture ghost": "there is no container ghost", "capture app -o json": "wants --write FILE",
		"capture": "wants the name of a container", "capture ghost -w " + file + ".ghost": "there is no container ghost",
	} {
		if _, err := run(t, h, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
	if _, err := os.Stat(file + ".ghost"); err == nil {
		t.Error("a file without a capture is left")
	}
	// What came before a failure can be read.
	failure = errors.New("the other host is gone")
	cut := filepath.Join(t.TempDir(), "b.pcapng")
	if _, err := run(t, h, "capture", "app", "-w", cut); err == nil || !strings.Contains(err.Error(), "the other host is gone") {
		t.Errorf("%v", err)
	}
	if data, _ := os.ReadFile(cut); string(data) != string(aCapture(2)) {
		t.Errorf("%d bytes are not whole blocks", len(data))
	}
}
