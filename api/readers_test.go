package api

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
)

// TestHungUpOn: who is no reader, on whom the socket for readers hangs up, is told for whom it is, whenever it does.
func TestHungUpOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "read.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	for range 200 {
		c := NewClient(path)
		c.reader.Store(true)
		if _, err := c.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "is for root, and to look for who may use Docker") {
			t.Fatalf("%v", err)
		}
	}
}
