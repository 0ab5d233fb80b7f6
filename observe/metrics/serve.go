package metrics

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/net/netutil"
)

// Serve answers GET /metrics by the handler and GET /sd by the targets, and nothing else, to those
// that show the token, until ctx is done; it closes the listener. Whoever has no token costs a
// comparison.
func Serve(ctx context.Context, listener net.Listener, token string, metrics http.Handler, targets func() []netip.AddrPort) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /sd", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(discovery(targets())) // an error here is a caller that went away
	})
	server := &http.Server{
		Handler: guarded(token, mux), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: time.Minute,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 8 << 10,
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(netutil.LimitListener(listener, maxConnections)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}

// guarded lets those through that show the token.
func guarded(token string, next http.Handler) http.Handler {
	want := []byte("Bearer " + token)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), want) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.Header().Set("Connection", "close") // there is room for so many connections: none is kept for a stranger
			http.Error(w, "the token is wrong or missing: send the one of GRAPEVINE_METRICS_TOKEN_FILE as Authorization: Bearer TOKEN", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// maxConnections is more than a few Prometheus servers open. What comes beyond waits in the kernel,
// at most for the time that a request may take.
const maxConnections = 32

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

// Token returns the token in the file. If there is no file, and may is set, it makes one that root
// alone can read.
func Token(file string, may bool) (string, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) && may {
		fresh := rand.Text()
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return "", fmt.Errorf("make a token for metrics: %w", err)
		}
		_, err = f.WriteString(fresh + "\n")
		if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
			_ = os.Remove(file)
			return "", fmt.Errorf("write a token for metrics to %s: %w", file, err)
		}
		return fresh, nil
	}
	if err != nil {
		return "", fmt.Errorf("read the token for metrics: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if len(token) < minToken || strings.ContainsAny(token, " \t\r\n") {
		return "", fmt.Errorf("the token for metrics in %s is not one word of at least %d characters: openssl rand -hex 32 makes one", file, minToken)
	}
	return token, nil
}

// minToken is the least length of a token: 80 bits if it is random letters of base 32.
const minToken = 16
