package wireguard

import (
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The log of a device's process has an end, and the last lines are there.
func TestLogIsBounded(t *testing.T) {
	name := filepath.Join(t.TempDir(), "wireguard.log")
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	to := log.New(bounded{f}, "", 0)
	for range 20000 {
		to.Print("Failed to send data packets: network is unreachable")
		if info, err := f.Stat(); err != nil || info.Size() > logLimit+100 {
			t.Fatalf("it has %d bytes, %v", info.Size(), err)
		}
	}
	to.Print("the last one")
	text, err := os.ReadFile(name)
	if err != nil || !strings.HasPrefix(string(text), "(what was said before is gone") || !strings.HasSuffix(string(text), "the last one\n") {
		t.Errorf("%.60q, %v", text, err)
	}
}
