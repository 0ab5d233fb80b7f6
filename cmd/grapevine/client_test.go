package main

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rsc.io/qr"

	"github.com/grapevine-net/grapevine/api"
)

func someClient() clientFile {
	return clientFile{PrivateKey: "cHJpdmF0ZSBwcml2YXRlIHByaXZhdGUgcHJpdmF0ZSE=", AddedClient: api.AddedClient{
		Name: "laptop", Network: "blue", MTU: 1420, Key: "cHVibGljIHB1YmxpYyBwdWJsaWMgcHVibGljIHB1YmwhIQ==", Endpoint: "vpn.example.com:7949",
		Addrs:   []netip.Prefix{netip.MustParsePrefix("10.128.0.5/32"), netip.MustParsePrefix("fd00::5/128")},
		DNS:     []netip.Addr{netip.MustParseAddr("10.128.0.1"), netip.MustParseAddr("fd00::1")},
		Allowed: []netip.Prefix{netip.MustParsePrefix("10.128.0.0/22"), netip.MustParsePrefix("fd00::/64")},
	}}
}

// TestClientFile: the file is one for wg-quick; without a private key there is a place for it.
func TestClientFile(t *testing.T) {
	f := someClient()
	const want = `# client laptop of network blue
[Interface]
PrivateKey = cHJpdmF0ZSBwcml2YXRlIHByaXZhdGUgcHJpdmF0ZSE=
Address = 10.128.0.5/32, fd00::5/128
DNS = 10.128.0.1, fd00::1, blue
MTU = 1420

[Peer]
PublicKey = cHVibGljIHB1YmxpYyBwdWJsaWMgcHVibGljIHB1YmwhIQ==
AllowedIPs = 10.128.0.0/22, fd00::/64
Endpoint = vpn.example.com:7949
PersistentKeepalive = 25
`
	if got := f.String(); got != want {
		t.Errorf("%s", got)
	}
	f.PrivateKey = ""
	if got := f.String(); strings.Contains(got, "\nPrivateKey") || !strings.Contains(got, "\n# PrivateKey = the client's own\n") {
		t.Errorf("%s", got)
	}
}

// TestClientShow: the file is written for its owner's eyes, and never over another one; the code is drawn where it is
// asked for.
func TestClientShow(t *testing.T) {
	f, name := someClient(), filepath.Join(t.TempDir(), "laptop.conf")
	var b bytes.Buffer
	if err := (clientShow{file: name}).print(&b, f); err != nil || strings.Contains(b.String(), f.PrivateKey) {
		t.Errorf("%q, %v", b.String(), err)
	}
	info, err := os.Stat(name)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if text, _ := os.ReadFile(name); string(text) != f.String() {
		t.Errorf("%s", text)
	}
	if err := (clientShow{file: name}).print(&b, f); err == nil || !strings.Contains(err.Error(), "grapevine client remove laptop") {
		t.Errorf("written over: %v", err)
	}
	for _, c := range []struct {
		show     clientShow
		text, qr bool
	}{{clientShow{}, true, false}, {clientShow{file: "-"}, true, false}, {clientShow{qr: true}, false, true}, {clientShow{file: "-", qr: true}, true, true}} {
		b.Reset()
		if err := c.show.print(&b, f); err != nil || strings.Contains(b.String(), f.PrivateKey) != c.text || strings.Contains(b.String(), "▄") != c.qr {
			t.Errorf("%+v: %q, %v", c.show, b.String(), err)
		}
	}
}

// TestDrawQR: what is drawn is the code's modules, each once, with light around.
func TestDrawQR(t *testing.T) {
	text := someClient().String()
	var b bytes.Buffer
	if err := drawQR(&b, text); err != nil {
		t.Fatal(err)
	}
	code, err := qr.Encode(text, qr.L)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if want := (code.Size + 2*quiet + 1) / 2; len(lines) != want {
		t.Fatalf("%d lines, want %d", len(lines), want)
	}
	seen := 0
	for i, line := range lines {
		line = strings.TrimSuffix(strings.TrimPrefix(line, "\x1b[30;107m"), "\x1b[0m")
		for x, half := range []rune(line) {
			for down, dark := range []bool{strings.ContainsRune("▀█", half), strings.ContainsRune("▄█", half)} {
				if at := 2*i + down - quiet; dark != code.Black(x-quiet, at) {
					t.Fatalf("module %d,%d is drawn wrong", x-quiet, at)
				}
				seen++
			}
		}
	}
	if seen < (code.Size+2*quiet)*(code.Size+2*quiet) {
		t.Errorf("%d modules", seen)
	}
}
