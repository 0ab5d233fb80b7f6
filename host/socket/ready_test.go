package socket

import (
	"net"
	"path/filepath"
	"testing"
)

func TestReady(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	if err := Ready(); err != nil {
		t.Errorf("without systemd: %v", err)
	}
	for _, name := range []string{filepath.Join(t.TempDir(), "notify"), "@grapevine-" + t.Name()} {
		t.Setenv("NOTIFY_SOCKET", name)
		if err := Ready(); err == nil {
			t.Errorf("nobody listens on %s, and it is no error", name)
		}
		l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: name})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if err := Ready(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		b := make([]byte, 100)
		if n, err := l.Read(b); err != nil || string(b[:n]) != "READY=1" {
			t.Errorf("%s: systemd hears %q, %v", name, b[:n], err)
		}
	}
}
