package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"
)

// Survey asks HTTP servers, all at once, and returns what those said that answered within
// the time, by their addresses ("10.0.0.1:80"); "udp/10.0.0.1:80" is asked by datagrams.
func (c Container) Survey(ctx context.Context, within time.Duration, addrs ...string) (map[string]string, error) {
	return surveyed(c.exec(ctx, surveyEnv, surveyArgs(within, addrs)))
}

// Survey is the same from the host.
func (h *Host) Survey(ctx context.Context, within time.Duration, addrs ...string) (map[string]string, error) {
	return surveyed(h.machine.server().run(ctx, request{Argv: surveyArgs(within, addrs), Env: surveyEnv}))
}

var surveyEnv = []string{roleVar + "=" + roleSurvey}

func surveyArgs(within time.Duration, addrs []string) []string {
	return append([]string{labhost, within.String()}, addrs...)
}

func surveyed(text string, err error) (map[string]string, error) {
	said := map[string]string{}
	if err == nil {
		err = json.Unmarshal([]byte(text), &said)
	}
	if err != nil {
		return nil, fmt.Errorf("survey: %w", err)
	}
	return said, nil
}

func surveyMain(args []string) error {
	within, err := time.ParseDuration(args[0])
	if err != nil {
		return err
	}
	said := map[string]string{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, addr := range args[1:] {
		all.Go(func() {
			if body, err := get(addr, within); err == nil {
				mu.Lock()
				defer mu.Unlock()
				said[addr] = body
			}
		})
	}
	all.Wait()
	return json.NewEncoder(os.Stdout).Encode(said)
}

// get is one request, without what a client does beside: no second try, no second family.
func get(addr string, within time.Duration) (string, error) {
	end := time.Now().Add(within)
	if addr, udp := strings.CutPrefix(addr, "udp/"); udp {
		return getUDP(addr, end)
	}
	conn, err := net.DialTimeout("tcp", addr, within)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(end)
	if _, err := io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	_, body, found := strings.Cut(string(answer), "\r\n\r\n")
	if !found {
		return "", fmt.Errorf("no answer: %w", err)
	}
	return strings.TrimSpace(body), nil
}

// getUDP asks once, and again where nothing is heard: a datagram may be lost.
func getUDP(addr string, end time.Time) (string, error) {
	conn, err := net.Dial("udp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	buf := make([]byte, 1<<16)
	for wait := time.Until(end) / 3; time.Now().Before(end); {
		if _, err := io.WriteString(conn, "?\n"); err != nil {
			return "", err
		}
		_ = conn.SetReadDeadline(time.Now().Add(wait))
		n, err := conn.Read(buf)
		if err == nil {
			return strings.TrimSpace(string(buf[:n])), nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return "", err // refused
		}
	}
	return "", fmt.Errorf("%s: no answer", addr)
}
