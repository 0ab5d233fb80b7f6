// Package ui serves the web page to one person's browser: files that are embedded as they are written, and
// answers to questions that it is given. It changes nothing, and knows neither agent nor cluster.
//
// Who may look is decided thrice. A browser must have come by a loopback name (Host), so that no name of
// somebody else's that leads here is answered (DNS rebinding), and from no other page (Origin, Sec-Fetch-Site).
// A question needs a session, which a token is exchanged for, once. There are no cookies: a page of
// another port of the same host would get them, and a form of another page would send them.
package ui

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"embed"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/grapevine-net/grapevine/host/door"
)

//go:embed page
var page embed.FS

// TokenLife is how long a token can be exchanged for a session.
const TokenLife = 10 * time.Minute

// patience bounds an answer.
const patience = time.Minute

// policy is the Content-Security-Policy of every answer: scripts and styles are files of ours, nothing is asked
// elsewhere, and text never becomes markup.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// Ask answers a question: what it returns is sent as JSON. It must change nothing, and may be called by
// several goroutines. Its error is for people.
type Ask func(context.Context, url.Values) (any, error)

// Server is the page, its token and its sessions. Its methods may be called by several goroutines.
type Server struct {
	asks map[string]Ask
	now  func() time.Time

	mu       sync.Mutex
	token    string // empty: none that is still good
	since    time.Time
	sessions []string
}

// New makes a server that answers GET /v1/NAME by asks[NAME], and nothing else.
func New(asks map[string]Ask) *Server { return &Server{asks: asks, now: time.Now} }

// Token makes the token that the next session takes, in place of the one before.
func (s *Server) Token() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token, s.since = rand.Text(), s.now()
	return s.token
}

// session exchanges the token for a session, once.
func (s *Server) session(token string) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.token == "" || s.now().Sub(s.since) > TokenLife || subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) != 1 {
		return "", false
	}
	s.token = ""
	session := rand.Text()
	s.sessions = append(s.sessions, session)
	return session, true
}

func (s *Server) knows(session string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := 0
	for _, have := range s.sessions {
		known |= subtle.ConstantTimeCompare([]byte(session), []byte(have))
	}
	return known == 1
}

// Handler answers browsers.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	files, err := fs.Sub(page, "page")
	if err != nil {
		panic(err) // the files are in the program
	}
	mux.Handle("GET /", http.FileServerFS(files))
	mux.HandleFunc("POST /session", s.login)
	for name, ask := range s.asks {
		mux.HandleFunc("GET /v1/"+name, s.answer(ask))
	}
	return guard(mux)
}

// guard refuses who came by another name or from another page, and sets what the answers have in common.
func guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store",
		} {
			w.Header().Set(name, value)
		}
		origin, from := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")
		switch {
		case !loopback(r.Host):
			refuse(w, http.StatusMisdirectedRequest, "this page is at http://127.0.0.1 alone, and no other name")
		case origin != "" && origin != "http://"+r.Host, from != "" && from != "same-origin" && from != "none":
			refuse(w, http.StatusForbidden, "another page asked this: open the address that `grapevine ui` printed")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// loopback says whether a Host header names this machine, with any port: `ssh -L` has one of its own.
func loopback(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	return name == "localhost" || name == "127.0.0.1" || strings.Trim(name, "[]") == "::1"
}

func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	session, ok := s.session(bearer(r))
	if !ok {
		refuse(w, http.StatusUnauthorized, "this address was opened before, or is older than ten minutes: press Enter where `grapevine ui` runs, which prints another")
		return
	}
	reply(w, r, map[string]string{"session": session})
}

func (s *Server) answer(ask Ask) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.knows(bearer(r)) {
			refuse(w, http.StatusUnauthorized, "open the address that `grapevine ui` printed; Enter there prints another")
			return
		}
		door.Known(r)
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		value, err := ask(ctx, r.URL.Query())
		if err != nil {
			refuse(w, http.StatusBadGateway, err.Error())
			return
		}
		reply(w, r, value)
	}
}

// bearer is what stands behind "Authorization: Bearer".
func bearer(r *http.Request) string {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return token
}

// reply writes the value, or that the browser has it: it asks every few seconds, and little changes.
func reply(w http.ResponseWriter, r *http.Request, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		refuse(w, http.StatusInternalServerError, "encode the answer: "+err.Error())
		return
	}
	sum := sha256.Sum256(data)
	tag := `"` + hex.EncodeToString(sum[:8]) + `"`
	w.Header().Set("ETag", tag)
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data) // an error here is a browser that went away
}

func refuse(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": why})
}
