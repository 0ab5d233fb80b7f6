package standin

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

	"github.com/grapevine-net/grapevine/host/socket"
	"github.com/grapevine-net/grapevine/host/socket/sockettest"
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
	attached := func() (bool, error) { return true, nil }
	go func() {
		done <- deputise(t.Context(), l, path, time.Now().Add(-ago), vigil{agents: strings.TrimSpace(string(me)), attached: attached, every: pathEvery, lonely: lonely})
	}()
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
	sockettest.Docker(t, path, want)
}

// TestDeputyGivesWay: the next agent has the socket, and who waits for an answer is not answered, so that Docker
// asks again. So it is with an agent of a version that knows of no deputy.
func TestDeputyGivesWay(t *testing.T) {
	for name, next := range map[string]func(string) error{
		"agent": func(path string) error {
			Dismiss(context.Background(), path)
			s, err := socket.Listen(context.Background(), path, 0o755)
			if err == nil {
				t.Cleanup(func() { _ = s.Close() })
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
			sockettest.Docker(t, path, map[string]string{"Plugin.Activate": "IpamDriver"}) // so the deputy has the other call, too
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

// TestDeputyGoesWithTheLastContainer: it stays while containers are attached, or while that cannot be known, and goes when
// there are none.
func TestDeputyGoesWithTheLastContainer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.sock")
	l, err := socket.Claim(path)
	if err != nil {
		t.Fatal(err)
	}
	const looks = 20
	n := 0
	err = deputise(t.Context(), l, path, time.Now(), vigil{every: time.Millisecond, attached: func() (bool, error) {
		n++
		if n == looks/2 {
			return false, errors.New("the kernel does not say")
		}
		return n < looks, nil
	}})
	if err != nil || n != looks {
		t.Errorf("it has gone after %d looks, want %d: %v", n, looks, err)
	}
	if _, err := net.Dial("unix", path); err == nil {
		t.Error("it answers still")
	}
}

// TestDismissed: an agent knows whether it has taken a deputy's place.
func TestDismissed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.sock")
	if Dismiss(t.Context(), path) {
		t.Error("nobody was there")
	}
	done := deputyOf(t, path, time.Hour)
	if !Dismiss(t.Context(), path) {
		t.Error("a deputy was there")
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if Dismiss(t.Context(), path) {
		t.Error("it has gone")
	}
}
