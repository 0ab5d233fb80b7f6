package agent

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/host/socket"
)

// deputyOf takes an agent's socket over, whose agent ended so long ago. done is what it returns.
func deputyOf(t *testing.T, path string, ago time.Duration) (done chan error) {
	t.Helper()
	l, err := socket.Claim(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := socket.Claim(path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("where something is: %v", err)
	}
	me, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	done = make(chan error, 1)
	go func() { done <- deputise(t.Context(), l, path, time.Now().Add(-ago), strings.TrimSpace(string(me))) }()
	return done
}

// TestDeputy: what Docker removes while no agent runs is gone, what it wants made fails with the reason, and both
// wait for the next agent where this one has just ended.
func TestDeputy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.sock")
	deputyOf(t, path, time.Hour)
	want := map[string]string{
		"Plugin.Activate":                    "IpamDriver",
		"NetworkDriver.GetCapabilities":      `"Scope":"local"`,
		"IpamDriver.GetDefaultAddressSpaces": "LocalDefaultAddressSpace",
		"NetworkDriver.SomethingOfLater":     "404",
	}
	for of, names := range removalCalls {
		for _, name := range names {
			want[string(of)+"."+name] = "{}"
		}
	}
	for of, names := range makingCalls {
		for _, name := range names {
			want[string(of)+"."+name] = "the agent of grapevine does not run on this host"
		}
	}
	askDocker(t, path, want)
}

// TestDeputyGivesWay: the next agent has the socket, and who waits for an answer is not answered, so that Docker
// asks again. So it is with an agent of a version that knows of no deputy.
func TestDeputyGivesWay(t *testing.T) {
	for name, next := range map[string]func(string) error{
		"agent": func(path string) error {
			s, err := openSockets(context.Background(), config.Config{PluginSocket: path, Run: filepath.Dir(path)})
			if err == nil {
				t.Cleanup(s.close)
			}
			return err
		},
		"older agent": func(path string) error {
			s, err := socket.Listen(context.Background(), path, 0o700)
			if err == nil {
				t.Cleanup(func() { _ = s.Close() })
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "p.sock")
			done := deputyOf(t, path, -time.Hour) // it would answer in an hour
			waits, err := net.Dial("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			defer waits.Close()
			if _, err := io.WriteString(waits, "POST /NetworkDriver.CreateEndpoint HTTP/1.1\r\nHost: plugin\r\nContent-Length: 2\r\n\r\n{}"); err != nil {
				t.Fatal(err)
			}
			askDocker(t, path, map[string]string{"Plugin.Activate": "IpamDriver"}) // so the deputy has the other call, too
			if err := next(path); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
			if said, _ := io.ReadAll(waits); len(said) > 0 {
				t.Errorf("a call that waits for the agent is answered by a deputy that goes: %s", said)
			}
		})
	}
}
