package socket

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestFloodOfReaders: one who opens connections without end costs as many as there is room for, and the oldest of
// those go; another user's connection stays; and who hangs up makes room.
func TestFloodOfReaders(t *testing.T) {
	path := filepath.Join(t.TempDir(), "read.sock")
	l, err := ListenGroup(t.Context(), path, os.Getegid()+1)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if os.Geteuid() != 0 && os.Getenv("CI") == "" {
		t.Skip("only root is let in here")
	}
	here, there := net.Pipe()
	l.guests.enter(there, 1000)
	var calls, answers []net.Conn
	for range 500 {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		a, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		calls, answers = append(calls, c), append(answers, a)
	}
	ended := func(c net.Conn) bool {
		_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
		_, err := c.Read(make([]byte, 1))
		return !os.IsTimeout(err)
	}
	open := 0
	for i, c := range calls {
		if over := ended(c); !over {
			open++
		} else if i >= 500-maxGuests+1 {
			t.Errorf("connection %d of 500 has gone, and is none of the oldest", i)
		}
	}
	if open != maxGuests-1 || len(l.guests.all) != maxGuests || ended(here) {
		t.Errorf("%d are open, %d are counted; another user's has ended: %t", open, len(l.guests.all), ended(here))
	}
	for _, a := range answers {
		_ = a.Close()
	}
	if len(l.guests.all) != 1 {
		t.Errorf("%d are counted when all have hung up", len(l.guests.all))
	}
}
