package ui

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"
)

func server(t *testing.T) *Server {
	t.Helper()
	return New(map[string]Ask{
		"nodes": func(_ context.Context, q url.Values) (any, error) { return []string{"host1", q.Get("x")}, nil },
		"ring":  func(context.Context, url.Values) (any, error) { return nil, errors.New("no agent answers") },
	})
}

// ask sends a request as a browser would, with headers "Name: value".
func ask(s *Server, method, path string, headers ...string) *http.Response {
	r := httptest.NewRequest(method, "http://127.0.0.1:7954"+path, http.NoBody)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			r.Host = value
			continue
		}
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w.Result()
}

func login(t *testing.T, s *Server) string {
	t.Helper()
	response := ask(s, "POST", "/session", "Authorization: Bearer "+s.Token())
	var body struct{ Session string }
	if err := json.NewDecoder(response.Body).Decode(&body); err != nil || response.StatusCode != 200 || body.Session == "" {
		t.Fatalf("%s: %v", response.Status, err)
	}
	return "Authorization: Bearer " + body.Session
}

// TestToken: a token is good once, for ten minutes, and as long as there is no newer one; a session is no token.
func TestToken(t *testing.T) {
	s := server(t)
	now := time.Now()
	s.now = func() time.Time { return now }
	exchange := func(token string) int { return ask(s, "POST", "/session", "Authorization: Bearer "+token).StatusCode }
	token := s.Token()
	if len(token) < 26 {
		t.Errorf("a token of %d letters", len(token))
	}
	if exchange(token) != 200 || exchange(token) != 401 {
		t.Error("a token was good twice, or never")
	}
	old := s.Token()
	now = now.Add(TokenLife + time.Second)
	if exchange(old) != 401 {
		t.Error("a token was good after its time")
	}
	first, second := s.Token(), s.Token()
	if exchange(first) != 401 || exchange(second) != 200 {
		t.Error("the token before the last was good, or the last was not")
	}
	for _, wrong := range []string{"", "x", strings.ToLower(s.Token())} {
		if exchange(wrong) != 401 {
			t.Errorf("%q was good", wrong)
		}
	}
	if session := login(t, s); exchange(strings.TrimPrefix(session, "Authorization: Bearer ")) != 401 {
		t.Error("a session was exchanged as a token")
	}
}

// TestQuestionsNeedASession: the files are for everybody who comes by the right name, the answers are not.
func TestQuestionsNeedASession(t *testing.T) {
	s := server(t)
	session, token := login(t, s), s.Token()
	for _, tt := range []struct {
		path, with string
		status     int
	}{
		{"/v1/nodes", "", 401},
		{"/v1/nodes", "Authorization: Bearer x", 401},
		{"/v1/nodes", "Authorization: Bearer " + token, 401},
		{"/v1/nodes", "Cookie: session=" + strings.TrimPrefix(session, "Authorization: Bearer "), 401},
		{"/v1/nodes", session, 200},
		{"/v1/ring", session, 502},
		{"/v1/keys", session, 404},
		{"/", "", 200},
		{"/main.js", "", 200},
		{"/../ui.go", "", 404},
	} {
		response := ask(s, "GET", tt.path, tt.with)
		if response.StatusCode != tt.status && (tt.status != 404 || response.StatusCode >= 200 && response.StatusCode < 300) {
			t.Errorf("%s with %q: %s, wanted %d", tt.path, tt.with, response.Status, tt.status)
		}
		if response.Header.Get("Set-Cookie") != "" {
			t.Errorf("%s sets a cookie", tt.path)
		}
	}
}

// TestOtherPages: who comes by another name, or from another page, is refused, session or not.
func TestOtherPages(t *testing.T) {
	s := server(t)
	session := login(t, s)
	for _, tt := range []struct {
		header string
		status int
	}{
		{"Host: 127.0.0.1:7954", 200},
		{"Host: localhost:8000", 200}, // ssh -L 8000:127.0.0.1:7954
		{"Host: [::1]:7954", 200},
		{"Host: localhost", 200},
		{"Host: evil.example", 421},
		{"Host: evil.example:7954", 421},
		{"Host: 127.0.0.1.evil.example:7954", 421},
		{"Host: localhost.evil.example", 421},
		{"Host: 10.0.0.1:7954", 421},
		{"Host: ", 421},
		{"Origin: http://127.0.0.1:7954", 200},
		{"Origin: http://127.0.0.1:8080", 403},
		{"Origin: https://127.0.0.1:7954", 403},
		{"Origin: http://evil.example", 403},
		{"Origin: null", 403},
		{"Sec-Fetch-Site: none", 200},
		{"Sec-Fetch-Site: same-origin", 200},
		{"Sec-Fetch-Site: same-site", 403}, // another port of this machine
		{"Sec-Fetch-Site: cross-site", 403},
	} {
		if got := ask(s, "GET", "/v1/nodes", session, tt.header); got.StatusCode != tt.status {
			t.Errorf("%s: %s, wanted %d", tt.header, got.Status, tt.status)
		}
		if tt.status == 200 {
			continue
		}
		token := s.Token()
		if got := ask(s, "POST", "/session", "Authorization: Bearer "+token, tt.header); got.StatusCode != tt.status {
			t.Errorf("%s: a token is answered by %s, wanted %d", tt.header, got.Status, tt.status)
		}
		if got := ask(s, "GET", "/", tt.header); got.StatusCode != tt.status {
			t.Errorf("%s: the page is answered by %s, wanted %d", tt.header, got.Status, tt.status)
		}
	}
}

// TestNothingIsWritten: of all methods GET alone asks, and POST only /session.
func TestNothingIsWritten(t *testing.T) {
	s := server(t)
	session := login(t, s)
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT"} {
		for _, path := range []string{"/v1/nodes", "/v1/leave", "/v1/policies/apply", "/", "/main.js"} {
			if got := ask(s, method, path, session); got.StatusCode < 400 {
				t.Errorf("%s %s: %s", method, path, got.Status)
			}
		}
	}
}

// TestPolicy: nothing but the page's own files runs, by the headers of every answer and by what the files say.
func TestPolicy(t *testing.T) {
	s := server(t)
	for _, path := range []string{"/", "/main.js", "/v1/nodes", "/none"} {
		h := ask(s, "GET", path).Header
		csp := h.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self';", "style-src 'self';", "connect-src 'self';", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'"} {
			if !strings.Contains(csp, want) {
				t.Errorf("%s: the policy has no %s", path, want)
			}
		}
		if strings.Contains(csp, "unsafe") || strings.Contains(csp, "http") || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" || h.Get("Cross-Origin-Resource-Policy") != "same-origin" {
			t.Errorf("%s: %v", path, h)
		}
	}
	elsewhere := regexp.MustCompile(`https?://|innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|<style|style=|\son[a-z]+=`)
	size := 0
	err := fs.WalkDir(page, "page", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := page.ReadFile(path)
		size += len(data)
		text := strings.ReplaceAll(string(data), "http://www.w3.org/2000/svg", "")
		if found := elsewhere.FindString(text); found != "" {
			t.Errorf("%s has %q in it", path, found)
		}
		return err
	})
	if err != nil || size > 100<<10 {
		t.Errorf("%d bytes, wanted at most 100 KiB: %v", size, err)
	}
}

// TestUnchanged: what the browser has is not sent again, and what has changed is.
func TestUnchanged(t *testing.T) {
	s := server(t)
	session := login(t, s)
	first := ask(s, "GET", "/v1/nodes?x=1", session)
	tag := "If-None-Match: " + first.Header.Get("ETag")
	if body, err := io.ReadAll(first.Body); err != nil || string(body) != `["host1","1"]` {
		t.Errorf("%s %v", body, err)
	}
	if got := ask(s, "GET", "/v1/nodes?x=1", session, tag); got.StatusCode != 304 {
		t.Errorf("the same: %s", got.Status)
	}
	if got := ask(s, "GET", "/v1/nodes?x=2", session, tag); got.StatusCode != 200 {
		t.Errorf("another: %s", got.Status)
	}
}
