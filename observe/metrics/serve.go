package metrics

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/grapevine-net/grapevine/host/door"
)

// maxConnections is more than a few Prometheus servers open.
const maxConnections = 32

// Serve answers GET /metrics by the handler and GET /sd by the targets, and nothing else, to those
// that show the secret's token, until ctx is done; it closes the listener. Whoever has no token costs
// a look at the file's date and a comparison.
func Serve(ctx context.Context, listener net.Listener, secret *Secret, metrics http.Handler, targets func() []netip.AddrPort) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /sd", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(discovery(targets())) // an error here is a caller that went away
	})
	server := &http.Server{
		Handler: guarded(secret, mux), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: time.Minute,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 8 << 10, ConnContext: door.Context,
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(door.New(listener, maxConnections)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}

// guarded lets those through that show the token.
func guarded(secret *Secret, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, err := secret.Token()
		switch {
		case err != nil:
			refuse(w, "this host has no token that it could ask for: `grapevine status` says why there\n")
		case subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+token)) != 1:
			refuse(w, "the token is wrong or missing: send the one of GRAPEVINE_METRICS_TOKEN_FILE as Authorization: Bearer TOKEN\n")
		default:
			door.Known(r)
			next.ServeHTTP(w, r)
		}
	})
}

// refuse ends the connection. The server itself would first wait for the rest of the request, and
// there is room for so many connections.
func refuse(w http.ResponseWriter, why string) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, why, http.StatusUnauthorized)
		return
	}
	defer c.Close()
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	answer := http.Response{
		StatusCode: http.StatusUnauthorized, ProtoMajor: 1, ProtoMinor: 1, Close: true,
		Header: http.Header{"Www-Authenticate": {"Bearer"}, "Content-Type": {"text/plain; charset=utf-8"}},
		Body:   io.NopCloser(strings.NewReader(why)), ContentLength: int64(len(why)),
	}
	_ = answer.Write(c) // an error here is a caller that went away
}

// target is a group of Prometheus' HTTP service discovery.
type target struct {
	Targets []string `json:"targets"`
}

func discovery(list []netip.AddrPort) []target {
	t := target{[]string{}}
	for _, a := range list {
		t.Targets = append(t.Targets, a.String())
	}
	return []target{t}
}
