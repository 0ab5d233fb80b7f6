package api

import (
	"net"
	"net/http"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestWhatReadersGet: who may look gets these, and nothing else. Whoever adds one here has thought about it: it changes nothing, and
// has no key in it.
func TestWhatReadersGet(t *testing.T) {
	want := []string{
		"BGP", "Clients", "Doctor", "Egresses", "Endpoints", "Explain", "Flows", "Lead", "Learn", "Metrics", "Mirrors", "Networks", "Nodes", "Ping",
		"Policies", "PolicyLog", "Ring", "RuleCounts", "Services", "Status", "Trace", "Traffic",
	}
	all := Handlers{Metrics: http.NotFoundHandler()}
	v := reflect.ValueOf(&all).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Func {
			f.Set(reflect.MakeFunc(f.Type(), func([]reflect.Value) []reflect.Value { return nil }))
		}
	}
	var got []string
	readers := reflect.ValueOf(all.Readers())
	for i := range readers.NumField() {
		f, name := readers.Field(i), readers.Type().Field(i).Name
		if f.Kind() == reflect.Func && !f.IsNil() || name == "Metrics" && !f.IsNil() {
			got = append(got, name)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("who may look gets %q, want %q", got, want)
	}
}

// TestHungUpOn: who is no reader, on whom the socket for readers hangs up, is told for whom it is, whenever it does.
func TestHungUpOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "read.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	for range 200 {
		c := NewClient(path)
		c.reader.Store(true)
		if _, err := c.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "is for root, and to look for who may use Docker") {
			t.Fatalf("%v", err)
		}
	}
}
