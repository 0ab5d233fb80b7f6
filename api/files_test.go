package api

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	called  = regexp.MustCompile(`http\.Method(Get|Post), "([a-z/-]+)|\.stream\(ctx, w, "(?:v1/)?([a-z/-]+)`)
	served  = regexp.MustCompile(`\b(get|post)\(mux, "/v1/([a-z/-]+)"`)
	handled = regexp.MustCompile(`\.handle\("(GET|POST) (/[a-z0-9/-]+)"`)
)

// TestOneFileEach: the route of a verb, and the client's call of it, are in one file, and there is no route without a call.
func TestOneFileEach(t *testing.T) {
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var routes []string
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "_test.go") || name == "client.go" {
			continue
		}
		calls, here := map[string]bool{}, map[string]bool{}
		for _, m := range called.FindAllStringSubmatch(string(text), -1) {
			if m[3] != "" {
				m[1], m[2] = "get", m[3]
			}
			calls[strings.ToUpper(m[1])+" /v1/"+strings.TrimSuffix(m[2], "/")] = true
		}
		for _, m := range served.FindAllStringSubmatch(string(text), -1) {
			here[strings.ToUpper(m[1])+" /v1/"+m[2]] = true
		}
		for _, m := range handled.FindAllStringSubmatch(string(text), -1) {
			here[m[1]+" "+strings.TrimSuffix(m[2], "/")] = true
		}
		routes = append(routes, slices.Collect(maps.Keys(here))...)
		if name == "server.go" { // of which monitoring asks
			delete(here, "GET /healthz")
		}
		for route := range here {
			if !calls[route] && route != "GET /metrics" {
				t.Errorf("%s answers %s, and has no call of it", name, route)
			}
		}
		for route := range calls {
			if !here[route] && route != "GET /v1/metrics" {
				t.Errorf("%s calls %s, and does not answer it", name, route)
			}
		}
	}
	for _, route := range Routes() {
		if !slices.Contains(routes, strings.TrimSuffix(route, "/")) {
			t.Errorf("%s is in none of %d routes that were found: their form has changed", route, len(routes))
		}
	}
}
