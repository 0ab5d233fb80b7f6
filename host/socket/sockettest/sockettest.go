// Package sockettest asks what answers on a unix socket.
package sockettest

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// Request sends a request, "METHOD /path", to a socket: the status is as "200 OK".
func Request(t testing.TB, socket, route string) (status, body string) {
	t.Helper()
	cli := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	method, path, _ := strings.Cut(route, " ")
	request, err := http.NewRequestWithContext(t.Context(), method, "http://agent"+path, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	response, err := cli.Do(request)
	if err != nil {
		t.Fatalf("%s: %v", route, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s: %v", route, err)
	}
	return response.Status, string(text)
}

// Docker makes Docker's calls to a plugin, each of which is to be answered with the status and the body that hold the text beside it.
func Docker(t testing.TB, socket string, want map[string]string) {
	t.Helper()
	for method, want := range want {
		if status, body := Request(t, socket, "POST /"+method); !strings.Contains(status+body, want) {
			t.Errorf("%s: %s %s", method, status, body)
		}
	}
}
